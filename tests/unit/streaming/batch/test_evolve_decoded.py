"""A table that follows the fields of decoded records: over the sink, with tasks in this process."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch import write_batch
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])


class Job:
    """A job that decodes JSON, batch by batch; it counts its actions."""

    def __init__(
        self,
        root: Path,
        decode: RecordFormat = RecordFormat.JSON,
        policy: str = "evolve",
        by: tuple[str, ...] = (),
        **options: str,
    ) -> None:
        self.table = create_table(
            str(root / "shop.db" / "t"), COLUMNS, ("id",), partition_by=by, options={"bucket": "1", **options}
        )
        step = decode_step(decode, handle_of(self.table).table_schema, BadRecords(None, 0))
        self.sink = TableSink(self.table.path, {"schema-evolution": policy, "write-parallelism": "2"}, decode=step)
        self.cluster = Cluster(random.Random(5), 2, unrest=0.3)
        self.number = 0

    def batch(self, *records: object) -> None:
        number, self.number = self.number, self.number + 1
        values = pa.table({"value": pa.array([json.dumps(r).encode() for r in records], pa.binary())})
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        self.sink.write(self.cluster.frame(values, 3, batch_rows=2), identity)

    def now(self) -> Table:
        return open_table(self.table.path)

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.now().to_arrow().to_pylist(), key=lambda r: r["id"])


def types(table: Table) -> dict[str, str]:
    return {f.name: str(f.type) for f in handle_of(table).table_schema.fields}


@pytest.mark.parametrize(
    "options", [{}, {"bucket": "-1"}, {"bucket": "-2"}, {"merge-engine": "partial-update"}], ids=str
)
def test_what_all_tasks_saw_makes_one_new_schema_and_one_more_action(tmp_path: Path, options: dict[str, str]) -> None:
    job = Job(tmp_path, **options)
    job.batch({"id": 1, "n": 1}, {"id": 2, "n": 2})
    assert job.cluster.actions == 1
    job.batch(*[{"id": i, "n": 2**40, f"c{i % 4}": i, "all_null": None} for i in range(8)])
    assert job.cluster.actions == 3
    job.batch({"id": 9, "n": 9, "c0": 9})
    assert job.cluster.actions == 4
    now = job.now()
    assert handle_of(now).table_schema.id == 1
    assert types(now) == {"id": "BIGINT NOT NULL", "n": "BIGINT", **dict.fromkeys(("c0", "c1", "c2", "c3"), "BIGINT")}
    if options.get("bucket") != "-2":  # postponed rows cannot be read yet
        assert {r["id"]: r["c1"] for r in job.rows()} == {**dict.fromkeys(range(8)), 1: 1, 5: 5, 9: None}
        assert {r["id"]: r["n"] for r in job.rows()} == {**dict.fromkeys(range(8), 2**40), 9: 9}


def test_keys_that_changed_their_partition_in_the_first_run_do_so_once(tmp_path: Path) -> None:
    job = Job(tmp_path, by=("n",), bucket="-1")
    job.batch(*[{"id": i, "n": 1} for i in range(9)])
    job.batch(*[{"id": i, "n": 2} for i in range(9)], {"id": 9, "n": 2, "new": "x"})
    assert job.cluster.actions == 3
    assert [(r["id"], r["n"], r["new"]) for r in job.rows()] == [*((i, 2, None) for i in range(9)), (9, 2, "x")]


def test_files_of_the_first_run_are_not_left_behind(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.cluster.unrest = 0.0
    job.batch(*[{"id": i, "n": i} for i in range(20)], {"id": 20, "new": 1})
    assert job.cluster.actions == 2
    on_disk = {p.name for p in Path(job.table.path).rglob("data-*")}
    assert on_disk == {Path(f).name for f in job.now().files()["file_path"].to_pylist()}


@pytest.mark.parametrize("policy", ["ignore", "fail"])
def test_other_policies_pass_over_unknown_fields_and_refuse_wide_values(tmp_path: Path, policy: str) -> None:
    job = Job(tmp_path, policy=policy)
    job.batch({"id": 1, "n": 1, "new": 5})
    assert job.rows() == [{"id": 1, "n": 1}]
    with pytest.raises(RejectedRecordsError):
        job.batch({"id": 1, "n": 2**40})
    assert job.cluster.actions == 2


@pytest.mark.parametrize("policy", ["evolve", "ignore", "fail"])
def test_what_another_writer_changes_is_followed_without_a_restart(tmp_path: Path, policy: str) -> None:
    job = Job(tmp_path, policy=policy)
    job.batch({"id": 1, "n": 1, **({} if policy == "evolve" else {"note": "lost"})})
    job.now().add_column("note", "STRING")
    job.now().rename_column("n", "m")
    job.batch({"id": 2, "m": 2, "note": "kept"})
    assert job.rows() == [{"id": 1, "m": 1, "note": None}, {"id": 2, "m": 2, "note": "kept"}]
    assert job.cluster.actions == 2
    job.now().add_column("_kafka_timestamp", "TIMESTAMP(3)")
    with pytest.raises(SchemaMismatchError, match=r"'timestamp' of each record.*start the job again"):
        job.batch({"id": 3})


def test_two_writers_that_add_the_same_column_end_with_one(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.batch({"id": 1})

    def add_column() -> None:
        job.cluster.after_action = lambda: None
        job.now().add_column("new", "BIGINT")

    job.cluster.after_action = add_column
    job.batch({"id": 2, "new": 5})
    assert handle_of(job.now()).table_schema.id == 1
    assert job.rows()[1] == {"id": 2, "n": None, "new": 5}


def test_a_second_need_in_one_batch_is_an_error_that_names_the_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path)
    job.batch({"id": 1})
    monkeypatch.setattr(write_batch, "grow_table", lambda at, outcome: at)
    with pytest.raises(SchemaMismatchError, match="new BIGINT") as told:
        job.batch({"id": 2, "new": 5}, {"id": 3})
    assert told.value.fields["column"] == "new"
    assert len(job.rows()) == 1


def test_a_table_that_cannot_change_so_stops_the_job_with_the_reason(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with pytest.raises(OptionError, match="_KEY_x"):
        job.batch({"id": 1, "_KEY_x": 5})
    assert handle_of(job.now()).table_schema.id == 0


def test_debezium_events_grow_the_table(tmp_path: Path) -> None:
    job = Job(tmp_path, RecordFormat.DEBEZIUM_JSON)
    job.batch(
        {"op": "c", "before": None, "after": {"id": 1, "n": 1}, "source": {"db": "x"}},
        {"op": "u", "before": {"id": 2, "n": 1}, "after": {"id": 2, "n": 2, "price": 1.5}, "ts_ms": 5},
    )
    assert job.rows() == [{"id": 1, "n": 1, "price": None}, {"id": 2, "n": 2, "price": 1.5}]
    assert job.cluster.actions == 2
