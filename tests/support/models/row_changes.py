"""Random changes of one table and what a plain list of rows says of it after each: the judge of row changes.

A run is what its seed says. Rows are (dt, id, v, name) with a few partitions and keys, so that changes meet.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from bucketline.state.sql.compute.expression import expr
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table

Row = tuple[str, int, int | None, str | None]
SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64()), ("name", pa.string())])
NAMES = SCHEMA.names

SORTS: Mapping[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "merge-on-read": (("dt", "id"), {"bucket": "2", "num-sorted-run.compaction-trigger": "3"}),
    "copy-on-write": (("dt", "id"), {"bucket": "2", "full-compaction.delta-commits": "1"}),
    "vectors": (("dt", "id"), {"bucket": "2", "deletion-vectors.enabled": "true"}),
    "lookup": (("dt", "id"), {"bucket": "1", "changelog-producer": "lookup"}),
    "dynamic": (("dt", "id"), {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}),
    "cross-partition": (("id",), {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}),
    "cross-partition vectors": (("id",), {"bucket": "-1", "deletion-vectors.enabled": "true"}),
    "partial-update": (
        ("dt", "id"),
        {"bucket": "2", "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    ),
    "append": ((), {}),
    "append bucketed": ((), {"bucket": "2", "bucket-key": "id"}),
    "append vectors": ((), {"deletion-vectors.enabled": "true"}),
    "append bucketed vectors": ((), {"bucket": "2", "bucket-key": "id", "deletion-vectors.enabled": "true"}),
}
"""Primary key and options by the sort of table."""

FILTERS: Mapping[str, Callable[[Row], bool]] = {
    "id < 4": lambda r: r[1] < 4,
    "id IN (1, 5, 9) AND dt = 'a'": lambda r: r[1] in (1, 5, 9) and r[0] == "a",
    "v IS NULL": lambda r: r[2] is None,
    "v > id * 3": lambda r: r[2] is not None and r[2] > r[1] * 3,
    "name = 'x' OR dt > 'b'": lambda r: r[3] == "x" or r[0] > "b",
    "v % 3 = 1": lambda r: r[2] is not None and r[2] % 3 == 1,
    "id > 100": lambda r: False,
    "true": lambda r: True,
}
UPDATES: tuple[tuple[dict[str, object], Callable[[Row], Row]], ...] = (
    ({"v": 7}, lambda r: (r[0], r[1], 7, r[3])),
    ({"name": expr("upper(coalesce(name, 'none'))")}, lambda r: (r[0], r[1], r[2], (r[3] or "none").upper())),
    ({"v": expr("coalesce(v, 0) + id"), "name": "y"}, lambda r: (r[0], r[1], (r[2] or 0) + r[1], "y")),
)


@dataclass
class ChangedTable:
    """A table, and the rows that it must hold. `engine` carries out what takes one."""

    table: Table
    draw: random.Random
    engine: Engine = LOCAL_ENGINE
    rows: list[Row] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @staticmethod
    def create(path: str, sort: str, draw: random.Random, engine: Engine = LOCAL_ENGINE) -> "ChangedTable":
        key, options = SORTS[sort]
        return ChangedTable(create_table(path, SCHEMA, key, ["dt"], options), draw, engine)

    def change(self) -> None:
        """One change."""
        acts = [self._write] * 4 + [self._delete, self._update] * 2 + [self._merge] * 3
        acts += [self.overwrite] * 2 + [self._empty, self._compact, self._compact]
        self.draw.choice(acts)()

    def check(self) -> None:
        found = self.table.to_arrow().to_pydict()
        held = sorted(zip(*(found[n] for n in NAMES), strict=True), key=repr)
        assert held == sorted(self.rows, key=repr)
        assert self.table.doctor(rows=True) == []

    # ---- what is done ----

    def _write(self) -> None:
        rows = self.drawn(self.draw.choice((1, 3, 12)))
        self.log.append(f"write {rows}")
        self.table.write(data_of(rows))
        self.put(rows)

    def _delete(self) -> None:
        text = self.draw.choice(list(FILTERS))
        self.log.append(f"delete {text}")
        before, passes = self._newest(), FILTERS[text]
        done = self.table.delete(text, engine=self.engine)
        assert (done == before) == (not any(map(passes, self.rows)))
        self.rows = [r for r in self.rows if not passes(r)]

    def _update(self) -> None:
        text, (values, change) = self.draw.choice(list(FILTERS)), self.draw.choice(UPDATES)
        self.log.append(f"update {text} {values}")
        passes = FILTERS[text]
        self.table.update(text, values, engine=self.engine)
        self.rows = [change(r) if passes(r) else r for r in self.rows]

    def _merge(self) -> None:
        by_key: dict[Any, Row] = {self._key(r): r for r in self.drawn(self.draw.choice((1, 4, 10)))}
        source, on = list(by_key.values()), list(self.table.primary_key or ("dt", "id"))
        matched = self.draw.choice((None, "delete", "update"))
        unmatched = "insert" if matched is None else self.draw.choice((None, "insert"))
        self.log.append(f"merge {source} {matched} {unmatched}")
        values = {"v": expr("coalesce(source.v, 0) + coalesce(v, 0)"), "name": "merged"}
        self.table.merge(data_of(source), on, values if matched == "update" else matched, unmatched, engine=self.engine)
        known = {self._key(r) for r in self.rows}
        after = []
        for r in self.rows:
            s = by_key.get(self._key(r))
            if s is None or matched is None:
                after.append(r)
            elif matched == "update":
                after.append((r[0], r[1], (s[2] or 0) + (r[2] or 0), "merged"))
        new = [s for k, s in by_key.items() if k not in known] if unmatched else []
        self.rows = after + new

    def overwrite(self) -> None:
        """Random rows take the place of partitions."""
        rows = self.drawn(self.draw.choice((0, 2, 6)))
        partition = self.draw.choice((None, {"dt": "a"}))
        if partition is not None:
            rows = [("a", *r[1:]) for r in rows]
        self.log.append(f"overwrite {rows} {partition}")
        self.table.overwrite(data_of(rows), partition, engine=self.engine)
        gone = {r[0] for r in rows} if partition is None else {"a"}
        self.rows = [r for r in self.rows if r[0] not in gone]
        self.put(rows)

    def _empty(self) -> None:
        days = self.draw.choice((["a"], ["a", "c"], None))
        self.log.append(f"empty {days}")
        if days is None:
            self.table.truncate()
        else:
            self.table.drop_partitions([{"dt": d} for d in days])
        self.rows = [] if days is None else [r for r in self.rows if r[0] not in days]

    def _compact(self) -> None:
        strategy = self.draw.choice(("full", "minor"))
        self.log.append(f"compact {strategy}")
        self.table.compact(strategy)

    # ---- rows ----

    def _newest(self) -> int:
        return handle_of(open_table(self.table.path)).snapshot_store.latest_id() or 0

    def drawn(self, count: int) -> list[Row]:
        """Random rows."""
        draw = self.draw
        full = "partial-update" in self.table.options.values()
        values = (*range(0, 60, 7), *(() if full else (None,)))
        names = ("x", "y", "zz", *(() if full else (None,)))
        return [(draw.choice("abc"), draw.randrange(12), draw.choice(values), draw.choice(names)) for _ in range(count)]

    def _key(self, row: Row) -> Any:
        return tuple(dict(zip(NAMES, row, strict=True))[n] for n in self.table.primary_key or ("dt", "id"))

    def put(self, rows: list[Row]) -> None:
        """Rows that were written."""
        if not self.table.primary_key:
            self.rows += rows
            return
        held = {self._key(r): r for r in self.rows}
        held.update((self._key(r), r) for r in rows)
        self.rows = list(held.values())


def data_of(rows: list[Row]) -> pa.Table:
    """The rows as Arrow data."""
    return pa.Table.from_pylist([dict(zip(NAMES, r, strict=True)) for r in rows], schema=SCHEMA)
