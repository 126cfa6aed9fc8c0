"""Postpone tables: rows stay in the postpone bucket until a compaction moves them, in order, with their kinds."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.engine.engine import Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import Workers, WriteScope
from bucketline.streaming.tasks.placement import Destination
from tests.support.tables.worlds import handle_in

COLUMNS = pa.schema([
    pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("v", pa.int64()),
])  # fmt: skip
WAITING = {"postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "2"}


def postponed(path: Path, **options: str) -> Table:
    chosen = {"bucket": "-2", **WAITING, **options}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("day", "id"), ("day",), chosen)


def rows(*triples: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, t, strict=True)) for t in triples], schema=COLUMNS)


def content(table: Table) -> dict[tuple[str, int], int]:
    return {(r["day"], r["id"]): r["v"] for r in table.to_arrow().to_pylist()}


def test_rows_wait_until_compaction_and_then_one_compact_snapshot_shows_them(tmp_path: Path) -> None:
    table = postponed(tmp_path)
    table.write(rows((1, "a", 10), (2, "a", 20), (3, "b", 30)))
    assert content(table) == {}
    waiting = list(Path(table.path).glob("day=*/bucket-postpone/data-*-u-*-s-*-w-*-0.avro"))
    assert len(waiting) == 2
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and (newest.total_record_count, newest.delta_record_count) == (3, 3)
    assert table.compact() == 2
    assert content(table) == {("a", 1): 10, ("a", 2): 20, ("b", 3): 30}
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and newest.commit_kind.value == "COMPACT"
    assert (newest.total_record_count, newest.delta_record_count) == (3, 0)
    assert table.compact() is None
    live = {e.total_buckets for e in handle_of(table).manifests.live_entries(newest)}
    assert live == {2}


def test_what_takes_the_place_of_partitions_is_written_by_a_task_for_each_partition(tmp_path: Path) -> None:
    table = postponed(tmp_path)
    session = table_at(handle_of(table), {}).refreshed()
    source = Parts([GivenRows(iter([rows(*((n, f"d{n % 50}", n) for n in range(200)))]))])
    scope = WriteScope(CompactTrigger.FULL, "", Workers(4, 100))
    stages = session.plan.mode.replacing(session.plan).stages(session.plan, session, scope, source)
    assert stages.tasks.write == 4
    to = Destination(4)
    keys = [(run.partition, to.task(run.partition, run.bucket)) for run in source.parts[0].runs(stages.seal)]
    assert len(keys) == len({partition for partition, _ in keys}) == 50
    assert {task for _, task in keys} == {0, 1, 2, 3}


def test_deletes_updates_and_their_order_survive_the_wait(tmp_path: Path) -> None:
    table = postponed(tmp_path)
    table.write(rows((1, "a", 1), (2, "a", 2), (3, "a", 3)))
    table.compact()
    table.write(rows((1, "a", 11), (2, "a", 2)), pa.array([2, 3], pa.int8()))
    table.write(rows((1, "a", 12), (3, "a", 3), (3, "a", 33)), pa.array([2, 3, 0], pa.int8()))
    assert content(table) == {("a", 1): 1, ("a", 2): 2, ("a", 3): 3}
    table.compact("minor")
    assert content(table) == {("a", 1): 12, ("a", 3): 33}


@dataclass(frozen=True)
class BackwardClock:
    """A machine's clock after the end of summer time, or that of a machine which is slow."""

    ms: int

    def now_ms(self) -> int:
        return self.ms

    def local_ms(self) -> int:
        return self.ms


def test_the_newest_rows_win_although_the_clock_went_back(tmp_path: Path) -> None:
    table = postponed(tmp_path)
    for value, ms in enumerate((7_200_000, 3_600_000, 3_600_001, 7_200_000)):
        write_table(handle_in(table, clock=BackwardClock(ms)), rows((1, "a", value)))
    table.compact()
    assert content(table) == {("a", 1): 3}


def test_compacts_only_the_partitions_asked_for(tmp_path: Path) -> None:
    table = postponed(tmp_path)
    table.write(rows((1, "a", 1), (1, "b", 2)))
    assert table.compact(partitions=[{"day": "b"}]) == 2
    assert content(table) == {("b", 1): 2}
    assert len(list(Path(table.path).glob("day=a/bucket-postpone/*.avro"))) == 1
    table.compact()
    assert content(table) == {("a", 1): 1, ("b", 1): 2}


