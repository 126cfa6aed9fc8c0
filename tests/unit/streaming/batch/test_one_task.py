"""A batch that one task reads is written by the same task, unless much is to be compacted with it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.inputs.kafka_batch import stored_row_bytes
from bucketline.streaming.batch.plan import MOST_BYTES_IN_ONE_TASK, plan_batch
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges, KafkaReading, OffsetRange

ROWS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
ONE = ((OffsetRange("t", 0, 0, 10),),)
TWO = (*ONE, (OffsetRange("t", 1, 0, 10),))


def table_of(path: Path, runs: int, **options: str) -> Table:
    table = create_table(
        str(path / "shop.db" / "t"), ROWS, ("id",), options={"bucket": "2", "compaction": "none", **options}
    )
    for number in range(runs):
        table.write(pa.table({"id": range(20), "n": [number] * 20}).cast(ROWS))
    return table


def tasks_of(table: Table, shares: Any, most_bytes: int = MOST_BYTES_IN_ONE_TASK) -> int | None:
    step = decode_step(RecordFormat.JSON, handle_of(table).table_schema, BadRecords(None, 0))
    source = KafkaRanges(shares, KafkaReading({}, 1, True), ("value",), step)
    session = table_at(open_handle(table.path), {"compaction": "inline"}).refreshed()
    target, identity = Target(session, "q"), BatchIdentity("q", 1, None, None, None)
    return plan_batch(target, identity, source, Workers(2, 100), most_bytes).tasks.write


def test_one_task_writes_what_one_task_reads(tmp_path: Path) -> None:
    table = table_of(tmp_path, 0)
    assert (tasks_of(table, ONE), tasks_of(table, TWO)) == (1, 2)


def test_rows_of_a_table_without_buckets_are_written_by_the_tasks_that_read_them(tmp_path: Path) -> None:
    appended = create_table(str(tmp_path / "shop.db" / "a"), ROWS)
    bucketed = create_table(str(tmp_path / "shop.db" / "b"), ROWS, options={"bucket": "2", "bucket-key": "id"})
    assert (tasks_of(appended, TWO), tasks_of(bucketed, TWO)) == (None, 2)


@pytest.mark.parametrize(("runs", "expected"), [(1, 1), (3, 1), (4, 2)])
def test_compactions_of_large_files_are_shared_among_tasks(tmp_path: Path, runs: int, expected: int) -> None:
    assert tasks_of(table_of(tmp_path, runs), ONE, most_bytes=10) == expected


def test_what_a_row_takes_is_known_from_the_files(tmp_path: Path) -> None:
    empty, full = (
        table_at(open_handle(table_of(tmp_path / "a", 0).path), {}).refreshed(),
        table_at(open_handle(table_of(tmp_path / "b", 3).path), {}).refreshed(),
    )
    sizes = [f.stat().st_size for f in (tmp_path / "b").rglob("data-*")]
    assert stored_row_bytes(empty.view) == 0
    assert stored_row_bytes(full.view) == sum(sizes) // 60


def test_small_compactions_are_not(tmp_path: Path) -> None:
    assert tasks_of(table_of(tmp_path, 6), ONE) == 1
