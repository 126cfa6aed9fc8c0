"""Tables of every bucket mode and merge engine, and what a plain person says they hold: the history of each key."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bucketline.state.types.binary_row import encode_row, hash_rows
from bucketline.state.types.logical import DataType, parse_type_text
from tests.support.models import merge_reference
from tests.support.models.merge_functions import KIND, SEQ

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
MODES = ("fixed", "dynamic", "cross-partition", "postpone")
ENGINES = ("deduplicate", "partial-update", "aggregation", "first-row")
COLUMNS = {"id": "BIGINT", "p": "INT", "s": "INT", "t": "BIGINT", "q": "INT"}
TYPES = {name: parse_type_text(text) for name, text in COLUMNS.items()}

Row = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A table with rows of a merge engine: `options`, the kinds of row that may be written, and whether a key's first
    row must be an insert. `removes` says that a key which was deleted must not come back.
    """

    mode: str
    engine: str
    partitioned: bool
    options: Mapping[str, str]
    kinds: Sequence[int] = (INSERT, INSERT, UPDATE_AFTER)
    begins_with_insert: bool = False
    removes: bool = False
    ignores_deletes: bool = False

    @property
    def primary_key(self) -> tuple[str, ...]:
        return ("p", "id") if self.partitioned and self.mode != "cross-partition" else ("id",)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return ("p",) if self.partitioned else ()

    @property
    def sql(self) -> str:
        keys = self.primary_key
        return ", ".join(f"{n} {t}{' NOT NULL' if n in keys else ''}" for n, t in COLUMNS.items())

    @property
    def is_stale(self) -> bool:
        """Whether readers see old rows until they are compacted."""
        return "deletion-vectors.enabled" in self.options

    @property
    def has_hash_index(self) -> bool:
        return self.mode == "dynamic"

    def key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[k] for k in self.primary_key)


def draw_kind(draw: random.Random, mode: str, engine: str) -> Kind:
    """A random table of the mode and the engine."""
    options = dict(draw.choice(_ENGINE_OPTIONS[engine]))
    if mode == "cross-partition" and "sequence.field" in options:
        options = {}
    if engine != "deduplicate":
        options["merge-engine"] = engine
    kinds: Sequence[int] = (INSERT, INSERT, UPDATE_AFTER)
    retracts = options.pop("retracts", None)
    ignores = "ignore-delete" in options
    removes = "partial-update.remove-record-on-delete" in options
    if retracts or ignores or removes or (engine == "deduplicate" and not options):
        kinds = (INSERT, INSERT, UPDATE_AFTER, DELETE) if removes else tuple(range(4))
    options |= {
        "num-sorted-run.compaction-trigger": str(draw.choice((2, 3, 5))),
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": str(draw.choice((1, 3, 100))),
        **draw.choice(({}, {"full-compaction.delta-commits": "2"}, {"write-only": "true"})),
        **_mode_options(draw, mode),
    }
    if mode != "postpone":
        options |= draw.choice(_CHANGELOG_OPTIONS[: 4 if engine == "first-row" else None])
        if options.get("changelog-producer") == "lookup":
            options.pop("full-compaction.delta-commits", None)
    partitioned = mode == "cross-partition" or draw.random() < 0.6
    if retracts and not partitioned:
        options["fields.p.aggregate-function"] = "sum"
    return Kind(mode, engine, partitioned, options, kinds, bool(retracts), removes, ignores)


def _mode_options(draw: random.Random, mode: str) -> dict[str, str]:
    if mode == "fixed":
        return {"bucket": str(draw.choice((1, 3, 5)))}
    if mode == "postpone":
        return {
            "bucket": "-2",
            "postpone.batch-write-fixed-bucket": "false",
            **draw.choice(({}, {"postpone.default-bucket-num": "3"}, {"postpone.target-row-num-per-bucket": "7"})),
        }
    found = {"bucket": "-1", "dynamic-bucket.target-row-num": str(draw.choice((3, 10, 1000)))}
    if draw.random() < 0.3:
        found["dynamic-bucket.max-buckets"] = str(draw.choice((1, 2, 4)))
    if draw.random() < 0.4:
        found["dynamic-bucket.initial-buckets"] = str(draw.choice((1, 2, 5)))
    return found


_ENGINE_OPTIONS: Mapping[str, Sequence[Mapping[str, str]]] = {
    "deduplicate": ({}, {}, {"sequence.field": "q"}),
    "partial-update": (
        {},
        {"ignore-delete": "true"},
        {"partial-update.remove-record-on-delete": "true"},
    ),
    "aggregation": (
        {"fields.s.aggregate-function": "sum", "fields.t.aggregate-function": "sum", "retracts": "yes",
         "fields.q.aggregate-function": "sum"},
        {"fields.s.aggregate-function": "max", "fields.t.aggregate-function": "last_non_null_value",
         "fields.q.aggregate-function": "min"},
    ),
    "first-row": ({}, {"ignore-delete": "true"}),
}  # fmt: skip


