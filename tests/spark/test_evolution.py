"""Columns that change while a stream runs: by policy, once, on the driver."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.run import run_job
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])


def test_new_and_wider_columns_by_policy(spark: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    stream = FileStream(tmp_path, "id long, n int")
    stream.add(pa.table({"id": [1], "n": pa.array([1], pa.int32())}))
    stream.run(spark, TableSink(table.path))
    stream.ddl = "id long, n long, note string"
    stream.add(pa.table({"id": [2], "n": [2**40], "note": ["new"]}))
    with pytest.raises(Exception, match="column 'note' of the input is not in the table"):
        stream.run(spark, TableSink(table.path))
    stream.run(spark, TableSink(table.path, {"schema-evolution": "evolve"}))
    evolved = open_table(table.path)
    assert handle_of(evolved).table_schema.id == 1
    assert sorted(evolved.to_arrow().to_pylist(), key=lambda r: r["id"]) == [
        {"id": 1, "n": 1, "note": None},
        {"id": 2, "n": 2**40, "note": "new"},
    ]
    stream.ddl = "id long, n long, other string"
    stream.add(pa.table({"id": [3], "n": [3], "other": ["left out"]}))
    stream.run(spark, TableSink(table.path, {"schema-evolution": "ignore"}))
    assert handle_of(open_table(table.path)).table_schema.id == 1
    assert open_table(table.path).to_arrow().num_rows == 3


class Jobs:
    """How many Spark jobs each batch of a job took: one is one action."""

    def __init__(self, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_batch: list[int] = []
        tracker, through = spark.sparkContext.statusTracker(), TableSink.__call__

        def counted(sink: TableSink, batch: Any, batch_id: int) -> None:
            group = batch.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
            before = set(tracker.getJobIdsForGroup(group))
            through(sink, batch, batch_id)
            self.by_batch.append(len(set(tracker.getJobIdsForGroup(group)) - before))

        monkeypatch.setattr(TableSink, "__call__", counted)


def test_a_batch_of_records_is_one_action_and_two_where_the_table_grows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = tmp_path / "input", str(tmp_path / "shop.db" / "t")
    folder.mkdir()
    batches: list[list[dict[str, object]]] = [
        [{"id": 1, "n": 1}],
        [{"id": 2, "n": 2**40, "note": "new", "at": {"x": 1}}, {"id": 3}],
        [{"id": 4, "n": 4, "note": "known", "at": None}],
    ]
    for number, records in enumerate(batches):
        (folder / str(number)).write_text("\n".join(map(json.dumps, records)))
        os.utime(folder / str(number), (1_700_000_000 + number, 1_700_000_000 + number))
    settings = (
        f"table={table}",
        "source.format=text",
        f"source.options.path={folder}",
        "source.options.maxFilesPerTrigger=1",
        "source.decode=json",
        f"checkpoint={tmp_path / 'checkpoint'}",
        "trigger=availableNow",
        "create.schema=id BIGINT NOT NULL, n INT",
        "create.primary-key=id",
        "create.options.bucket=2",
        "options.schema-evolution=evolve",
    )
    jobs = Jobs(spark, monkeypatch)
    run_job(resolve_job(read_assignments(settings)), spark)

    assert jobs.by_batch == [1, 2, 1]
    assert handle_of(open_table(table)).table_schema.id == 1
    assert sorted(open_table(table).to_arrow().to_pylist(), key=lambda r: r["id"]) == [
        {"id": 1, "n": 1, "note": None, "at": None},
        {"id": 2, "n": 2**40, "note": "new", "at": {"x": 1}},
        {"id": 3, "n": None, "note": None, "at": None},
        {"id": 4, "n": 4, "note": "known", "at": None},
    ]


def test_records_follow_what_another_writer_changes_without_a_restart(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    step = decode_step(RecordFormat.JSON, handle_of(table).table_schema, BadRecords(None, 0))
    stream = FileStream(tmp_path, "value string")
    for number in range(2):
        stream.add(pa.table({"value": [json.dumps({"id": number, "n": number, "note": "x"})]}))
    through = TableSink.__call__

    def altered_between(sink: TableSink, batch: Any, batch_id: int) -> None:
        if batch_id == 1:
            open_table(table.path).add_column("note", "STRING")
        through(sink, batch, batch_id)

    monkeypatch.setattr(TableSink, "__call__", altered_between)
    stream.run(spark, TableSink(table.path, decode=step))
    assert sorted(open_table(table.path).to_arrow().to_pylist(), key=lambda r: r["id"]) == [
        {"id": 0, "n": 0, "note": None},
        {"id": 1, "n": 1, "note": "x"},
    ]
