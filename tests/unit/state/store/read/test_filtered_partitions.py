"""Reads of some of many partitions: the rows are those of a read of all partitions, and fewer manifests are opened."""

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.state.errors import StorageError
from bucketline.state.format.entry_starts import find_entry_starts
from bucketline.state.format.manifest_schema import ENTRY_FORMAT
from bucketline.state.format.metadata_records import avro_blocks
from bucketline.state.sql.compute.plan_condition import plan_condition
from bucketline.state.store.read.filtered_partitions import FilteredPartitions
from bucketline.state.store.read.projection import filtered
from bucketline.state.store.read.splits import plan_scan, read_split
from bucketline.state.store.read.table_read import ReadRequest, filter_condition
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.binary_row import decode_row, encode_row
from bucketline.state.types.columns_text import parse_columns
from tests.support.peers.golden import golden_table, golden_tables

_DAYS = [date(2024, 1, n) for n in range(1, 8)]
_COLUMNS: dict[str, tuple[str, list[object], list[str]]] = {
    "i": ("INT", [None, -5, 0, 7, 2**31 - 1], ["i = 7", "i > 0", "i IS NULL", "i IN (-5, 7)", "i <> 7", "NOT i < 7"]),
    "s": ("STRING", [None, "x", "a longer text", "é"], ["s = 'a longer text'", "s = 'x'", "s LIKE 'a%'", "s >= 'x'"]),
    "d": ("DATE", [None, *_DAYS], ["d = DATE '2024-01-03'", "d BETWEEN DATE '2024-01-02' AND DATE '2024-01-04'"]),
    "b": ("BOOLEAN", [None, True, False], ["b", "NOT b", "b IS NOT NULL"]),
    "c": ("CHAR(4)", ["x", "yyyy"], ["c = 'x   '", "c = 'x'", "c > 'x'"]),
    "f": ("DOUBLE", [None, 0.0, 1.5, float("nan")], ["f = 1.5", "f > 0", "f = 0.0"]),
    "m": ("DECIMAL(6, 2)", [Decimal("1.50"), Decimal("-2.00")], ["m = 1.5", "m < 0"]),
    "t": ("TIMESTAMP(3)", [datetime(2024, 1, 1), datetime(2024, 1, 2, 3)], ["t = TIMESTAMP '2024-01-01'"]),
}


def _table(path: Path, draw: random.Random, names: list[str], **options: str) -> Table:
    """A table with the named partition columns, from several commits: appended, deleted and replaced rows."""
    columns = ", ".join(f"{name} {_COLUMNS[name][0]}" for name in names)
    given = {"manifest.merge-min-count": "2", **options}
    table = create_table(str(path / "w.db" / "t"), f"k INT, {columns}", (), names, options=given)
    kinds = {field.name: field.type for field in table.schema}
    for number in range(3):
        values = {name: [draw.choice(_COLUMNS[name][1]) for _ in range(8)] for name in names}
        values["k"] = list(range(number * 8, number * 8 + 8))
        table.write(pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()}))
    table.delete(pc.field("k") < 10)
    return table


def _filtered(table: Table, every: pa.Table, condition: str) -> pa.Table:
    planned = filter_condition(condition, handle_of(table).table_schema)
    kept = [rows for batch in every.to_batches() for rows in filtered(batch, planned)]
    return pa.Table.from_batches(kept, schema=every.schema)


def _by_splits(table: Table, condition: str) -> pa.Table:
    """The rows as tasks of Spark read them."""
    scan = plan_scan(handle_of(table), ReadRequest(filter=condition))
    return pa.Table.from_batches((b for unit in scan.units for b in read_split(scan, unit)), schema=scan.out)


