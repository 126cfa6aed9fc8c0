"""Splits of a read: together they hold each row once, whatever their sizes, and they travel as values."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.state.store.read.change_splits import change_units, pack_changes, possible_units, read_change_split
from bucketline.state.store.read.splits import Scan, SplitSizes, TablePlace, pack, plan_scan, read_split
from bucketline.state.store.read.table_read import ReadRequest, plan_changes
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.peers.golden import golden_table, golden_tables

COLUMNS = "id BIGINT NOT NULL, dt STRING NOT NULL, name STRING, n INT"
SMALL = SplitSizes(target_bytes=1, open_cost_bytes=1)
LARGE = SplitSizes()
SHARED = SplitSizes(target_bytes=400, open_cost_bytes=1, least_share_bytes=100)
"""So small that files are shared by several splits."""


def rows(first: int, count: int = 40, text: str = "a") -> pa.Table:
    ids = list(range(first, first + count))
    values = {"id": ids, "dt": [f"d{i % 2}" for i in ids], "name": [f"{text}{i}" for i in ids]}
    return pa.table({**values, "n": pa.array([i % 7 for i in ids], pa.int32())})


def keyed(path: Path, **options: str) -> Table:
    given = {"bucket": "2", "num-sorted-run.compaction-trigger": "4", **options}
    found = create_table(str(path / "w/s.db/keyed"), COLUMNS, ["id", "dt"], ["dt"], options=given)
    for number in range(6):
        found.write(rows(number * 15, text=f"v{number}-"))
    changes = rows(3, 5).append_column("_row_kind", pa.array([3] * 5, pa.int8()))
    found.write(changes)
    return open_table(found.path)


def appended(path: Path) -> Table:
    found = create_table(str(path / "w/s.db/log"), COLUMNS, options={"bucket": "-1"})
    for number in range(4):
        found.write(rows(number * 40))
    return open_table(found.path)


def drained(scan: Scan, sizes: SplitSizes) -> pa.Table:
    plan = pickle.loads(pickle.dumps((scan.without_units(), pack(scan.units, sizes))))
    batches = [b for split in plan[1] for b in read_split(plan[0], split)]
    return sorted_rows(pa.Table.from_batches(batches, schema=scan.out))


def sorted_rows(found: pa.Table) -> pa.Table:
    return found.sort_by([(name, "ascending") for name in ("id", "dt") if name in found.column_names])


@pytest.mark.parametrize("sizes", [SMALL, LARGE, SHARED])
@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(),
        ReadRequest(columns=["name", "id", "dt"], filter="n > 3"),
        ReadRequest(filter=(pc.field("dt") == "d1") & (pc.field("id") < 30)),
        ReadRequest(version=3),
        ReadRequest(read_optimized=True),
        ReadRequest(columns=["dt"]),
    ],
)
def test_the_splits_hold_what_the_table_holds(tmp_path: Path, request_: ReadRequest, sizes: SplitSizes) -> None:
    for table in (keyed(tmp_path), appended(tmp_path)):
        whole = table.to_arrow(request_.columns, request_.filter, request_.version, request_.read_optimized)
        found = drained(plan_scan(handle_of(table), request_), sizes)
        assert found.equals(sorted_rows(whole))


@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, {"bucket": "-2"}, {"bucket": "-1"}])
def test_the_splits_of_other_tables_hold_what_the_table_holds(tmp_path: Path, options: dict[str, str]) -> None:
    table = keyed(tmp_path, **options)
    if options.get("bucket") == "-2":
        table.compact()
        table.write(rows(500))
        table = open_table(table.path, options={"postpone.merge-on-read": "true"})
    for sizes in (SMALL, SHARED):
        assert drained(plan_scan(handle_of(table), ReadRequest()), sizes).equals(sorted_rows(table.to_arrow()))
    assert table.to_arrow().num_rows > 100


def test_the_splits_of_each_golden_table_hold_what_it_holds() -> None:
    names = golden_tables()
    for name in names:
        table = open_table(str(golden_table(name)))
        scan = plan_scan(handle_of(table), ReadRequest())
        for sizes in (SMALL, LARGE, SHARED):
            batches = [b for split in pack(scan.units, sizes) for b in read_split(scan, split)]
            found = [repr(row) for b in batches for row in b.to_pylist()]
            assert sorted(found) == sorted(map(repr, table.to_arrow().to_pylist())), name
    assert len(names) > 10


def test_files_that_are_merged_together_stay_together_and_others_are_split(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    live = table.files().num_rows
    assert 4 <= len(pack(plan_scan(handle_of(table), ReadRequest()).units, SMALL)) < live
    table.compact()
    assert len(pack(plan_scan(handle_of(table), ReadRequest()).units, SMALL)) == 4
    assert len(pack(plan_scan(handle_of(appended(tmp_path)), ReadRequest()).units, SMALL)) == 4


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}])
def test_splits_share_a_large_file_by_its_row_groups(tmp_path: Path, options: dict[str, str]) -> None:
    given = {"bucket": "1", "file.block-size": "4 kb", **options}
    table = create_table(str(tmp_path / "w/s.db/t"), "id BIGINT NOT NULL, name STRING", ["id"], options=given)
    names = pa.table({"id": range(20_000), "name": [f"name {i}" for i in range(20_000)]})
    table.write(names)
    table.compact()
    if options:
        table.delete("id % 3 = 0")
    scan = plan_scan(handle_of(open_table(table.path)), ReadRequest())
    splits = pack(scan.units, SplitSizes(open_cost_bytes=1, least_share_bytes=1))
    # No file reaches the target size, but 16 splits are wanted.
    assert [(s.share.number, s.share.count) for s in splits if s.share] == [
        (n, len(splits)) for n in range(len(splits))
    ]
    assert len(splits) in (16, 17)
    parts = [sum(b.num_rows for b in read_split(scan, split)) for split in splits]
    assert sum(parts) == len(table.to_arrow()) and max(parts) < sum(parts) / 8
    sizes = SplitSizes(open_cost_bytes=1, least_share_bytes=1)
    assert drained(scan, sizes).equals(sorted_rows(table.to_arrow()))
    few = plan_scan(handle_of(open_table(table.path)), ReadRequest(columns=["id"], filter="id BETWEEN 4990 AND 10010"))
    found = drained(few, sizes)["id"].to_pylist()
    assert found == [i for i in range(4990, 10011) if not options or i % 3]
    assert len(pack(scan.units, LARGE)) == 1


def test_a_filter_on_the_partition_and_the_bucket_key_leaves_one_file(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.compact()
    scan = plan_scan(handle_of(table), ReadRequest(filter="id = 17 AND dt = 'd1'"))
    assert [len(unit.files) for unit in scan.units] == [1]


def test_small_files_share_splits_up_to_the_target_size(tmp_path: Path) -> None:
    units = plan_scan(handle_of(appended(tmp_path)), ReadRequest()).units
    size = max(f.file_size for unit in units for f in unit.files)
    assert [len(s.files) for s in pack(units, SplitSizes(size, 1))] == [1, 1, 1, 1]
    # A file counts its cost at least, and 16 splits are wanted if there are as many files.
    assert [len(s.files) for s in pack(units, SplitSizes(10 * size, 10 * size))] == [1, 1, 1, 1]
    assert [len(s.files) for s in pack(units[:1] * 32, SplitSizes(10 * size, 1))] == [2] * 16


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_the_splits_of_changes_hold_each_change_in_the_order_of_its_bucket(tmp_path: Path, sizes: SplitSizes) -> None:
    table = keyed(tmp_path, **{"changelog-producer": "input"})
    plan = plan_changes(handle_of(table), ReadRequest(), 2)
    units = [unit for snapshot in plan.snapshots for unit in change_units(handle_of(table), snapshot)]
    splits = pickle.loads(pickle.dumps(pack_changes(handle_of(table).table_schema, units, sizes)))
    found: list[tuple[int, str, int, int]] = []
    for split in splits:
        for unit, batch in read_change_split(TablePlace.of(handle_of(table)), plan.projection, split):
            columns = batch.to_pydict()
            found_rows = zip(columns["id"], columns["name"], batch[-1].to_pylist(), strict=True)
            found += [(*row, unit.snapshot_id) for row in found_rows]
    whole = table.to_arrow(changes_since=2).to_pylist()
    expected = [(r["id"], r["name"], r["_row_kind"]) for r in whole]
    assert sorted(f[:3] for f in found) == sorted(expected)
    for key in {f[0] for f in found}:
        assert [f[:3] for f in found if f[0] == key] == [e for e in expected if e[0] == key]
        versions = [f[3] for f in found if f[0] == key]
        assert versions == sorted(versions)
    assert {f[3] for f in found} <= set(table.snapshots()["snapshot_id"].to_pylist()[2:])


def test_a_filter_leaves_out_change_files_that_hold_no_such_row(tmp_path: Path) -> None:
    table = appended(tmp_path)
    plan = plan_changes(handle_of(table), ReadRequest(filter="id >= 120"), 0)
    units = [unit for snapshot in plan.snapshots for unit in change_units(handle_of(table), snapshot)]
    assert len(units) == 4
    assert [u.snapshot_id for u in possible_units(handle_of(table), units, plan.projection)] == [4]
