"""Looking keys up in higher levels, against a dictionary; and compactions with lookups, against one row at a time."""

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.older_values import Above, OlderValues
from bucketline.state.store.read.bucket_deletions import BucketDeletions
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND

_KEYS: Mapping[str, tuple[list[pa.Field], Any]] = {
    "int": ([pa.field("a", pa.int32())], lambda i: (i * 3,)),
    "text": ([pa.field("a", pa.string())], lambda i: (f"{i * 3:06d}" + "é" * (i % 3),)),
    "two": ([pa.field("a", pa.string()), pa.field("b", pa.int64())], lambda i: (f"{i // 7:05d}", i % 7)),
    "double": ([pa.field("a", pa.float64())], lambda i: (i / 4,)),
}
_ROWS = 9000


@pytest.fixture(scope="module", params=list(_KEYS))
def upper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Table]:
    """A table with files of many row groups on two levels; level 3 has every fifth key of level 5, and some more."""
    fields, key = _KEYS[request.param]
    schema = pa.schema([*fields, pa.field("v", pa.int64()), pa.field("pad", pa.string())])
    path = tmp_path_factory.mktemp(request.param) / "db.db" / "t"
    options = {"bucket": "1", "file.block-size": "64 kb", "target-file-size": "300 kb", "write-only": "true"}
    table = create_table(str(path), schema, [f.name for f in fields], options=options)

    def write(numbers: Sequence[int], sign: int) -> None:
        columns = list(zip(*[key(i) for i in numbers], strict=True))
        values = [[sign * i for i in numbers], [f"{i * 7919:030d}" for i in numbers]]
        arrays = [pa.array(c, f.type) for c, f in zip([*columns, *values], schema, strict=True)]
        table.write(pa.table(arrays, schema=schema))

    write(range(0, _ROWS, 2), 1)
    table.compact()
    write([*range(0, _ROWS, 10), *range(1, _ROWS, 50)], -1)
    return request.param, open_table(str(path))


def _older(table: Table, marks: BucketDeletions | None, columns: Sequence[str], batch_rows: int) -> OlderValues:
    access = BucketAccess(table.path, handle_of(table).table_schema)
    found = handle_of(table).snapshot_store.latest()
    assert found is not None
    files = [e.file for e in handle_of(table).manifests.live_entries(found)]

    def run(level: int) -> SortedRun:
        here = [f for f in files if f.level == level]
        return SortedRun(tuple(sorted(here, key=lambda f: access.key_order(f.min_key))))

    # Level 0 was flushed in one go, so its files are a run that might as well lie on level 3.
    runs = ((3, SortedRun(tuple(_lifted(f) for f in run(0).files))), (5, run(5)))
    bucket = BucketFiles(bytes(12), 0, 1, ())
    return OlderValues(Above(access.files, bucket, runs, batch_rows, marks), columns)


def _lifted(file: DataFileMeta) -> DataFileMeta:
    return file.upgraded(3)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), batch_rows=st.sampled_from([100, 5000]), wants_rows=st.booleans())
def test_keys_are_found_on_the_lowest_level_that_has_them(
    upper: tuple[str, Table], seed: int, batch_rows: int, wants_rows: bool
) -> None:
    name, table = upper
    fields, key = _KEYS[name]
    draw = random.Random(seed)
    low = draw.randrange(_ROWS)
    numbers = sorted(draw.sample(range(low, min(low + draw.choice([50, 3000, _ROWS]), _ROWS + 50)), k=30))
    marks = draw.choice([None, BucketDeletions()])
    older = _older(
        table, marks, ["v", *(f.name for f in fields), SEQUENCE, VALUE_KIND] if wants_rows else [], batch_rows
    )
    deleted = set(draw.sample(numbers, 5)) if marks is not None else set()
    if marks is not None:
        _delete(table, marks, deleted, older_of=lambda: _older(table, None, [], batch_rows), key=key, fields=fields)
    cuts = sorted({0, len(numbers), *(draw.randrange(len(numbers)) for _ in range(4))})
    for start, end in pairwise(cuts):
        asked = numbers[start:end]
        found = older.find(_key_table(asked, key, fields))
        expected = [i for i in asked if _value(i, deleted) is not None]
        assert [asked[p] for p in found.keys] == expected
        if wants_rows and expected:
            assert found.rows is not None
            assert found.rows["v"].to_pylist() == [_value(i, deleted) for i in expected]
        if marks is not None:
            # What was found is deleted now, so that nothing is found twice on one level.
            again = _older(table, marks, [], batch_rows).find(_key_table(asked, key, fields))
            assert {asked[p] for p in again.keys} <= {i for i in asked if i % 10 == 0}


def _value(number: int, deleted: set[int]) -> int | None:
    """The newest value of a key; of a deleted key the one below."""
    upper = -number if number < _ROWS and (number % 10 == 0 or number % 50 == 1) else None
    lower = number if number < _ROWS and number % 2 == 0 else None
    found = [v for v in (upper, lower) if v is not None]
    return found[number in deleted] if len(found) > (number in deleted) else None


def _delete(
    table: Table, marks: BucketDeletions, numbers: set[int], *, older_of: Any, key: Any, fields: list[pa.Field]
) -> None:
    """Marks the newest row of each key as deleted."""
    spy = _Spy(marks)
    older = older_of()
    older._marks = spy
    older.find(_key_table(sorted(numbers), key, fields))


