"""Row groups of Parquet files that a filter rules out are not read, and no row is lost or wrong for it."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bucketline.state.store.datafile.parquet_rows import RowGroup
from bucketline.state.store.read.row_groups import group_choice
from bucketline.state.store.table.table import Table, create_table, handle_of
from tests.support.models.filters import parse_filter
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import on_io

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), ("v", pa.int32()), ("s", pa.string()), ("d", pa.date32())]
)
SMALL = {"bucket": "1", "file.block-size": "64 kb", "target-file-size": "4 mb", "file.compression": "none"}
MODES = [
    {"write-only": "true"},
    {"deletion-vectors.enabled": "true", "compaction.small-file-ratio": "0.0"},
    {"merge-engine": "partial-update", "write-only": "true"},
    {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true", "write-only": "true"},
]


def _rows(keys: range, v: int) -> pa.Table:
    numbers = [v * 100 + k % 7 for k in keys]
    arrays = [pa.array(keys, pa.int64()), pa.array(numbers, pa.int32()), pa.array([f"{v}-{k:06}" for k in keys])]
    days = pa.array([k // 9 for k in keys], pa.int32()).cast(pa.date32())
    return pa.Table.from_arrays([*arrays, days], schema=SCHEMA)


def _table(tmp_path: Path, options: dict[str, str], keyed: bool = True) -> Table:
    given = {**SMALL, **options} if keyed else {**SMALL, "bucket": "-1"}
    table = create_table(str(tmp_path / "t"), SCHEMA, primary_key=["k"] if keyed else [], options=given)
    table.write(_rows(range(30_000), 1))
    table.write(_rows(range(10_000, 12_000), 2))
    table.write(_rows(range(11_500, 30_000, 7), 3))
    return table


@pytest.mark.parametrize("options", [*MODES, None], ids=str)
def test_filters_find_the_rows_that_a_whole_read_has(tmp_path: Path, options: dict[str, str] | None) -> None:
    table = _table(tmp_path, options or {}, keyed=options is not None)
    everything = table.to_arrow().sort_by([("k", "ascending"), ("s", "ascending")])
    groups = [pq.read_metadata(f).num_row_groups for f in Path(table.path).rglob("data-*.parquet")]
    assert max(groups) > 4
    chance = random.Random(3)
    # Rows that were replaced pass these; those that replaced them do not.
    conditions = ["v < 200", "s < '2' AND k > 9900", "v >= 200 AND v < 300"]
    for _ in range(10):
        low = chance.randrange(30_000)
        conditions += chance.sample(
            [
                f"k = {low}",
                f"k > {low} AND k < {low + 50}",
                f"k < {low // 100} OR v = {chance.randrange(100, 310)}",
                f"v >= {chance.randrange(100, 400)} AND k > {low}",
                f"s LIKE '2-{low:06}%'",
                f"s >= '2-{low:06}' AND s < '3'",
                f"d = DATE '{1970 + low // 9 // 366}-01-05'",
                f"NOT (k > {low})",
            ],
            1,
        )
    for condition in conditions:
        found = table.to_arrow(filter=condition).sort_by([("k", "ascending"), ("s", "ascending")])
        assert found == everything.filter(parse_filter(condition, handle_of(table).table_schema.fields)), condition


def test_row_groups_are_chosen_by_the_bounds_of_columns(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), SCHEMA, primary_key=["k"], options=SMALL)
    schema = handle_of(table).table_schema
    bounds: dict[str, list[tuple[object, object]]] = {
        "k": [(0, 9), (10, 19), (20, 29)],
        "v": [(5, 5), (None, None), (1, 3)],
        "s": [("a", "b"), ("b", "d"), ("x", "y")],
    }

    def groups(name: str) -> list[RowGroup]:
        return [RowGroup(n, n * 10, 10, low, high) for n, (low, high) in enumerate(bounds[name])]

    def chosen(condition: pc.Expression, *only: str) -> list[int] | None:
        choice = group_choice(schema, condition)
        assert choice is not None
        found = (choice.only(only) if only else choice).choose(schema, groups)
        return None if found is None else [g.number for g in found]

    assert chosen(pc.field("k") == 12) == [1]
    assert chosen((pc.field("k") == 12) & (pc.field("v") == 2)) == [1]
    assert chosen((pc.field("k") == 12) | (pc.field("v") == 2)) == [1, 2]
    assert chosen((pc.field("k") == 12) | (pc.field("v") == 2), "k") is None
    assert chosen(pc.field("v") == 5) == [0, 1]
    assert chosen(pc.field("v").is_null()) is None
    assert chosen(pc.field("s") == "c") == [1]
    assert chosen(pc.field("k") > 100) == []
    assert group_choice(schema, None) is None


def test_a_point_query_opens_only_files_that_may_hold_the_key(tmp_path: Path) -> None:
    options = {**SMALL, "bucket": "8", "target-file-size": "256 kb"}
    table = create_table(str(tmp_path / "t"), SCHEMA, primary_key=["k"], options=options)
    table.write(_rows(range(80_000), 1))
    table.compact()
    assert table.files().num_rows >= 16
    io = FaultyIO(handle_of(table).io)
    counted = on_io(table, io)
    for key in (0, 41_237, 79_999, 80_000):
        io.calls.clear()
        found = counted.to_arrow(filter=f"k = {key}")
        assert found["k"].to_pylist() == ([key] if key < 80_000 else [])
        opened = {path for name, path in io.calls if "/data-" in path}
        assert len(opened) == (1 if key < 80_000 else 0), opened