def test_batch_writes_go_to_real_buckets_by_default(tmp_path: Path) -> None:
    table = postponed(tmp_path, **{"postpone.batch-write-fixed-bucket": "true"})
    table.write(rows((1, "a", 1), (2, "a", 2)))
    assert content(table) == {("a", 1): 1, ("a", 2): 2}
    assert {f["bucket"] for f in table.files().to_pylist()} == {0}


@pytest.mark.parametrize("pieces", [1, 8])
def test_the_bucket_count_of_a_batch_write_follows_the_bytes_of_its_rows(tmp_path: Path, pieces: int) -> None:
    table = postponed(
        tmp_path, **{"postpone.batch-write-fixed-bucket": "true", "postpone.target-size-per-bucket": "8 kb"}
    )
    given = rows(*((n, "a", n) for n in range(2000)))
    table.write(pa.RecordBatchReader.from_batches(COLUMNS, given.to_batches(2000 // pieces)))
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    assert {e.total_buckets for e in handle_of(table).manifests.live_entries(newest)} == {-(-given.nbytes // 8192)}


def test_rows_that_were_spilled_are_counted_for_buckets_and_written(tmp_path: Path) -> None:
    table = postponed(
        tmp_path, **{"postpone.batch-write-fixed-bucket": "true", "postpone.target-size-per-bucket": "1 mb"}
    )
    given = pa.table({"id": range(100_000), "day": ["a"] * 100_000, "v": range(100_000)}).cast(COLUMNS)
    write_table(handle_of(table), given, options={"merge-memory": "1 mb", "local-directory": str(tmp_path)})
    assert {f["bucket"] for f in table.files().to_pylist()} == set(range(-(-given.nbytes // (1 << 20))))
    assert table.to_arrow().sort_by("id").equals(given)


def test_the_bucket_count_follows_the_rows_that_wait(tmp_path: Path) -> None:
    table = postponed(tmp_path, **{"postpone.target-row-num-per-bucket": "10"})
    table.write(rows(*((i, "a", i) for i in range(35))))
    table.compact()
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and {e.total_buckets for e in handle_of(table).manifests.live_entries(newest)} == {4}
    assert len(content(table)) == 35


def test_a_full_compaction_rewrites_buckets_without_new_files_as_well(tmp_path: Path) -> None:
    table = postponed(tmp_path, **{"num-sorted-run.compaction-trigger": "2", "postpone.default-bucket-num": "1"})
    table.write(rows(*((i, "a", i) for i in range(3000))))
    table.compact()
    for number in range(2):
        table.write(rows((number, "a", -1)))
        table.compact("minor")
    assert sorted(f["level"] for f in table.files().to_pylist()) == [1, 2]
    assert table.compact("minor") is None
    table.compact("full")
    assert [f["level"] for f in table.files().to_pylist()] == [2]
    assert len(content(table)) == 3000 and table.compact("full") is None


def test_a_batch_write_makes_room_for_the_rows_that_wait(tmp_path: Path) -> None:
    """Source: Paimon 2.0 PostponeUtils: rows of the batch and those postponed ask for buckets together."""
    table = postponed(tmp_path, **{"postpone.target-row-num-per-bucket": "3"})
    table.write(rows(*((i, "a", i) for i in range(10))))
    write_table(
        handle_of(table),
        rows((20, "a", 1), (21, "a", 1), (1, "b", 1)),
        options={"postpone.batch-write-fixed-bucket": "true"},
    )
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    counts = {e.total_buckets for e in handle_of(table).manifests.live_entries(newest) if e.bucket >= 0}
    assert counts == {4, 1}
    table.compact()
    assert len(content(table)) == 13


def test_rows_that_wait_are_no_changes_and_a_compaction_makes_them_changes_only_where_it_logs_them(
    tmp_path: Path,
) -> None:
    for producer in ("none", "input"):
        table = postponed(tmp_path / producer, **{"changelog-producer": producer})
        table.write(rows((1, "a", 10), (2, "b", 20)))
        assert table.to_arrow(changes_since=0).num_rows == 0
        assert table.compact() == 2
        logged = table.to_arrow(columns=["id", "v"], changes_since=0).to_pylist()
        expected = [{"id": 1, "v": 10, "_row_kind": 0}, {"id": 2, "v": 20, "_row_kind": 0}]
        assert logged == (expected if producer == "input" else [])
    direct = postponed(tmp_path / "direct", **{"postpone.batch-write-fixed-bucket": "true"})
    direct.write(rows((1, "a", 10)))
    assert direct.to_arrow(changes_since=0).num_rows == 1, "rows that go to their buckets at once are changes"
