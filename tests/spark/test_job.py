"""The job of a job file, from sources that need no Kafka: what it makes, what it refuses, how it ends."""

import json
import logging
import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_assignments, read_settings, resolve_job, resolve_jobs
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.state.errors import SchemaMismatchError, TableNotFoundError
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.bad_records.folder import Folder as BadFolder
from bucketline.streaming.bad_records.replays import Replayed
from bucketline.streaming.bad_records.stored import StoredInFolder
from bucketline.streaming.batch.failure import SparkFailedError
from bucketline.streaming.cli.commands import program
from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.job.ending import process_ending
from bucketline.streaming.job.gate import BatchGate
from bucketline.streaming.job.many.replay import replay_routed
from bucketline.streaming.job.many.run import run_routed
from bucketline.streaming.job.replay import replay_bad_records
from bucketline.streaming.job.run import run_job, set_aside

pytestmark = pytest.mark.spark

CREATE = (
    "create.schema=id BIGINT NOT NULL, name STRING, amount DECIMAL(12,2)",
    "create.primary-key=id",
    "create.options.bucket=2",
)


class Folder:
    """A job's folder: lines of text come in, each file one batch at most."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input = root / "input"
        self.input.mkdir()
        self.table = str(root / "shop.db" / "orders")

    def add(self, name: str, *records: object) -> None:
        lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
        (self.root / name).write_text("\n".join(lines) + "\n")
        (self.root / name).rename(self.input / name)

    def config(self, *settings: str) -> JobConfig:
        base = (
            f"table={self.table}",
            "source.format=text",
            f"source.options.path={self.input}",
            "source.options.maxFilesPerTrigger=1",
            "source.decode=json",
            f"checkpoint={self.root / 'checkpoint'}",
            "trigger=availableNow",
        )
        return resolve_job(read_assignments((*base, *settings)))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(r.values()) for r in open_table(self.table).to_arrow().to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_job_makes_its_table_and_goes_on_where_it_ended(spark: Any, folder: Folder) -> None:
    folder.add("0", {"id": 1, "name": "a", "amount": 1.10, "more": []}, {"id": 2, "name": "b", "amount": "2"})
    run_job(folder.config(*CREATE), spark)
    folder.add("1", {"id": 2, "name": "B"})
    run_job(folder.config(*CREATE), spark)

    assert [(i, n, str(a)) for i, n, a in folder.rows()] == [(1, "a", "1.10"), (2, "B", "None")]
    table = open_table(folder.table)
    assert (table.primary_key, table.options["bucket"]) == (("id",), "2")
    assert table.snapshots()["commit_identifier"].to_pylist() == [0, 1]


def test_debezium_events_change_the_table_as_the_source_changed(spark: Any, folder: Folder) -> None:
    def event(op: str, before: object, after: object) -> object:
        return {"op": op, "before": before, "after": after}

    first, second = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
    folder.add(
        "0",
        event("c", None, first),
        event("c", None, second),
        event("u", first, {"id": 1, "name": "A"}),
        event("d", second, None),
        event("u", {"id": 1, "name": "A"}, {"id": 9, "name": "moved"}),
    )
    run_job(folder.config(*CREATE, "source.decode=debezium-json"), spark)
    assert folder.rows() == [(9, "moved", None)]


def test_bad_records_stop_the_job_with_their_reason(spark: Any, folder: Folder) -> None:
    folder.add("0", {"id": 1}, {"id": "one"})
    with pytest.raises(RejectedRecordsError, match='field id: "one" is not a whole number'):
        run_job(folder.config(*CREATE), spark)
    assert folder.rows() == []


def test_bad_records_go_to_the_folder_up_to_the_limit(spark: Any, folder: Folder) -> None:
    settings = (*CREATE, f"bad-records.path={folder.root / 'rejects'}", "bad-records.max=2")
    folder.add("0", {"id": 1}, {"id": "one"}, "{", {"id": 2})
    run_job(folder.config(*settings), spark)

    assert [r[0] for r in folder.rows()] == [1, 2]
    kept = pa.concat_tables([pq.read_table(f) for f in (folder.root / "rejects").rglob("*.parquet")])
    assert sorted(kept["value"].to_pylist()) == [b"{", b'{"id": "one"}']

    folder.add("1", {"id": 3}, *["{"] * 3)
    with pytest.raises(RejectedRecordsError, match="has at least 3 bad records"):
        run_job(folder.config(*settings), spark)
    assert [r[0] for r in folder.rows()] == [1, 2]


def test_records_of_a_frame_are_decoded_with_their_kinds_and_bad_ones_beside_them(spark: Any) -> None:
    row = {"id": 1, "name": "a", "created": 86_400_000}
    events = [
        {"op": "c", "before": None, "after": row},
        {"op": "u", "before": row, "after": {**row, "name": "b"}},
        {"op": "x", "source": {"db": "shop", "table": "t"}},
        {"op": "d", "before": row, "after": None},
    ]
    frame = spark.createDataFrame([(json.dumps(e), "k") for e in events], "value string, key string").coalesce(1)
    columns, options = (
        "id BIGINT NOT NULL, name STRING, dt STRING",
        {
            "types.created": "epoch-millis",
            "select": "*, date_format(created, 'yyyy-MM-dd') AS dt",
        },
    )
    found = bl.decode(frame, "debezium-json", columns, ["id"], options=options, bad_records="keep").collect()
    assert [(r["id"], r["name"], r["dt"], r["_row_kind"]) for r in found] == [
        (1, "a", "1970-01-02", 0),
        (1, "b", "1970-01-02", 2),
        (1, "a", "1970-01-02", 3),
        (None, None, None, None),
    ]
    bad = found[3]["_bad_record"]
    assert [r["_bad_record"] for r in found[:3]] == [None] * 3
    assert (bad["code"], bad["source_table"], bytes(bad["key"])) == ("MESSAGE", "shop.t", b"k")
    plain = bl.decode(frame.limit(1), "json", "op STRING")
    assert [tuple(r) for r in plain.collect()] == [("c", 0)]
    with pytest.raises(Exception, match="a bad record: an event with op 'x'"):
        bl.decode(frame, "debezium-json", columns.replace(", dt STRING", ""), ["id"]).collect()
    with pytest.raises(OptionError, match="did you mean 'select'"):
        bl.decode(frame, "json", "op STRING", options={"selekt": "*"})


def test_files_that_spark_reads_itself_need_no_decode(spark: Any, folder: Folder) -> None:
    folder.add("0", {"id": 1, "name": "a", "amount": 1.5})
    run_job(folder.config(*CREATE, "source.format=json", "source.decode=none"), spark)
    assert [r[:2] for r in folder.rows()] == [(1, "a")]

    folder.add("1", {"id": 1, "_row_kind": 3})
    kinds = "source.options.schema=id BIGINT, name STRING, amount DECIMAL(12,2), _row_kind TINYINT"
    run_job(folder.config("source.format=json", "source.decode=none", kinds), spark)
    assert folder.rows() == []

    folder.add("2", '{"id": "x"}')
    with pytest.raises(SparkFailedError, match="CANNOT_PARSE_JSON_FIELD"):
        run_job(folder.config("source.format=json", "source.decode=none"), spark)


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ((), TableNotFoundError, "no section 'create'"),
        ((*CREATE, "bad-records.max=5"), OptionError, "the folder that stores them, is not set"),
        ((*CREATE, "source.format=kafak"), OptionError, "cannot open source.format = 'kafak'; did you mean 'kafka'"),
        ((*CREATE, "source.format=rate"), OptionError, "the source's column 'value' is of type LongType"),
        (("create.schema=id BIGINT", "source.decode=debezium-json"), OptionError, "without a primary key"),
        ((*CREATE[1:], "create.schema=id BIGINT, _kafka_offset STRING"), SchemaMismatchError, "_kafka_offset"),
        (
            (*CREATE, "create.options.rowkind.field=name", "source.decode=debezium-json"),
            OptionError,
            "rowkind.field",
        ),
    ],
)
def test_jobs_that_cannot_work_are_refused_before_anything_is_read(
    spark: Any, folder: Folder, settings: tuple[str, ...], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        run_job(folder.config(*settings), spark)
    assert not (folder.root / "checkpoint").exists()


def test_a_job_without_kafka_on_its_class_path_is_told_what_to_add(spark: Any, folder: Folder) -> None:
    create_table(folder.table, "id BIGINT")
    options = (
        "source.format=kafka",
        "source.options.kafka.bootstrap.servers=localhost:1",
        "source.options.subscribe=t",
    )
    if "kafka" in spark.conf.get("spark.jars", ""):
        pytest.skip("this session can read Kafka")
    with pytest.raises(OptionError, match=r"--packages org\.apache.spark:spark-sql-kafka"):
        run_job(folder.config(*options), spark)


def test_only_kafka_has_offsets_to_begin_again_from(spark: Any, folder: Folder) -> None:
    with pytest.raises(OptionError, match="--reset-identity needs Kafka offsets"):
        run_job(folder.config(*CREATE), spark, reset_identity=True)


def test_secrets_are_masked_in_the_log(spark: Any, folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bucketline"):
        run_job(folder.config(*CREATE, "source.options.kafka.sasl.jaas.config=hush"), spark)
    assert "source.options.kafka.sasl.jaas.config = ***" in caplog.text
    assert "hush" not in caplog.text


def test_sigterm_ends_the_job_after_its_batch(spark: Any, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3):
        folder.add(str(i), {"id": i})
    inside = threading.Event()
    through = BatchGate.__call__

    def told_to_end(gate: BatchGate, batch: Any, batch_id: int) -> None:
        if batch_id == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            inside.set()
        through(gate, batch, batch_id)

    monkeypatch.setattr(BatchGate, "__call__", told_to_end)
    before = signal.getsignal(signal.SIGTERM)
    run_job(folder.config(*CREATE, "trigger=0 s"), spark)

    assert inside.is_set()
    assert signal.getsignal(signal.SIGTERM) is before
    assert len(folder.rows()) in (1, 2)
    monkeypatch.undo()
    run_job(folder.config(*CREATE), spark)
    assert [r[0] for r in folder.rows()] == [0, 1, 2]
    assert open_table(folder.table).snapshots()["commit_identifier"].to_pylist() == [0, 1, 2]


def test_a_checkpoint_is_set_aside_under_a_free_name(spark: Any, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert set_aside(spark, str(checkpoint)) is None
    for number in (1, 2):
        checkpoint.mkdir()
        kept = set_aside(spark, f"{checkpoint}/")
        assert kept == f"{checkpoint}.before-reset-{number}"
        assert not checkpoint.exists() and Path(kept).is_dir()


def test_bad_records_are_replayed_each_once_and_shown_by_reason(spark: Any, folder: Folder) -> None:
    bad = str(folder.root / "ops.db" / "rejects")
    settings = (*CREATE, f"bad-records.table={bad}", "bad-records.max=9")
    folder.add("1.txt", {"id": 1, "name": "a"}, {"id": 2, "amount": "x"}, {"id": "y"}, {"name": "b"})
    run_job(folder.config(*settings), spark)
    assert [r[0] for r in folder.rows()] == [1]
    job = folder.root / "job.properties"
    job.write_text("\n".join(f"{key} = {s.text}" for key, s in folder.config(*settings).settings.items()))

    def counts() -> dict[tuple[str, str], tuple[int, int]]:
        done = CliRunner().invoke(program, ["bad-records", "--conf-file", str(job), "--format", "json"])
        assert done.exit_code == 0, done.output
        rows = map(json.loads, done.output.splitlines())
        return {(r["code"], r["about"]): (r["waiting"], r["replayed"]) for r in rows}

    assert counts() == {("VALUE", "amount"): (1, 0), ("VALUE", "id"): (1, 0), ("NULL", "id"): (1, 0)}
    mended = folder.config(*settings, "select=id, name, CAST(NULL AS DECIMAL(12, 2)) AS amount")
    found = replay_bad_records(mended, process_ending(), spark)
    assert (found.taken, found.still_bad, found.left) == (3, 2, 0)
    assert [r[0] for r in folder.rows()] == [1, 2]
    assert counts() == {("VALUE", "amount"): (0, 1), ("VALUE", "id"): (1, 1), ("NULL", "id"): (1, 1)}

    replayed = replay_bad_records(mended, process_ending(), spark)
    assert (replayed.taken, replayed.still_bad) == (2, 2)
    users = open_table(folder.table).snapshots()["commit_user"].to_pylist()
    assert len(set(users)) == 2 and users[-1].startswith("replay-")
    assert [r[0] for r in folder.rows()] == [1, 2]


def begun_at(folder: Folder) -> datetime:
    """When Spark began the first batch, out of its offsets log."""
    said = json.loads((folder.root / "checkpoint" / "offsets" / "0").read_text().splitlines()[1])
    return datetime.fromtimestamp(said["batchTimestampMs"] / 1000, UTC)


def test_current_timestamp_is_the_time_at_which_a_batch_was_begun_first(spark: Any, folder: Folder) -> None:
    folder.add("0", {"id": 1, "text": "x"})
    create = ("create.schema=id BIGINT NOT NULL, n BIGINT, seen TIMESTAMP_LTZ(3)", "create.primary-key=id")
    with pytest.raises(RejectedRecordsError):
        run_job(folder.config(*create, "select=id, CAST(text AS BIGINT) AS n, now() AS seen"), spark)
    begun = begun_at(folder)
    run_job(folder.config(*create, "select=id, length(text) AS n, now() AS seen"), spark)
    assert folder.rows() == [(1, 1, begun)] and begun_at(folder) == begun


def test_a_replay_that_has_died_before_its_commit_is_done_with_the_same_records(spark: Any, folder: Folder) -> None:
    bad = folder.root / "rejects"
    settings = (*CREATE, f"bad-records.path={bad}", "bad-records.max=9")
    folder.add("1.txt", {"id": 1}, {"id": 2, "amount": "x"})
    run_job(folder.config(*settings), spark)
    mended = folder.config(*settings, "select=id, name, CAST(NULL AS DECIMAL(12, 2)) AS amount")
    user = f"replay-{uuid5(NAMESPACE_URL, f'{bad} {open_table(folder.table).path}')}"
    stored = StoredInFolder(BadFolder(str(bad)))
    stored.claim(stored.rows(user), user, 0)
    assert replay_bad_records(mended, process_ending(), spark).taken == 1
    assert [r[0] for r in folder.rows()] == [1, 2]
    assert replay_bad_records(mended, process_ending(), spark).taken == 0


def test_bad_records_of_a_job_of_several_tables_go_through_its_routes_again(spark: Any, folder: Folder) -> None:
    def job(*routes: str, select: str) -> RoutedJob:
        text = f"""
