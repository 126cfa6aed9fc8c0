"""Jobs of many tables whose routes, tables or files change between batches: what goes on, and what stops."""

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_settings, resolve_jobs
from bucketline.conf.routes.one_route import as_routed
from bucketline.state.errors import SchemaMismatchError, TableNotFoundError
from bucketline.state.store.table.maintenance import roll_back_table
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.decode.rejects import RejectedRecordsError
from bucketline.streaming.job.many.run import keeps_ledger
from bucketline.streaming.many.ledger import Ledger
from bucketline.streaming.many.ledger_files import Wish, ledger_files
from tests.support.spark.many_shop import Shop
from tests.support.spark.tasks import killed_at

CREATE = 'create: {schema: "id BIGINT NOT NULL, v STRING, n BIGINT", primary-key: [id], options: {bucket: "1"}}\n'
ALL = CREATE + 'tables: [{source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}]\n'


def row(key: int, text: str = "a") -> dict[str, Any]:
    return {"id": key, "v": text, "n": key}


def only(*names: str) -> str:
    """Routes of these tables alone; others are skipped."""
    routes = ", ".join(f"{{source-table: shop.{name}, table: ROOT/w/{name}}}" for name in names)
    return f"{CREATE}unmatched: skip\ntables: [{routes}]\n"


def test_records_that_no_route_takes_stop_the_job_unless_it_says_otherwise(tmp_path: Path) -> None:
    job = Shop(tmp_path, CREATE + "tables: [{source-table: shop.a, table: ROOT/w/a}]")
    job.topic.change("a", row(1))
    job.topic.change("b", row(1))
    with pytest.raises(SchemaMismatchError, match=r"1 record of shop\.b .*no route"):
        job.batch()
    job.text += "\nexclude: [shop.b]"
    job.crash()
    job.batch()
    assert job.rows("a") == [row(1)]


