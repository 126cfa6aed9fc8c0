"""Rescale: the same rows in another number of buckets, one OVERWRITE snapshot, other partitions as they were."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CommitConflictError, UnsupportedTableError
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.cycle import carry_out
from bucketline.state.store.table.rescale import plan_rescale, rescale_table, rescaled
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.spark.tasks import killed_at
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.interleaved import stopped_at
from tests.support.storage.watched_access import on_io

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False),
                     ("v", pa.int64())])  # fmt: skip


def fixed(path: Path, bucket: str = "2", **options: str) -> Table:
    chosen = {"bucket": bucket, **options}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("day", "id"), ("day",), chosen)


def rows(day: str, numbers: range, plus: int = 0) -> pa.Table:
    return pa.table({"id": list(numbers), "day": [day] * len(numbers), "v": [n + plus for n in numbers]},
                    schema=COLUMNS)  # fmt: skip


def content(table: Table) -> list[tuple[str, int, int]]:
    return sorted((r["day"], r["id"], r["v"]) for r in table.to_arrow().to_pylist())


def test_the_whole_table_keeps_its_rows_and_writes_go_on_with_the_new_count(tmp_path: Path) -> None:
    table = fixed(tmp_path)
    table.write(rows("a", range(50)))
    table.write(rows("b", range(20)))
    table.write(rows("a", range(10), plus=100))
    table.write(rows("b", range(5)), pa.array([3] * 5, pa.int8()))
    before = content(table)
    snapshot = table.rescale(3)
    table = open_table(table.path)
    assert content(table) == before
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and newest.id == snapshot and newest.commit_kind.value == "OVERWRITE"
    assert newest.total_record_count == len(before)
    assert {e.total_buckets for e in handle_of(table).manifests.live_entries(newest)} == {3}
    assert {f["level"] for f in table.files().to_pylist()} == {5}
    assert table.options["bucket"] == "3"
    table.write(rows("a", range(5), plus=7))
    assert len(content(table)) == len(before)
    assert table.rescale(3) is None


def test_one_partition_leaves_the_others_alone_and_is_refused_to_writers_of_another_count(tmp_path: Path) -> None:
    table = fixed(tmp_path)
    table.write(rows("a", range(30)))
    table.write(rows("b", range(30)))
    names = {f["file_path"] for f in table.files().to_pylist() if "day=b" in f["file_path"]}
    assert table.rescale(1, partitions=[{"day": "a"}]) == 3
    after = table.files().to_pylist()
    assert {f["file_path"] for f in after if "day=b" in f["file_path"]} == names
    assert len([f for f in after if "day=a" in f["file_path"]]) == 1
    table.write(rows("b", range(3), plus=1))
    with pytest.raises(OptionError, match="new bucket num 2, but the previous bucket num is 1"):
        table.write(rows("a", range(3)))


def test_a_change_of_the_partition_meanwhile_is_a_conflict_and_loses_nothing(tmp_path: Path) -> None:
    table = fixed(tmp_path)
    table.write(rows("a", range(30)))
    at, stages = plan_rescale(handle_of(table), 4, None)
    open_table(table.path).write(rows("a", range(40, 45)))
    with pytest.raises(CommitConflictError, match="changed a partition"):
        carry_out(at, LOCAL_ENGINE, partial(rescaled, at, LOCAL_ENGINE, stages))
    assert len(content(table)) == 35


def test_what_cannot_be_rescaled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="dynamic"):
        fixed(tmp_path, "-1").rescale(3)
    with pytest.raises(OptionError, match="0 is not a number of buckets"):
        fixed(tmp_path / "other").rescale(0)


def test_a_table_without_a_primary_key_keeps_equal_rows_their_order_and_its_deletes(tmp_path: Path) -> None:
    options = {"bucket": "2", "bucket-key": "id", "deletion-vectors.enabled": "true"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, (), ("day",), options)
    for number in range(3):
        table.write(rows("a", range(20), plus=number))
    table.write(rows("b", range(5)))
    table.delete("id = 7 AND v = 8")
    before = content(table)
    assert table.rescale(5) is not None
    table = open_table(table.path)
    assert content(table) == before and len(before) == 64 and table.options["bucket"] == "5"
    assert {f["bucket"] for f in table.files().to_pylist()} == set(range(5))
    assert table.to_arrow(columns=["v"], filter="id = 9 AND day = 'a'")["v"].to_pylist() == [9, 10, 11]
    table.rescale(1, [{"day": "b"}])
    table.write(rows("a", range(3)))
    table = open_table(table.path)
    assert len(content(table)) == 67 and table.doctor(rows=True) == []


def test_a_partition_with_two_bucket_counts_keeps_the_rows_of_both(tmp_path: Path) -> None:
    """Paimon lets a writer with another 'bucket' add buckets beside those that are there."""
    table, other = fixed(tmp_path), fixed(tmp_path / "other", "4")
    table.write(rows("a", range(30)))
    other.write(rows("a", range(100, 140)))
    ours, theirs = handle_of(table).snapshot_store.latest(), handle_of(other).snapshot_store.latest()
    assert ours is not None and theirs is not None
    beside = [e for e in handle_of(other).manifests.live_entries(theirs) if e.bucket >= 2]
    for entry in beside:
        folder = f"day=a/bucket-{entry.bucket}"
        shutil.copytree(Path(other.path, folder), Path(table.path, folder))
    name, size = handle_of(table).manifests.write_list(
        handle_of(table).manifests.write([*handle_of(table).manifests.live_entries(ours), *beside], 0)
    )
    mixed = replace(ours, delta_manifest_list=name, delta_manifest_list_size=size)
    handle_of(table).io.overwrite(handle_of(table).snapshot_store.path(ours.id), encode_snapshot(mixed))
    before = content(table)
    assert len(before) > 30
    table.rescale(4)
    assert content(open_table(table.path)) == before


def test_a_rescale_that_lost_leaves_no_files_behind(tmp_path: Path) -> None:
    table = fixed(tmp_path)
    table.write(rows("a", range(30)))

    others = [lambda: open_table(table.path).write(rows("a", range(40, 45)))]

    def write_meanwhile(name: str, path: str) -> None:
        """All data files are written by then."""
        if name == "write_new" and others:
            others.pop()()

    with pytest.raises(CommitConflictError, match="changed a partition"):
        rescale_table(handle_of(on_io(table, FaultyIO(handle_of(table).io, before_call=write_meanwhile))), 4)
    live = {Path(f["file_path"]).name for f in table.files().to_pylist()}
    assert {p.name for p in Path(table.path).rglob("data-*")} == live


@pytest.mark.parametrize("key", [("day", "id"), ()], ids=["primary key", "no primary key"])
def test_a_rescale_that_was_cut_short_is_finished_by_the_same_rescale_and_writers_are_told_so(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    """Wherever it dies: the table takes rows, or says that `rescale(4)` is to be repeated; then it takes them."""
    told = 0
    for at in count(1):
        path = str(tmp_path / str(at) / "shop.db" / "t")
        options = {"bucket": "2"} if key else {"bucket": "2", "bucket-key": "id"}
        table = create_table(path, COLUMNS, key, ("day",), options)
        table.write(rows("a", range(30)))
        with killed_at(at) as death:
            table.rescale(4)
        if not death.is_dead:
            break
        table = open_table(table.path)
        try:
            table.write(rows("a", range(3), plus=1))
        except OptionError as e:
            told += 1
            assert "If a rescale to 4 was interrupted, run the same `rescale(4)` again" in e.message
            assert open_table(table.path).rescale(4) is None
        open_table(table.path).rescale(4)
        table = open_table(table.path)
        assert table.options["bucket"] == "4"
        table.write(rows("a", range(3), plus=2))
        assert len({i for _, i, _ in content(table)}) == 30 and table.doctor(rows=True) == []
    assert told > 0


def _publication(path: Path, write: Callable[[Table], object]) -> int:
    """The call by which a write to a new table of one bucket publishes its snapshot."""
    table = fixed(path, "1")
    table.write(rows("a", range(5)))
    with stopped_at(None) as counted:
        write(open_table(table.path))
    return next(n for n, call in enumerate(counted.log, 1) if call.startswith("publish ") and "/snapshot-" in call)


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.overwrite(rows("a", range(3)), partition={"day": "a"}),
        lambda t: t.write(rows("b", range(3))),
    ],
    ids=["overwrite", "a new partition"],
)
def test_what_was_planned_before_a_rescale_does_not_bring_the_old_number_of_buckets_back(
    tmp_path: Path, write: Callable[[Table], object]
) -> None:
    """Seed 700097 of the simulation: afterwards every write to the partition was refused."""
    at = _publication(tmp_path / "counted", write)
    table = fixed(tmp_path, "1")
    table.write(rows("a", range(5)))
    with (
        stopped_at(at, lambda: open_table(table.path).rescale(2)),
        pytest.raises(CommitConflictError, match="the table got 2 buckets meanwhile"),
    ):
        write(open_table(table.path))
    write(open_table(table.path))
    open_table(table.path).write(rows("a", range(9)))
    open_table(table.path).write(rows("b", range(9)))


def test_a_write_between_the_commit_of_a_rescale_and_its_change_of_the_schema_is_rescaled_too(tmp_path: Path) -> None:
    def rescale(path: Path) -> Table:
        table = fixed(path, "1")
        table.write(rows("a", range(5)))
        return table

    table = rescale(tmp_path / "counted")
    with stopped_at(None) as counted:
        table.rescale(2)
    at = next(n for n, call in enumerate(counted.log, 1) if call.startswith("publish ") and "/schema-1" in call)
    table = rescale(tmp_path)
    with stopped_at(at, lambda: open_table(table.path).write(rows("b", range(3)))):
        table.rescale(2)
    assert len(content(open_table(table.path))) == 8
    open_table(table.path).write(rows("b", range(9)))
    assert open_table(table.path).doctor(rows=True) == []


def test_a_partition_that_a_writer_begins_while_a_rescale_works_is_rescaled_too(tmp_path: Path) -> None:
    """Seed 862 of the simulation: afterwards no compaction of the partition could be committed."""
    table = fixed(tmp_path / "counted", "1")
    table.write(rows("a", range(5)))
    with stopped_at(None) as counted:
        table.rescale(2)
    at = next(n for n, call in enumerate(counted.log, 1) if call.startswith("open_output "))
    table = fixed(tmp_path, "1")
    table.write(rows("a", range(5)))
    with stopped_at(at, lambda: open_table(table.path).write(rows("b", range(3)))):
        table.rescale(2)
    assert len(content(open_table(table.path))) == 8
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    assert {e.total_buckets for e in handle_of(table).manifests.live_entries(newest)} == {2}
