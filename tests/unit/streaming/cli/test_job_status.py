"""`status --conf-file`: the tables of a job, by its checkpoint, its tables and what Kafka says."""

import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.cli.commands import program
from bucketline.streaming.cli.job_status import job_status, show_job
from bucketline.streaming.cli.rows import Format
from bucketline.streaming.job.many.lag import KafkaLag, KafkaNow, UnreadRecords
from bucketline.streaming.many.ledger import FeedOffsets
from tests.support.spark.many_shop import QUERY, Shop
from tests.support.spark.stream_run import StreamRun

TEXT = """
tables:
  - {source-table: shop.orders, table: ROOT/w/orders, create: {schema: id BIGINT NOT NULL, primary-key: [id]}}
  - {source-table: shop.items, table: ROOT/w/items, create: {schema: id BIGINT NOT NULL, primary-key: [id]}}
  - {source-table: shop.people, table: ROOT/w/people, create: {schema: id BIGINT NOT NULL, primary-key: [id]}}
"""


def test_the_tables_of_a_job_are_shown_with_what_waits_for_them(tmp_path: Path) -> None:
    shop = Shop(tmp_path, TEXT)
    for number in range(6):
        shop.topic.change("orders" if number % 2 else "items", {"id": number})
    shop.batch()
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": QUERY}))
    ends = dict(shop.topic.ends)
    asked: list[FeedOffsets] = []

    def ask(options: Mapping[str, str], reached: FeedOffsets) -> KafkaNow:
        asked.append(reached)
        return KafkaNow({feed: UnreadRecords(offset + 2, 1_000) for feed, offset in reached.items()})

    rows, unknown = job_status(shop.routed, ask=ask)
    found = {Path(row["table"]).name: row for row in rows.to_pylist()}
    assert unknown == [] and set(found) == {"orders", "items", "people"}
    assert asked == [{("shop", int(number)): offset for number, offset in ends.items() if offset}]
    for name in ("orders", "items"):
        row = found[name]
        assert (row["state"], row["rows"], row["runs"], row["bad_records"], row["batch"]) == ("ok", 3, 1, 0, 0)
        assert row["behind_records"] == 2 and row["behind_seconds"] > 1_000_000
        assert row["committed"] is not None
    assert (found["people"]["state"], found["people"]["behind_records"]) == ("no records yet", None)


def test_a_table_that_is_gone_or_was_made_anew_is_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path, TEXT)
    shop.topic.change("orders", {"id": 1})
    shop.topic.change("items", {"id": 1})
    shop.batch()
    shutil.rmtree(tmp_path / "w" / "orders")
    shutil.rmtree(tmp_path / "w" / "items")
    create_table(f"{tmp_path}/w/items", "id BIGINT NOT NULL, v STRING", primary_key=["id"])
    rows, unknown = job_status(shop.routed, ask=lambda options, reached: KafkaNow({}, "no broker answers"))
    found = {Path(row["table"]).name: (row["state"], row["behind_records"]) for row in rows.to_pylist()}
    assert found == {"orders": ("gone", None), "items": ("made anew", None), "people": ("no records yet", None)}
    assert unknown == ["no broker answers"]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({"shop": 60_000}, "Kafka may remove the first record that the table has missed after 2023-11-14 22:14 UTC"),
        ({"shop": -1}, "Kafka keeps the records that the table has missed"),
        ({}, "it is not known how long Kafka keeps the records that the table has missed"),
    ],
)
def test_a_parked_table_says_how_long_kafka_keeps_what_it_has_missed(
    tmp_path: Path, kept: dict[str, int], said: str
) -> None:
    shop = Shop(tmp_path, "on-table-failure: park\n" + TEXT)
    shop.topic.change("orders", {"id": 1})
    shop.batch()
    shop.topic.change("orders", {"id": "no number"})
    shop.batch()

    def ask(options: Mapping[str, str], reached: FeedOffsets) -> KafkaNow:
        waiting = {feed: UnreadRecords(offset + 1, 1_700_000_000_000) for feed, offset in reached.items()}
        return KafkaNow(waiting, retention_ms=kept)

    rows, _ = job_status(shop.routed, ask=ask)
    row = next(row for row in rows.to_pylist() if row["table"].endswith("orders"))
    assert row["state"] == "parked at batch 1"
    assert "bad record" in row["why"] and row["why"].endswith(f"({said})")


def test_a_job_of_one_table_is_shown_as_well(tmp_path: Path) -> None:
    table = create_table(f"{tmp_path}/t", "id BIGINT NOT NULL", primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1, 2]}))
    stream = StreamRun(table.path, {}, QUERY)
    stream.empty_batch(BatchIdentity(QUERY, 4, None, json.dumps([{"orders": {"0": 7}}]), "d"))
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": QUERY}))
    text = f"""
source: {{format: kafka, options: {{kafka.bootstrap.servers: "b:1", subscribe: orders}}, decode: json}}
checkpoint: {tmp_path}/checkpoint
table: {tmp_path}/t
"""
    job = resolve_job(read_settings(text, name="job.yaml"))
    rows, _ = job_status(job, ask=lambda options, reached: KafkaNow({feed: UnreadRecords(10) for feed in reached}))
    [row] = rows.to_pylist()
    assert (row["state"], row["rows"], row["behind_records"], row["batch"]) == ("ok", 2, 3, 4)


def test_one_line_says_why_the_lag_is_not_known(tmp_path: Path) -> None:
    text = f"""
source: {{format: kafka, options: {{kafka.bootstrap.servers: "127.0.0.1:1", subscribe: orders}}, decode: json}}
checkpoint: {tmp_path}/checkpoint
table: {tmp_path}/t
"""
    _, unknown = job_status(resolve_job(read_settings(text, name="job.yaml")))
    assert unknown == ["the lag is not known: no batch of the job is in its tables yet"]
    with closing(KafkaLag(answer_s=0.3)) as ask:
        for _ in range(2):
            now = ask({"kafka.bootstrap.servers": "127.0.0.1:1"}, {("orders", 0): 7})
            assert now.partitions == {} and now.why is not None and now.why.startswith("the lag is not known: Failed")


def test_a_watch_shows_the_tables_again_until_it_is_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""
source: {{format: kafka, options: {{kafka.bootstrap.servers: "127.0.0.1:1", subscribe: orders}}, decode: json}}
checkpoint: {tmp_path}/checkpoint
table: {tmp_path}/t
"""
    (tmp_path / "job.yaml").write_text(text)
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    show_job(str(tmp_path / "job.yaml"), Format.JSON, watch=True, pause=pause)
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["table"], row["state"]) for row in shown] == [(f"{tmp_path}/t", "no records yet")] * 3


@pytest.mark.parametrize("arguments", [[], ["t", "--conf-file", "f.yaml"], ["t", "--watch"]])
def test_a_table_or_a_job_is_named_and_not_both(arguments: list[str]) -> None:
    result = CliRunner().invoke(program, ["status", *arguments])
    assert result.exit_code == 2
