"""The map side by itself: what a task tells of bad rows is bounded, however many there are."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.table.table import create_table
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.plan import plan_batch
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.decode.rejects import rejected_rows
from bucketline.streaming.tasks.read_task import Frame, ReadPlan, ReadTask
from bucketline.streaming.tasks.spark_engine import read_destination
from bucketline.streaming.tasks.wire import REJECTS

COLUMNS = pa.schema([pa.field("id", pa.int64()), ("n", pa.int32())])


def planned(path: Path, decode: object = None, **options: str) -> ReadTask:
    table = create_table(
        str(path / "shop.db" / "t"),
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())]),
        primary_key=("id",),
        options={"bucket": "2"},
    )
    session = table_at(open_handle(table.path), options).refreshed()
    identity = BatchIdentity("q", 0, None, "[]", "d")
    stages = plan_batch(Target(session, "q"), identity, Frame(None, decode), Workers(2, 100))  # type: ignore[arg-type]
    source = stages.source
    return ReadTask(ReadPlan(stages.seal, read_destination(stages), source.decode, source.reject_limit))


class EveryRecordIsBad:
    def __call__(self, records: pa.Table) -> DecodedRows:
        bad = rejected_rows(records, pa.chunked_array([["bad"] * records.num_rows]), 1 << 31)
        return DecodedRows(records.slice(0, 0), bad)


@pytest.mark.parametrize("decode", [None, EveryRecordIsBad()])
def test_what_a_task_tells_of_bad_rows_is_bounded_over_all_its_record_batches(tmp_path: Path, decode: object) -> None:
    task = planned(tmp_path, decode, **{"bad-records.max": "5", "bad-records.path": str(tmp_path / "bad")})
    batches = (
        pa.record_batch([pa.nulls(800, pa.int64()), pa.nulls(800, pa.int32())], schema=COLUMNS) for _ in range(9)
    )
    told = [routed.run.row_count for routed in task(batches) if routed.kind == REJECTS]
    assert 5 < sum(told) <= 5 + 1000 + 800


def test_any_number_of_bad_rows_may_be_allowed(tmp_path: Path) -> None:
    task = planned(tmp_path, **{"bad-records.max": "unlimited", "bad-records.path": str(tmp_path / "bad")})
    rows = pa.record_batch([pa.array([1, None]), pa.array([1, 2], pa.int32())], schema=COLUMNS)
    assert sorted(routed.kind for routed in task(iter([rows]))) == ["rejects", "runs"]