_CHANGELOG_OPTIONS: Sequence[Mapping[str, str]] = (
    {},
    {},
    {},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "input"},
    {"changelog-producer": "full-compaction"},
    {"deletion-vectors.enabled": "true"},
)


@dataclass
class Histories:
    """All rows of each key in the order written, and so what the table must hold."""

    kind: Kind
    rows: dict[tuple[Any, ...], list[Row]] = field(default_factory=dict)
    count: int = 0

    def copy(self) -> "Histories":
        return Histories(self.kind, {k: list(v) for k, v in self.rows.items()}, self.count)

    def draw_rows(self, draw: random.Random, count: int, keys: int) -> list[Row]:
        """Random rows, with their kinds, that may come next."""
        begun = {k for k, rows in self.rows.items() if rows}
        found: list[Row] = []
        removed = {k for k, rows in self.rows.items() if self.kind.removes and rows[-1][KIND] == DELETE}
        for _ in range(count):
            row: Row = {"id": draw.randrange(keys), "p": draw.choice((0, 1, -7)), "q": draw.randrange(5)}
            if self.kind.mode == "cross-partition" and draw.random() < 0.1:
                row["p"] = None
            row[KIND] = draw.choice(self.kind.kinds)
            for column in ("s", "t"):
                row[column] = draw.choice((None, draw.randrange(1000), draw.randrange(1000)))
            key = self.kind.key(row)
            if self.kind.begins_with_insert and key not in begun:
                row[KIND] = INSERT
            if key in removed:
                # What comes after it meets what was before it, where the two are folded first: Paimon's too.
                continue
            if self.kind.removes and row[KIND] == DELETE:
                removed.add(key)
            if not (self.kind.ignores_deletes and row[KIND] & 1):
                begun.add(key)
            found.append(row)
        return found

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self.kind.ignores_deletes and row[KIND] & 1:
                continue
            self.count += 1
            self.rows.setdefault(self.kind.key(row), []).append({**row, SEQ: self.count})

    def expected(self) -> dict[tuple[Any, ...], Row]:
        """The live row of each key."""
        found = {}
        for key, rows in self.rows.items():
            merged = self._merged(rows)
            if not merged[KIND] & 1:
                found[key] = {name: merged[name] for name in COLUMNS}
        return found

    def hashes(self) -> dict[tuple[Any, ...], int]:
        """For each key that was ever written, the hash of what it is in its partition."""
        names = [k for k in self.kind.primary_key if k not in self.kind.partition_by]
        columns = [pa.array([row[0][n] for row in self.rows.values()], _arrow(TYPES[n])) for n in names]
        hashes = np.asarray(hash_rows(columns, [TYPES[n] for n in names])).tolist() if self.rows else []
        return dict(zip(self.rows, hashes, strict=True))

    def partition(self, key: tuple[Any, ...]) -> bytes:
        """The serialized partition of a key that holds it."""
        values = [key[self.kind.primary_key.index(n)] for n in self.kind.partition_by]
        return encode_row(values, [TYPES[n] for n in self.kind.partition_by])

    def _merged(self, rows: Sequence[Row]) -> Row:
        kind, first = self.kind, rows[0]
        if kind.engine == "first-row":
            return first
        if kind.engine == "deduplicate":
            by_field = "sequence.field" in kind.options
            return max(rows, key=lambda r: (r["q"], r[SEQ])) if by_field else rows[-1]
        if len(rows) == 1:
            return first
        keys = tuple(dict.fromkeys((*kind.primary_key, *kind.partition_by)))
        fold = merge_reference.partial_update if kind.engine == "partial-update" else merge_reference.aggregate
        # Where a key may move it stays in the partition it came to first.
        merged = fold([{**r, "p": first["p"]} if kind.partitioned else r for r in rows], TYPES, keys, kind.options)
        return {name: merged[name] for name in (*COLUMNS, KIND)}


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The rows as columns, with their kinds in `_row_kind`."""
    columns = {n: pa.array([r[n] for r in rows], _arrow(t)) for n, t in TYPES.items()}
    return pa.table({**columns, "_row_kind": pa.array([r[KIND] for r in rows], pa.int8())})


def _arrow(kind: DataType) -> pa.DataType:
    return pa.int64() if str(kind) == "BIGINT" else pa.int32()