def test_tombstones_and_heartbeats_belong_to_no_table_and_what_is_broken_is_a_bad_record(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    job.topic.change("a", row(1))
    job.topic.put({"id": 1}, None)
    job.topic.put(None, {"ts_ms": 1})
    job.batch()
    job.topic.put(None, b"{broken")
    job.topic.put(None, {"op": "c", "before": None, "after": row(2), "source": {}})
    with pytest.raises(RejectedRecordsError, match="2 bad records"):
        job.batch()
    job.text = ALL + f"bad-records: {{path: {tmp_path}/bad, max: 5}}\n"
    job.crash()
    job.batch()
    assert job.rows("a") == [row(1)]
    assert len(list((tmp_path / "bad").rglob("*.parquet"))) == 1


def test_records_that_no_route_takes_are_bad_records_where_the_job_says_so(tmp_path: Path) -> None:
    text = CREATE + "unmatched: bad-record\ntables: [{source-table: shop.a, table: ROOT/w/a}]\n"
    job = Shop(tmp_path, text)
    job.topic.change("a", row(1))
    job.topic.change("b", row(2))
    with pytest.raises(RejectedRecordsError, match=r"1 bad record.*no route takes shop\.b"):
        job.batch()
    job.text = text + f"bad-records: {{path: {tmp_path}/bad, max: 5}}\n"
    job.crash()
    job.batch()
    assert job.rows("a") == [row(1)]
    (bad,) = (tmp_path / "bad").rglob("*.parquet")
    found = pq.read_table(bad).to_pylist()
    assert [(r["reason"], json.loads(r["value"])["after"]) for r in found] == [
        ("no route takes shop.b (topic shop)", row(2))
    ]


def test_a_topic_goes_to_a_table_whatever_its_messages_name(tmp_path: Path) -> None:
    text = CREATE + 'tables: [{topic: "regex:sh(.*)", shards: distinct-keys, table: "ROOT/w/of_{1}"}]\n'
    job = Shop(tmp_path, text)
    for number in (1, 2):
        job.topic.change("a", row(10 * number))
        job.topic.change("b", row(10 * number + 1))
        job.topic.put({"id": 10 * number}, None)
        job.batch()
    assert job.rows("of_op") == [row(10), row(11), row(20), row(21)]
    assert list(job.appends("of_op")) == [0, 1]


def test_a_route_that_is_taken_out_and_put_back_stops_where_records_are_missing(tmp_path: Path) -> None:
    job = Shop(tmp_path, only("a", "b"))
    job.topic.change("a", row(1))
    job.topic.change("b", row(1))
    job.batch()
    job.crash()
    job.text = only("a")
    job.topic.change("a", row(2))
    job.topic.change("b", row(2))
    job.batch()
    assert job.rows("b") == [row(1)]
    job.crash()
    job.text = only("a", "b")
    job.topic.change("b", row(3))
    with pytest.raises(CheckpointMismatchError, match="route of the table was removed from the job and added again"):
        job.batch()


def test_a_route_that_is_put_back_before_records_were_missed_goes_on(tmp_path: Path) -> None:
    job = Shop(tmp_path, only("a", "b"))
    job.topic.change("a", row(1))
    job.topic.change("b", row(1))
    job.batch()
    job.text = only("a")
    job.crash()
    job.batch()
    job.text = only("a", "b")
    job.crash()
    job.batch()
    job.topic.change("b", row(3))
    job.batch()
    assert job.rows("b") == [row(1), row(3)]


def test_a_table_that_is_gone_or_made_anew_stops_the_job(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    job.topic.change("a", row(1))
    job.batch()
    job.crash()
    (tmp_path / "w/a").rename(tmp_path / "aside")
    job.topic.change("a", row(2))
    with pytest.raises(TableNotFoundError, match="--forget"):
        job.batch()
    job.crash()
    create_table(str(tmp_path / "w/a"), "id BIGINT NOT NULL, v STRING, n BIGINT", ("id",), options={"bucket": "1"})
    with pytest.raises(CheckpointMismatchError, match="dropped and created again"):
        job.batch()


@pytest.mark.parametrize("writes", [None, 0, 2])
def test_a_table_that_is_moved_away_or_made_anew_under_a_running_job_is_let_go_of(
    tmp_path: Path, writes: int | None
) -> None:
    job = Shop(tmp_path, ALL)
    for key in (1, 2):
        job.topic.change("a", row(key))
        job.batch()
    (tmp_path / "w/a").rename(tmp_path / "aside")
    if writes is not None:
        anew = create_table(
            str(tmp_path / "w/a"), "id BIGINT NOT NULL, v STRING, n BIGINT", ("id",), options={"bucket": "1"}
        )
        for key in range(writes):
            anew.write(pa.table({"id": [100 + key], "v": ["z"], "n": [0]}))
    job.topic.change("a", row(3))
    state = "is gone" if writes is None else "was dropped and created again"
    with pytest.raises(CheckpointMismatchError, match=f"{state}.*--forget"):
        job.batch()
    job.crash()
    job.ask(Wish.FORGET, "a")
    job.batch()
    assert job.rows("a")[0] == row(3)


def test_a_table_that_was_rolled_back_stops_the_job(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    for key in (1, 2):
        job.topic.change("a", row(key))
        job.topic.change("b", row(key))
        job.batch()
    roll_back_table(handle_of(open_table(str(tmp_path / "w/a"))), 1)
    job.crash()
    job.topic.change("a", row(3))
    with pytest.raises(CheckpointMismatchError):
        job.batch()


def test_without_its_ledger_a_checkpoint_past_batch_0_stops(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    for key in (1, 2):
        job.topic.change("a", row(key))
        job.batch()
    job.crash()
    for file in (tmp_path / "checkpoint/bucketline/ledger").iterdir():
        file.unlink()
    job.topic.change("a", row(3))
    with pytest.raises(CheckpointMismatchError, match="ledger"):
        job.batch()
    assert job.rows("a") == [row(1), row(2)]


def test_a_checkpoint_that_was_rewound_stops(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    for key in (1, 2, 3):
        job.topic.change("a", row(key))
        job.batch()
    job.crash()
    job.done = 1
    with pytest.raises(CheckpointMismatchError, match="at batch 2, but the checkpoint is at batch 1"):
        job.batch()


def test_tables_that_records_declare_are_made_once_with_all_of_their_rows(tmp_path: Path) -> None:
    text = 'create: auto\ntypes: {n: BIGINT}\ntables: [{source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}]\n'
    job = Shop(tmp_path, text)
    columns = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "v", "type": "string", "optional": True},
    ]
    for key in range(5):
        job.topic.put({"id": key}, _with_schema("a", {"id": key, "v": "x"}, columns))
    with killed_at(20) as death:
        job.batch()
    assert death.is_dead
    job.crash()
    job.batch()
    assert job.rows("a") == [{"id": key, "v": "x"} for key in range(5)]
    wide = [*columns, {"field": "more", "type": "int32", "optional": True}]
    job.text = text + "options: {schema-evolution: evolve}\n"
    job.crash()
    job.topic.put({"id": 9}, _with_schema("a", {"id": 9, "v": "y", "more": 7}, wide))
    job.topic.put({"id": 1}, _with_schema("b", {"id": 1, "v": "z"}, columns))
    job.batch()
    assert job.rows("a")[-1] == {"id": 9, "v": "y", "more": 7}
    assert job.rows("b") == [{"id": 1, "v": "z"}]
    assert open_table(str(tmp_path / "w/a")).primary_key == ("id",)


def _with_schema(table: str, after: dict[str, Any], columns: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"type": "struct", "fields": columns, "optional": True}
    source = {"type": "struct", "field": "source", "fields": [{"field": "table", "type": "string"}]}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, source, {"field": "op", "type": "string"}]
    payload = {"before": None, "after": after, "op": "c", "source": {"db": "shop", "table": table}}
    return {"schema": {"type": "struct", "fields": fields}, "payload": payload}


def test_two_tables_of_the_source_into_one_need_keys_that_tell_them_apart(tmp_path: Path) -> None:
    text = CREATE + 'tables: [{source-table: "regex:shop\\\\.a_.", table: ROOT/w/a}]\n'
    job = Shop(tmp_path, text)
    job.topic.change("a_1", row(1))
    job.topic.change("a_2", row(2))
    with pytest.raises(SchemaMismatchError, match="2 tables of the source"):
        job.batch()
    job.text = text.replace("table: ROOT", "shards: distinct-keys, table: ROOT")
    job.crash()
    job.batch()
    assert job.rows("a") == [row(1), row(2)]
    assert list(job.appends("a")) == [0]


def test_a_column_of_the_key_tells_two_tables_of_the_source_apart(tmp_path: Path) -> None:
    create = 'create: {schema: "_source_table STRING NOT NULL, id BIGINT NOT NULL, v STRING", '
    create += 'primary-key: [_source_table, id], options: {bucket: "1"}}\n'
    job = Shop(tmp_path, create + 'tables: [{source-table: "regex:shop\\\\.a_.", table: ROOT/w/a}]\n')
    job.topic.change("a_1", {"id": 1, "v": "one"})
    job.topic.change("a_2", {"id": 1, "v": "two"})
    job.batch()
    rows = open_table(str(tmp_path / "w/a")).to_arrow().sort_by("_source_table").to_pylist()
    assert [(r["_source_table"], r["id"], r["v"]) for r in rows] == [("a_1", 1, "one"), ("a_2", 1, "two")]


def test_names_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    job.topic.change("a", row(1))
    job.topic.change("A", row(1))
    with pytest.raises(OptionError, match="upper and lower case"):
        job.batch()


def test_a_batch_that_was_half_committed_is_finished_with_the_settings_that_it_was_begun_with(tmp_path: Path) -> None:
    begun = ALL + 'commit-parallelism: 1\nwhere: "n < 100"\n'
    job = Shop(tmp_path, begun)
    for key in (1, 200):
        job.topic.change("a", row(key))
        job.topic.change("b", row(key))
    die_between_commits(job)
    job.text = begun.replace("n < 100", "n < 1000")
    job.batch()
    assert job.rows("a") == job.rows("b") == [row(1)]
    job.topic.change("a", row(300))
    job.batch()
    assert job.rows("a") == [row(1), row(300)]


def die_between_commits(job: Shop) -> None:
    """Ends the process of a batch when table a has it and table b has not."""
    for at in itertools.count(20, 2):
        with killed_at(at) as death:
            job.batch()
        assert death.is_dead, "no death between two commits"
        job.crash()
        if _has(job, "a"):
            assert not _has(job, "b")
            return


def _has(job: Shop, table: str) -> bool:
    try:
        return bool(job.appends(table))
    except TableNotFoundError:
        return False


def test_a_job_of_one_table_goes_on_among_many_and_alone_again(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    table = create_table(
        str(tmp_path / "w/a"), "id BIGINT NOT NULL, v STRING, n BIGINT", ("id",), options={"bucket": "1"}
    )
    for key in (1, 2):
        job.topic.change("a", row(key))
        job.alone(table.path)
    job.topic.change("b", row(1))
    job.topic.change("a", row(3))
    job.batch()
    job.topic.change("b", row(2))
    job.batch()
    assert job.rows("a") == [row(1), row(2), row(3)]
    assert job.rows("b") == [row(1), row(2)]
    assert list(job.appends("a")) == [0, 1, 2]
    job.text = only("a")
    job.crash()
    job.topic.change("a", row(4))
    job.batch()
    assert job.rows("a")[-1] == row(4)


ALONE = CREATE + "source-table: shop.a\ntable: ROOT/w/a\n"
"""A job of one table, which skips the records of others."""


def test_a_job_of_one_table_keeps_the_ledger_of_many_and_they_go_on(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    for name in ("a", "b"):
        job.topic.change(name, row(1))
    job.batch()
    job.text = ALONE
    job.crash()
    job.topic.change("a", row(2))
    job.batch()
    job.topic.change("a", row(3))
    job.batch()
    assert job.rows("a") == [row(1), row(2), row(3)]
    assert job.entry("b").last_batch == 0 and job.entry("b").cutoff is not None
    job.text = ALL
    job.crash()
    job.topic.change("a", row(4))
    job.batch()
    assert job.rows("a")[-1] == row(4)
    job.topic.change("b", row(2))
    with pytest.raises(CheckpointMismatchError, match="route of the table was removed from the job and added again"):
        job.batch()


def test_a_job_of_one_table_finishes_the_batch_that_many_had_begun(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL + "commit-parallelism: 1\n")
    for name in ("a", "b"):
        job.topic.change(name, row(1))
    die_between_commits(job)
    job.text = ALONE
    job.batch()
    assert job.rows("a") == job.rows("b") == [row(1)]
    job.topic.change("a", row(2))
    job.batch()
    assert (list(job.appends("a")), list(job.appends("b"))) == ([0, 1], [0])


def test_the_checkpoint_of_many_tables_is_none_for_a_job_that_decodes_nothing(tmp_path: Path) -> None:
    text = f"source: {{format: rate}}\ncheckpoint: {tmp_path}/checkpoint\ntable: {tmp_path}/w/a\n"
    job = resolve_jobs(read_settings(text, name="job.yaml"))
    assert isinstance(job, JobConfig)
    assert not keeps_ledger(job)
    ledger_files(job.checkpoint, {}).put(Ledger("query", 0, None, "pin", {}))
    assert keeps_ledger(job)
    with pytest.raises(OptionError, match="give this job a checkpoint of its own"):
        as_routed(job)


def test_a_new_query_goes_on_where_each_of_the_tables_has_got_to(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL + "commit-parallelism: 1\n")
    for key in (1, 2):
        for name in ("a", "b", "c"):
            job.topic.change(name, row(key))
        job.batch()
    for name in ("a", "b"):
        job.topic.change(name, row(3))
    for at in itertools.count(20, 5):
        with killed_at(at):
            job.batch()
        job.crash()
        if job.rows("a")[-1] == row(3):
            break
    assert job.rows("b")[-1] == row(2), "the process died between the commits of a and b"
    job.begin_again()
    job.topic.change("c", row(4))
    job.batch()
    job.topic.change("a", row(5))
    job.batch()
    assert job.rows("a") == [row(1), row(2), row(3), row(5)]
    assert job.rows("b") == [row(1), row(2), row(3)]
    assert job.rows("c") == [row(1), row(2), row(4)]
    # No row of a was written a second time.
    assert [s["delta_record_count"] for s in _appended(job, "a")] == [1, 1, 1, 1]


def test_a_table_whose_records_kafka_has_removed_is_parked_when_a_new_query_begins(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL + "commit-parallelism: 1\n")
    for name in ("a", "b"):
        job.topic.change(name, row(2))
    job.batch()
    for name in ("a", "b"):
        job.topic.change(name, row(4))
    for at in itertools.count(20, 5):
        with killed_at(at):
            job.batch()
        job.crash()
        if job.rows("a")[-1] == row(4):
            break
    lacking = job.entry("b").fed
    job.begin_again(earliest={feed: job.plans[1][str(feed[1])] for feed in lacking})
    for name in ("a", "b"):
        job.topic.change(name, row(6))
    job.batch()
    assert job.rows("a") == [row(2), row(4), row(6)]
    assert job.rows("b") == [row(2)]
    parked = job.entry("b").parked
    assert parked is not None and "Kafka has removed records that the table needs" in parked.why


def test_a_table_goes_on_where_kafka_has_removed_records_that_were_none_of_it(tmp_path: Path) -> None:
    job = Shop(tmp_path, ALL)
    job.topic.change("a", row(2))
    job.topic.change("b", row(1))
    job.batch()
    [of_b] = job.entry("b").fed
    job.topic.change("b", row(3))
    job.begin_again(earliest={of_b: job.topic.ends[str(of_b[1])]})
    job.topic.change("a", row(4))
    job.batch()
    assert job.rows("a") == [row(2), row(4)]
    assert job.rows("b") == [row(1)] and job.entry("b").parked is not None


def _appended(job: Shop, table: str) -> list[dict[str, Any]]:
    snapshots = open_table(f"{job.root}/w/{table}").snapshots().to_pylist()
    return [s for s in snapshots if s["commit_kind"] == "APPEND"]
