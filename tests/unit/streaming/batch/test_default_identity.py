"""Postgres' default replica identity: a table whose key is the source's follows rows that move between partitions."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.spark.tasks import Cluster

Json = dict[str, Any]


def event(op: str, before: Json | None, after: Json | None) -> Json:
    return {"before": before, "after": after, "source": {"db": "p", "schema": "public", "table": "t"}, "op": op}


class Job:
    def __init__(self, root: Path, key: tuple[str, ...], bucket: str) -> None:
        path, columns = str(root / "shop.db" / "t"), "id BIGINT NOT NULL, dt STRING NOT NULL, v INT"
        self.table = create_table(path, columns, key, partition_by=("dt",), options={"bucket": bucket})
        step = decode_step(RecordFormat.DEBEZIUM_JSON, handle_of(self.table).table_schema, BadRecords(None, 0))
        self.sink, self.cluster, self.number = TableSink(path, {}, decode=step), Cluster(random.Random(5), 2), 0

    def batch(self, key: int, record: Json) -> None:
        number, self.number = self.number, self.number + 1
        values = {"key": [json.dumps({"id": key}).encode()], "value": [json.dumps(record).encode()]}
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        self.sink.write(self.cluster.frame(pa.table(values), 1, batch_rows=2), identity)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in open_table(self.table.path).to_arrow().to_pylist())


def test_a_cross_partition_table_follows_updates_and_deletes_that_do_not_tell_the_partition(tmp_path: Path) -> None:
    job = Job(tmp_path, ("id",), "-1")
    for key in (1, 2):
        job.batch(key, event("c", None, {"id": key, "dt": "d1", "v": 1}))
    job.batch(1, event("u", None, {"id": 1, "dt": "d2", "v": 2}))
    assert job.rows() == [(1, "d2", 2), (2, "d1", 1)]
    job.batch(2, event("d", {"id": 2, "dt": None, "v": None}, None))
    assert job.rows() == [(1, "d2", 2)]


@pytest.mark.parametrize("key", [("id", "dt"), ("id",)])
def test_a_table_that_keeps_a_row_for_each_partition_refuses_both(tmp_path: Path, key: tuple[str, ...]) -> None:
    job = Job(tmp_path, key, "1")
    job.batch(1, event("c", None, {"id": 1, "dt": "d1", "v": 1}))
    for record in (
        event("u", None, {"id": 1, "dt": "d2", "v": 2}),
        event("d", {"id": 1, "dt": None, "v": None}, None),
    ):
        with pytest.raises(RejectedRecordsError, match="set REPLICA IDENTITY FULL"):
            job.batch(1, record)
        job.number -= 1
    job.batch(1, event("u", {"id": 1, "dt": "d1", "v": 1}, {"id": 1, "dt": "d2", "v": 2}))
    assert job.rows() == [(1, "d2", 2)]