source: {{format: text, options: {{path: "{folder.input}", maxFilesPerTrigger: "1"}}, decode: debezium-json}}
checkpoint: {folder.root}/checkpoint
trigger: availableNow
unmatched: bad-record
create: {{schema: "id BIGINT NOT NULL, n BIGINT, seen TIMESTAMP_LTZ(3)", primary-key: [id], options: {{bucket: "1"}}}}
select: "{select}, current_timestamp() AS seen"
bad-records: {{path: "{folder.root}/rejects", max: 2}}
tables: [{", ".join(f'{{source-table: {name}, table: "{folder.root}/w/{{table}}"}}' for name in routes)}]
"""
        (folder.root / "job.yaml").write_text(text)
        config = resolve_jobs(read_settings(text, name="job.yaml"))
        assert isinstance(config, RoutedJob)
        return config

    def event(database: str, table: str, text: str) -> dict[str, object]:
        source = {"db": database, "table": table}
        return {"before": None, "after": {"id": 1, "text": text}, "op": "c", "source": source}

    def counts() -> dict[str, tuple[int, int]]:
        done = CliRunner().invoke(
            program, ["bad-records", "--conf-file", f"{folder.root}/job.yaml", "--format", "json"]
        )
        assert done.exit_code == 0, done.output
        return {r["code"]: (r["waiting"], r["replayed"]) for r in map(json.loads, done.output.splitlines())}

    folder.add("0", event("shop", "a", "x"), event("shop", "b", "7"), event("away", "c", "8"))
    run_routed(job("'regex:shop[.].*'", select="id, CAST(text AS BIGINT) AS n"), spark)
    assert counts() == {"VALUE": (1, 0), "MESSAGE": (1, 0)}
    assert open_table(f"{folder.root}/w/b").to_arrow()["seen"].to_pylist() == [begun_at(folder)]
    mended = job("'regex:.*'", select="id, coalesce(try_cast(text AS BIGINT), 0) AS n")
    assert replay_routed(mended, process_ending(), spark) == Replayed(2, 0, 0)
    assert replay_routed(mended, process_ending(), spark) == Replayed(0, 0, 0)
    assert counts() == {"VALUE": (0, 1), "MESSAGE": (0, 1)}
    found = {name: open_table(f"{folder.root}/w/{name}").to_arrow(["id", "n"]).to_pylist() for name in "abc"}
    assert found == {name: [{"id": 1, "n": n}] for name, n in (("a", 0), ("b", 7), ("c", 8))}