def _bag(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("seed", range(6))
def test_a_filter_on_partitions_finds_the_rows_that_it_finds_among_all_rows(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    names = draw.sample(sorted(_COLUMNS), 2 + seed % 2)
    table = _table(tmp_path, draw, names, **({"manifest.format": "parquet"} if seed == 5 else {}))
    every = table.to_arrow()
    single = [condition for name in names for condition in _COLUMNS[name][2]]
    pairs = [f"({a}) {word} ({b})" for word in ("AND", "OR") for a, b in [draw.sample(single, 2) for _ in range(3)]]
    whole = " AND ".join(f"({_COLUMNS[name][2][0]})" for name in names)
    found_some = 0
    for number, condition in enumerate(
        (*single, *pairs, whole, f"({single[0]}) AND k > 14", f"({single[0]}) OR k > 20", "k > 16")
    ):
        expected = _bag(_filtered(table, every, condition))
        found = table.to_arrow(filter=condition) if number % 2 else _by_splits(table, condition)
        assert _bag(found) == expected, condition
        found_some += 0 < len(expected) < every.num_rows
    assert found_some > 3


@pytest.mark.parametrize(
    ("text", "count"), [("i = 7", 3), ("i > 290 AND s = 'x'", 9), ("i IS NULL", 3), ("s IS NULL", 101), ("k = 1", 303)]
)
def test_partitions_are_tested_in_groups_with_the_outcome_of_each_by_itself(text: str, count: int) -> None:
    fields = parse_columns("i INT, s STRING, k INT")
    values = [(i, s) for i in (None, *range(200, 300)) for s in (None, "x", "a longer text")]
    values = [(7 if i == 222 else i, s) for i, s in values]
    random.Random(1).shuffle(values)
    partitions = [encode_row(row, [f.type for f in fields[:2]]) for row in values]
    expression = plan_condition(text, fields).expression
    assert expression is not None
    condition = FilteredPartitions(fields[:2], arrow_schema(fields), expression)
    passing = condition.passing(partitions)
    assert passing == {p for p in partitions if condition.passing([p])}
    assert len(passing) == count


@pytest.mark.parametrize("condition", ["p = 'b' AND q = 1", "p = 'b'", "p > 'a' AND k > 0", "q = 1"])
def test_manifests_without_a_partition_that_the_filter_asks_for_are_not_opened(condition: str, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "w.db" / "t"), "k INT, p STRING, q INT", (), ["p", "q"])
    folder = Path(table.path) / "manifest"
    manifests: list[Path] = []
    for k, (p, q) in enumerate([("a", 0), ("b", 1)], 1):
        table.write(pa.table({"k": pa.array([k], pa.int32()), "p": [p], "q": pa.array([q], pa.int32())}))
        manifests += [f for f in folder.glob("manifest-*") if "list" not in f.name and f not in manifests]
    manifests[0].unlink()
    assert table.to_arrow(filter=condition).to_pylist() == [{"k": 2, "p": "b", "q": 1}]
    with pytest.raises(StorageError, match=manifests[0].name):
        table.to_arrow(filter=f"{condition} OR k = 1")


def test_entries_of_merged_manifests_are_in_the_order_of_their_partitions(tmp_path: Path) -> None:
    options = {"manifest.merge-min-count": "2"}
    table = create_table(str(tmp_path / "w.db" / "t"), "k INT, p INT", (), ["p"], options=options)
    for parts in ([300, 1, 4], [2, None, 300], [1, 9]):
        table.write(pa.table({"k": pa.array([0] * len(parts), pa.int32()), "p": pa.array(parts, pa.int32())}))
    handle = handle_of(table)
    newest = handle.snapshot_store.latest()
    assert newest is not None
    merged = handle.manifests.base_and_delta(newest)[0]
    types = [f.type for f in handle.table_schema.select(["p"])]
    assert [decode_row(e.partition, types) for e in handle.manifests.read(merged)] == [
        (p,) for p in (None, 1, 2, 4, 300, 300)
    ]


def test_partitions_of_tables_that_paimon_wrote_are_found_without_decoding_all_entries() -> None:
    seen = 0
    for table in (open_table(str(golden_table(name))) for name in golden_tables()):
        handle = handle_of(table)
        newest = handle.snapshot_store.latest()
        if not table.partition_by or newest is None:
            continue
        types = [f.type for f in handle.table_schema.select(table.partition_by)]
        for manifest in handle.manifests.base_and_delta(newest):
            blocks = avro_blocks(Path(handle.manifests.path(manifest.file_name)).read_bytes(), ENTRY_FORMAT)
            assert blocks is not None and all(find_entry_starts(block, types) is not None for block in blocks)
        every, name = table.to_arrow(), table.partition_by[0]
        for value in every[name].unique():
            found = table.to_arrow(filter=pc.field(name) == value)
            assert _bag(found) == _bag(every.filter(pc.field(name) == value))
            seen += 1
    assert seen > 1
