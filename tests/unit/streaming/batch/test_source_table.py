"""Records of a second table of the source are refused before anything is committed, also after a restart."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, Shards
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.spark.tasks import Cluster

Json = dict[str, Any]


def event(table: str, key: int, **more: object) -> Json:
    source = {"version": "3", "connector": "mysql", "db": "shop", "table": table}
    return {"before": None, "after": {"id": key, "name": table, **more}, "source": source, "op": "c"}


class Job:
    def __init__(
        self,
        root: Path,
        messages: MessageOptions,
        policy: str = "fail",
        columns: str = "id BIGINT NOT NULL, name STRING",
        key: tuple[str, ...] = ("id",),
    ) -> None:
        path = str(root / "shop.db" / "t")
        self.table = create_table(path, columns, key, options={"bucket": "1"})
        schema = handle_of(self.table).table_schema
        step = decode_step(RecordFormat.DEBEZIUM_JSON, schema, BadRecords(None, 0), messages)
        self.sink = TableSink(path, {"schema-evolution": policy}, decode=step)
        self.cluster = Cluster(random.Random(5), 2)
        self.number = 0

    def batch(self, *records: object) -> None:
        number = self.number
        values = pa.table({"value": pa.array([json.dumps(r).encode() for r in records], pa.binary())})
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        self.sink.write(self.cluster.frame(values, 2, batch_rows=2), identity)
        self.number += 1

    def rows(self) -> list[Json]:
        return sorted(open_table(self.table.path).to_arrow().to_pylist(), key=lambda r: (r["id"], r["name"]))


def test_a_second_table_in_one_batch_is_refused(tmp_path: Path) -> None:
    job = Job(tmp_path, MessageOptions())
    told = "2 tables of the source, shop.carts and shop.orders.*source-table.*shards"
    with pytest.raises(SchemaMismatchError, match=told):
        job.batch(event("orders", 1), event("orders", 2), event("carts", 1))
    assert job.rows() == []
    job.batch(event("orders", 1))
    assert job.rows() == [{"id": 1, "name": "orders"}]


def test_a_second_table_in_a_later_batch_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    job = Job(tmp_path, MessageOptions(), policy="evolve")
    job.batch(event("orders", 1))
    job.batch({"ts_ms": 5})
    for _ in range(2):
        with pytest.raises(SchemaMismatchError, match=r"shop\.carts and shop\.orders"):
            job.batch(event("carts", 1, size=5))
        forget_table(job.table.path, "query")
    assert job.rows() == [{"id": 1, "name": "orders"}]


def test_several_tables_are_taken_where_the_job_says_that_no_key_is_in_two(tmp_path: Path) -> None:
    job = Job(tmp_path, MessageOptions(shards=Shards.DISTINCT_KEYS))
    job.batch(event("orders_1", 1), event("orders_2", 2))
    job.batch(event("orders_3", 3))
    assert [row["name"] for row in job.rows()] == ["orders_1", "orders_2", "orders_3"]


def test_records_of_other_tables_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bucketline.progress")
    job = Job(tmp_path, MessageOptions(source_table="shop.orders"), policy="evolve")
    job.batch(event("orders", 1), event("carts", 1, size=5), event("carts", 2), {"ts_ms": 1})
    assert job.rows() == [{"id": 1, "name": "orders"}]
    report = caplog.records[-1].bucketline  # type: ignore[attr-defined]
    assert report.skipped_records == (("heartbeat", 1), ("record of another table", 2))
    assert "skipped 1 heartbeat, 2 records of another table" in report.line()
    assert "skipped" not in replace(report, skipped_records=()).line()


def test_a_key_that_names_the_table_takes_those_that_it_tells_apart(tmp_path: Path) -> None:
    columns = "id BIGINT NOT NULL, name STRING, _source_table STRING NOT NULL"
    job = Job(tmp_path, MessageOptions(), columns=columns, key=("id", "_source_table"))
    job.batch(event("orders", 1), event("carts", 1))
    assert [row["name"] for row in job.rows()] == ["carts", "orders"]
    forget_table(job.table.path, "query")
    archived = event("orders", 1)
    archived["source"]["db"] = "archive"
    with pytest.raises(SchemaMismatchError, match=r"archive\.orders and shop\.carts and shop\.orders"):
        job.batch(archived)