class _Spy:
    """Marks that look empty to who reads them."""

    def __init__(self, marks: BucketDeletions) -> None:
        self.marks = marks

    def of_name(self, file_name: str) -> NDArray[np.int64] | None:
        return None

    def delete(self, file_name: str, positions: NDArray[np.int64]) -> None:
        self.marks.delete(file_name, positions)


def _key_table(numbers: Sequence[int], key: Any, fields: list[pa.Field]) -> pa.Table:
    columns = list(zip(*[key(i) for i in numbers], strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=pa.schema(fields))


_Row = tuple[int, int | None, int | None]


_OLDEST = (False, 0)


def _sequence(row: _Row) -> tuple[bool, int]:
    """What rows of a key are ordered by where the column `g` is their sequence."""
    return (row[1] is not None, row[1] or 0)


def _fold(engine: str, old: _Row | None, rows: Sequence[tuple[int, _Row]]) -> _Row | None:
    """What the rows of a key become, by the specification: `old` is the newest value from above, if there is one."""
    events = [*([(0, old)] if old is not None else []), *rows]
    if engine == "deduplicate":
        kind, row = events[-1]
        return None if kind == 3 else row
    if engine == "first-row":
        return events[0][1]
    if engine == "by sequence":
        # A null sequence is older than all others; of equal ones the later row wins.
        newest = max(range(len(events)), key=lambda i: (_sequence(events[i][1]), i))
        kind, row = events[newest]
        return None if kind == 3 else row
    if engine == "sum":
        total = value = None
        for kind, (_, g, n) in events:
            if g is not None:
                total = (total or 0) + (-g if kind == 3 else g)
            if n is not None:
                value = None if kind == 3 else n
        return (events[-1][1][0], total, value)
    merged: list[int | None] = [events[0][1][0], None, None]
    for _, row in events:
        merged = [new if new is not None else was for new, was in zip(row, merged, strict=True)]
    return (events[0][1][0], merged[1], merged[2])


_ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "by sequence": {"sequence.field": "g"},
    "first-row": {"merge-engine": "first-row"},
    "sum": {"merge-engine": "aggregation", "fields.g.aggregate-function": "sum"},
    "partial-update": {"merge-engine": "partial-update"},
}


_KINDS = {"first-row": [0], "partial-update": [0, 2]}
"""Row kinds that an engine takes; a first row is logged with its own."""


@settings(max_examples=5, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("engine", list(_ENGINES))
def test_lookups_log_what_one_row_at_a_time_does(
    engine: str, vectors: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if engine == "first-row":
        vectors = "false"
    schema = pa.schema({"k": pa.int32(), "g": pa.int64(), "n": pa.int64()})
    options = {
        "bucket": "1",
        "changelog-producer": "lookup",
        "deletion-vectors.enabled": vectors,
        "compaction.size-ratio": data.draw(st.sampled_from(["0", "-99", "1000"])),
        **_ENGINES[engine],
    }
    path = str(tmp_path_factory.mktemp("t") / "db.db" / "t")
    table = create_table(path, schema, ["k"], options=options)
    values = st.none() | st.integers(-3, 3)
    kinds = st.sampled_from(_KINDS.get(engine, [0, 2, 3]))
    rows = st.tuples(kinds, st.tuples(st.integers(0, 8), values, values))
    state: dict[int, _Row] = {}
    deleted: dict[int, tuple[bool, int]] = {}
    seen = 0
    for _ in range(data.draw(st.integers(2, 4))):
        batch = data.draw(st.lists(rows, min_size=1, max_size=10))
        if engine == "by sequence":
            # Whether a delete hides an older row that comes later depends on whether it has been compacted away.
            batch = [(kind, row) for kind, row in batch if _sequence(row) >= deleted.get(row[0], _OLDEST)]
            for row in (row for kind, row in batch if kind == 3):
                deleted[row[0]] = max(deleted.get(row[0], _OLDEST), _sequence(row))
        before, expected = dict(state), []
        for k in sorted({row[0] for _, row in batch}):
            group = [(kind, row) for kind, row in batch if row[0] == k]
            if engine == "sum":
                # A flush merges several rows to an insert; a row alone stays what it is.
                merged = _fold("sum", None, group)
                group = [(0, merged)] if len(group) > 1 and merged is not None else group
            new = _fold(engine, before.get(k), group)
            expected += _changes(before.get(k), new, engine)
            state.pop(k, None)
            if new is not None:
                state[k] = new
        columns = [pa.array([row[i] for _, row in batch], f.type) for i, f in enumerate(schema)]
        table.write(pa.table(columns, schema=schema), pa.array([kind for kind, _ in batch], pa.int8()))
        current = open_table(path)
        assert {r["k"]: tuple(r.values()) for r in current.to_arrow().to_pylist()} == state
        logged = current.to_batches(changes_since=seen).read_all().to_pylist()
        assert [(r["_row_kind"], (r["k"], r["g"], r["n"])) for r in logged] == expected
        seen = current.snapshots()["snapshot_id"][-1].as_py()
        if data.draw(st.booleans()):
            current.compact()
            seen = open_table(path).snapshots()["snapshot_id"][-1].as_py()


def _changes(old: _Row | None, new: _Row | None, engine: str) -> list[tuple[int, _Row]]:
    if old is None:
        return [] if new is None else [(0, new)]
    if engine == "first-row":
        return []
    return [(3, old)] if new is None else [(1, old), (2, new)]
