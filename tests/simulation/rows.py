"""A plain model of what a table holds, a row for each key or how often each row is there; and what changes do to it."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
DAYS = ("2020-01-01", "2999-01-01")
COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("v", pa.int64())]
)

Row = tuple[int, str, int | None, int | None]
"""id, day, v, and `more`, which is None where the table has no such column."""
State = Mapping[Row, int]
"""How often each row is there."""


@dataclass(frozen=True)
class Kind:
    """How a table is made. `hides` says that written rows are not in the buckets of readers until they are
    compacted."""

    options: Mapping[str, str]
    key: Sequence[str] = ("day", "id")
    days: Sequence[str] = ("day",)
    hides: bool = False

    @property
    def engine(self) -> str:
        return self.options.get("merge-engine", "deduplicate")

    @property
    def readers_wait(self) -> bool:
        """Whether readers skip rows that are not compacted."""
        return self.hides or "deletion-vectors.enabled" in self.options or self.engine == "first-row"

    @property
    def takes_deletes(self) -> bool:
        return bool(self.key) and self.engine == "deduplicate" and not self.has_versions

    @property
    def has_versions(self) -> bool:
        """Whether the row with the larger `v` wins, in whatever order the rows come."""
        return "sequence.field" in self.options

    def still_open(
        self, old: frozenset[object], own: Collection[object], theirs: Collection[object]
    ) -> frozenset[object]:
        """The keys of which it is open which row wins, after a write of the keys `own`. `old` are those before it, and
        `theirs` the keys that others have written meanwhile.

        The write settles a key only if its row replaces all older rows. Under `first-row` the older rows still compete:
        Paimon Java keeps the row with the smallest sequence number, even if readers have seen another one
        (FirstRowMergeFunction). Under `partial-update` a column of the new row may be null, and sums add it to all.
        """
        settled = frozenset(own) if self.engine == "deduplicate" else frozenset[object]()
        return (old - settled) | (frozenset(own) & frozenset(theirs))

    def key_of(self, row: Row) -> tuple[object, ...]:
        return tuple(row[("id", "day").index(name)] for name in self.key)


_DROPPED = {
    "partition.timestamp-pattern": "$day",
    "partition.timestamp-formatter": "yyyy-MM-dd",
    "partition.expiration-time": "900 d",
    "partition.expiration-check-interval": "9999 d",
}
_LONG_CHANGELOGS = {"changelog.num-retained.min": "2", "changelog.num-retained.max": "9"}
KINDS: Mapping[str, Kind] = {
    "fixed": Kind({"bucket": "1"}, days=(), key=("id",)),
    "versions": Kind({"bucket": "1", "sequence.field": "v"}, days=(), key=("id",)),
    "dynamic with versions": Kind(
        {"bucket": "-1", "dynamic-bucket.target-row-num": "3", "sequence.field": "v"}, days=(), key=("id",)
    ),
    "two buckets": Kind({"bucket": "2"}, days=(), key=("id",)),
    "partitioned": Kind({"bucket": "1", **_DROPPED}),
    "dynamic": Kind({"bucket": "-1", "dynamic-bucket.target-row-num": "3"}),
    "append": Kind({"bucket": "-1"}, key=()),
    "append by bucket": Kind({"bucket": "2", "bucket-key": "id"}, key=(), days=()),
    "deletion vectors": Kind({"bucket": "1", "deletion-vectors.enabled": "true"}, days=(), key=("id",)),
    "append with vectors": Kind({"bucket": "-1", "deletion-vectors.enabled": "true"}, key=(), days=()),
    "changelog of the input": Kind(
        {"bucket": "1", "changelog-producer": "input", **_LONG_CHANGELOGS}, days=(), key=("id",)
    ),
    "changelog of lookups": Kind({"bucket": "1", "changelog-producer": "lookup"}, days=(), key=("id",)),
    "long history of changes": Kind({"bucket": "1", **_LONG_CHANGELOGS}, days=(), key=("id",)),
    "first row": Kind({"bucket": "1", "merge-engine": "first-row"}, days=(), key=("id",)),
    "partial update": Kind({"bucket": "1", "merge-engine": "partial-update"}, days=(), key=("id",)),
    "sums": Kind(
        {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, days=(), key=("id",)
    ),
    "postpone": Kind({"bucket": "-2"}, hides=True),
    "cross-partition": Kind({"bucket": "-1"}, key=("id",)),
}


@dataclass(frozen=True)
class Effect:
    """The changes of an operation: the rows that it removes, and then those that it adds, each with its kind.

    `days` are partitions that are emptied; `empties` empties all. The rows of `ids` are removed, or changed if there is
    a `new_value`.
    """

    rows: tuple[tuple[Row, int], ...] = ()
    days: tuple[str, ...] = ()
    empties: bool = False
    ids: tuple[int, ...] = ()
    new_value: int | None = None
    is_own_days: bool = False
    """Whether the partitions of the rows themselves are emptied."""
    merged: tuple[Row, ...] = ()
    """Rows of a merge: their values go into the rows of their keys, and rows of unknown keys are added."""

    @property
    def brought(self) -> tuple[tuple[Row, int], ...]:
        """The rows that the operation adds, and those that a merge may add."""
        return (*self.rows, *((row, INSERT) for row in self.merged))


NOTHING = Effect()


@dataclass
class Fold:
    """The rows that a table of the kind keeps of rows that are added one after the other."""

    kind: Kind
    kept: dict[tuple[object, ...], Row] = field(default_factory=dict)
    counted: Counter[Row] = field(default_factory=Counter)

    @classmethod
    def of(cls, kind: Kind, state: State) -> "Fold":
        fold = cls(kind)
        if kind.key:
            fold.kept = {kind.key_of(row): row for row in state}
        else:
            fold.counted = Counter(state)
        return fold

    def add(self, row: Row, row_kind: int) -> None:
        """One more row."""
        if not self.kind.key:
            self.counted[row] += 1
            return
        key = self.kind.key_of(row)
        known = self.kept.get(key)
        if row_kind in (UPDATE_BEFORE, DELETE):
            self.kept.pop(key, None)
        elif known is not None and self.kind.has_versions:
            self.kept[key] = row if known[2] is None or (row[2] is not None and row[2] >= known[2]) else known
        elif known is None or self.kind.engine == "deduplicate":
            self.kept[key] = row
        elif self.kind.engine != "first-row":
            self.kept[key] = _combined(self.kind.engine, known, row)

    def remove(self, rows: Iterable[Row]) -> None:
        """Rows that go, however often they are there."""
        for row in list(rows):
            self.kept.pop(self.kind.key_of(row), None) if self.kind.key else self.counted.pop(row, None)

    @property
    def rows(self) -> list[Row]:
        return list(self.kept.values()) if self.kind.key else list(self.counted)

    @property
    def state(self) -> State:
        return Counter(self.kept.values()) if self.kind.key else Counter(+self.counted)


def _combined(engine: str, known: Row, row: Row) -> Row:
    more = known[3] if row[3] is None else row[3]
    v = row[2]
    if v is None or known[2] is None:
        v = known[2] if v is None else v
    elif engine == "aggregation":
        v = known[2] + v
    return (row[0], row[1], v, more)


def applied(kind: Kind, state: State, effect: Effect) -> State:
    """The rows after an operation."""
    fold = Fold.of(kind, state)
    days = {row[1] for row, _ in effect.rows} if effect.is_own_days and kind.days else set(effect.days)
    if effect.empties or (effect.is_own_days and not kind.days):
        fold.remove(fold.rows)
    fold.remove(row for row in fold.rows if row[1] in days)
    touched = [row for row in fold.rows if row[0] in effect.ids]
    counts = {row: state[row] for row in touched}
    fold.remove(touched)
    if effect.new_value is not None:
        for row in touched:
            for _ in range(counts[row]):
                fold.add((row[0], row[1], effect.new_value, row[3]), INSERT)
    for row in effect.merged:
        known = fold.kept.get(kind.key_of(row))
        fold.add(row if known is None else (*known[:2], row[2], known[3]), INSERT)
    for row, row_kind in effect.rows:
        fold.add(row, row_kind)
    return fold.state


def table_of(rows: Sequence[tuple[Row, int]], *, has_more: bool) -> pa.Table:
    """The rows as columns, with their kinds in `_row_kind`."""
    columns = {
        "id": pa.array([r[0] for r, _ in rows], pa.int64()),
        "day": pa.array([r[1] for r, _ in rows], pa.string()),
        "v": pa.array([r[2] for r, _ in rows], pa.int64()),
    }
    if has_more:
        columns["more"] = pa.array([r[3] for r, _ in rows], pa.int32())
    columns["_row_kind"] = pa.array([k for _, k in rows], pa.int8())
    return pa.table(columns)


def followed(kind: Kind, state: State, changes: pa.Table) -> State:
    """The rows after what a reader of changes shows, with the kind of each in `_row_kind`.

    Changes of different partitions come in any order: of a row that moves, the insert may come before the delete. So a
    delete removes only a row of its own partition.
    """
    fold = Fold.of(replace(kind, key=kind.key and sorted({*kind.key, *kind.days})), state)
    for row, row_kind in zip(_rows_of(changes), changes["_row_kind"].to_pylist(), strict=True):
        fold.add(row, row_kind)
    return fold.state


def state_of(found: pa.Table) -> State:
    """The rows that a reader shows."""
    return Counter(_rows_of(found))


def _rows_of(found: pa.Table) -> list[Row]:
    more = found["more"].to_pylist() if "more" in found.column_names else [None] * found.num_rows
    return list(zip(found["id"].to_pylist(), found["day"].to_pylist(), found["v"].to_pylist(), more, strict=True))


def difference(held: State, expected: State) -> tuple[list[tuple[Row, int]], list[tuple[Row, int]]]:
    """The rows that are too much in `held`, and those that it lacks, each with how often."""
    more = [(r, n) for r, n in held.items() if n > expected.get(r, 0)]
    less = [(r, n) for r, n in expected.items() if n > held.get(r, 0)]
    return sorted(more, key=str), sorted(less, key=str)
