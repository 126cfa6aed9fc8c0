"""`truncate: apply`: a truncate of the source's table empties the table, in the snapshot with the rows behind it."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, Shards, Truncate, Unavailable
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch import write_batch
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.spark.tasks import Cluster

Json = dict[str, Any]
COLUMNS = "id BIGINT NOT NULL, n INT, note STRING"
SOURCE = {"version": "3", "connector": "postgresql", "db": "p", "schema": "s", "table": "t"}
TRUNCATED: Json = {"before": None, "after": None, "op": "t", "source": SOURCE}


class Job:
    """A stream out of a topic with one partition, or more, three tasks to a batch."""

    def __init__(
        self,
        root: Path,
        options: dict[str, str] | None = None,
        *,
        partition_by: tuple[str, ...] = (),
        key: tuple[str, ...] = ("id",),
        columns: str = COLUMNS,
        decode: RecordFormat = RecordFormat.DEBEZIUM_JSON,
        own: dict[str, str] | None = None,
        topics: dict[str, int] | None = None,
        **messages: Any,
    ) -> None:
        self.path, self.bad = str(root / "shop.db" / "t"), root / "bad"
        table = create_table(self.path, columns, key, partition_by, options or {"bucket": "2"})
        said = MessageOptions(truncate=Truncate.APPLY, **messages)
        step = decode_step(decode, handle_of(table).table_schema, BadRecords(str(self.bad), 5), said)
        settings = {"bad-records.path": str(self.bad), "bad-records.max": "5", **(own or {})}
        self.sink, self.cluster = TableSink(self.path, settings, decode=step), Cluster(random.Random(5), 3)
        self.topics, self.sent, self.batches = topics or {"t": 1}, 0, list[tuple[pa.Table, BatchIdentity]]()

    def batch(self, *records: object) -> None:
        rows = {
            "key": [json.dumps({"id": 0, "n": 0}).encode() for _ in records],
            "value": [json.dumps(r).encode() for r in records],
            "topic": ["t"] * len(records),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(self.sent, self.sent + len(records)), pa.int64()),
        }
        before, self.sent = self.offsets(), self.sent + len(records)
        number = len(self.batches)
        self.batches.append(
            (pa.table(rows), BatchIdentity("query", number, before, self.offsets(), f"digest {number}"))
        )
        self.repeat()

    def repeat(self, number: int = -1) -> None:
        records, identity = self.batches[number]
        self.sink.write(self.cluster.frame(records, 2, batch_rows=2), identity)

    def offsets(self) -> str:
        return json.dumps([{topic: {str(p): self.sent for p in range(n)} for topic, n in self.topics.items()}])

    def rows(self) -> dict[int, Json]:
        return {row.pop("id"): row for row in open_table(self.path).to_arrow().to_pylist()}

    def kinds(self) -> list[str]:
        return open_table(self.path).snapshots()["commit_kind"].to_pylist()  # type: ignore[no-any-return]


def put(key: int, n: int = 0, note: str | None = None, op: str = "c") -> Json:
    return {"before": None, "after": {"id": key, "n": n, "note": note}, "op": op, "source": SOURCE}


def row(n: int = 0, note: str | None = None) -> Json:
    return {"n": n, "note": note}


TABLES: dict[str, tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]] = {
    "fixed": ({"bucket": "2"}, (), ("id",)),
    "partitioned": ({"bucket": "2"}, ("n",), ("id", "n")),
    "dynamic": ({"bucket": "-1", "dynamic-bucket.target-row-num": "2"}, (), ("id",)),
    "postponed": ({"bucket": "-2"}, (), ("id",)),
    "vectors": ({"bucket": "1", "deletion-vectors.enabled": "true"}, (), ("id",)),
    "partial": ({"bucket": "2", "merge-engine": "partial-update", "ignore-delete": "true"}, (), ("id",)),
}


@pytest.mark.parametrize("kind", TABLES)
def test_rows_before_the_last_truncate_go_and_those_behind_it_stay(tmp_path: Path, kind: str) -> None:
    options, partition_by, key = TABLES[kind]
    job = Job(tmp_path, options, partition_by=partition_by, key=key)
    job.batch(*(put(i, n=i % 3) for i in range(6)))
    job.batch(
        put(7), TRUNCATED, put(1, note="between"), TRUNCATED, put(2, note="new"), put(3), put(3, note="newer", op="u")
    )
    assert job.kinds()[-1] == "OVERWRITE"
    expected = {2: row(note="new"), 3: row(note="newer")}
    assert kind == "postponed" or job.rows() == expected
    job.batch(put(9), put(2, note="newest", op="u"))
    open_table(job.path).compact()
    assert job.rows() == {**expected, 2: row(note="newest"), 9: row()}


@pytest.mark.parametrize("at", ["first", "last"])
def test_a_truncate_alone_leaves_an_empty_table(tmp_path: Path, at: str) -> None:
    job = Job(tmp_path)
    if at == "last":
        job.batch(put(1))
    job.batch(TRUNCATED)
    assert job.rows() == {}
    job.batch(put(2))
    assert job.rows() == {2: row()}


def test_a_replayed_batch_is_recognised(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch(put(1))
    job.batch(put(2), TRUNCATED, put(3))
    snapshots = job.kinds()
    for again in range(2):
        if again:
            forget_table(job.path, "query")
        job.repeat()
        assert job.kinds() == snapshots
    assert job.rows() == {3: row()}


def test_a_batch_that_dies_before_its_commit_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path)
    job.batch(put(1))
    with monkeypatch.context() as patched:
        patched.setattr(write_batch, "commit_batch", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.batch(put(2), TRUNCATED, put(3))
    assert job.rows() == {1: row()}
    job.repeat()
    assert job.rows() == {3: row()}


def test_bad_records_before_and_behind_it_are_kept_once(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch(put(1, n="no number"), TRUNCATED, put(2, n="none either"), put(3))  # type: ignore[arg-type]
    assert job.rows() == {3: row()}
    bad = pq.read_table(next(job.bad.rglob("*.parquet")))
    assert bad["offset"].to_pylist() == [0, 2]


def test_new_columns_of_the_same_batch_are_added(tmp_path: Path) -> None:
    job = Job(tmp_path, own={"schema-evolution": "evolve"})
    job.batch(put(1))
    extra = put(2)
    extra["after"]["size"] = 5
    job.batch(TRUNCATED, extra)
    assert job.rows() == {2: {**row(), "size": 5}}


def test_a_value_that_is_left_out_is_not_taken_from_a_row_that_has_gone(tmp_path: Path) -> None:
    job = Job(tmp_path, unavailable=Unavailable.KEEP)
    job.batch(put(1, note="old"), put(2, note="old"))
    left_out = "__debezium_unavailable_value"
    job.batch(TRUNCATED, put(1, note="new"), put(1, 5, left_out, "u"), put(2, 5, left_out, "u"))
    assert job.rows() == {1: row(5, "new")}
    assert pq.read_table(next(job.bad.rglob("*.parquet"))).num_rows == 1


def test_canals_truncates_are_applied_too(tmp_path: Path) -> None:
    job = Job(tmp_path, decode=RecordFormat.CANAL_JSON)
    named = {"database": "shop", "table": "t", "isDdl": False}
    job.batch({**named, "type": "INSERT", "data": [{"id": "1"}, {"id": "2"}]})
    job.batch(
        {**named, "type": "TRUNCATE", "isDdl": True, "sql": "truncate t", "data": None},
        {**named, "type": "INSERT", "data": [{"id": "3"}]},
    )
    assert job.rows() == {3: {"n": None, "note": None}}


def test_what_another_writer_has_added_meanwhile_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path)
    job.batch(put(1))
    commit = write_batch.commit_batch

    def late(*given: Any, **more: Any) -> Any:
        open_table(job.path).write(pa.table({"id": [8], "n": pa.array([0], pa.int32()), "note": ["theirs"]}))
        return commit(*given, **more)

    monkeypatch.setattr(write_batch, "commit_batch", late)
    job.batch(TRUNCATED, put(3))
    assert job.rows() == {3: row()}


@pytest.mark.parametrize(
    ("topics", "told"), [({"t": 2}, "2 partitions"), ({"t": 1, "u": 1}, "2 partitions"), ({}, "does not read Kafka")]
)
def test_without_one_partition_nothing_is_written(tmp_path: Path, topics: dict[str, int], told: str) -> None:
    job = Job(tmp_path)
    job.topics = topics
    with pytest.raises(OptionError, match=f"truncate = apply needs one topic with one partition, but .*{told}"):
        job.batch(put(1))
    assert job.kinds() == []


@pytest.mark.parametrize(
    ("options", "more", "told"),
    [
        ({"bucket": "1", "changelog-producer": "lookup"}, {}, "changelog-producer = lookup"),
        ({"bucket": "1", "changelog-producer": "input"}, {}, "changelog-producer = input"),
        ({"bucket": "-1"}, {"partition_by": ("n",)}, "cross-partition"),
        ({"bucket": "1"}, {"shards": Shards.DISTINCT_KEYS}, "several source tables"),
        (
            {"bucket": "1"},
            {"columns": f"{COLUMNS}, _source_table STRING NOT NULL", "key": ("id", "_source_table")},
            "its key has _source_table",
        ),
    ],
)
def test_tables_that_cannot_be_emptied_refuse_it_at_the_start(
    tmp_path: Path, options: dict[str, str], more: dict[str, Any], told: str
) -> None:
    with pytest.raises(OptionError, match=f"truncate = apply removes all rows .*{told}"):
        Job(tmp_path, options, **more)
