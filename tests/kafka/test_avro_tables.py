"""A topic of Debezium in Avro becomes several tables, though the registry goes away in mid-stream and comes back."""

import logging
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

from bucketline.conf.resolve import read_settings, resolve_jobs
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.state.store.table.table import open_table
from bucketline.streaming.job.many.run import run_routed
from tests.support.models.avro_values import body_of
from tests.support.servers.broker import KafkaBroker, KafkaRecord
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Row = dict[str, Any]
VERSIONS, TABLES, BEFORE_IT_GOES, COMES_WITHIN_S = 4, 2, 5, 120
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": name, "type": "string"} for name in ("db", "table")],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def envelope(version: int) -> Row:
    """The schema of the events after `version` columns more have come."""
    more = [{"name": f"c{at}", "type": ["null", "int"], "default": None} for at in range(version)]
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, *more]}
    images = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]}]
    others = [{"name": "source", "type": SOURCE}, {"name": "op", "type": "string"}]
    return {"type": "record", "name": "Envelope", "fields": [*images, *others]}


def history(registry: SchemaRegistry) -> tuple[list[KafkaRecord], dict[str, dict[int, Row]]]:
    """The records of a topic in their order, and the rows that the tables have in the end."""
    tables: dict[str, dict[int, Row]] = {f"t{at}": {} for at in range(TABLES)}
    records = []
    key_frame = struct.pack(">bI", 0, registry.add("k", KEY))
    frames = [struct.pack(">bI", 0, registry.add("v", envelope(version))) for version in range(VERSIONS)]
    for number in range(VERSIONS * 50):
        version, name = number // 50, f"t{number % TABLES}"
        rows, key = tables[name], number % 23
        old = rows.get(key)
        new = None if old and number % 5 == 0 else {"id": key, **{f"c{at}": number + at for at in range(version)}}
        shown = None if old is None else {"id": key, **{f"c{at}": old.get(f"c{at}") for at in range(version)}}
        op = "d" if new is None else "u" if old else "c"
        event = {"before": shown, "after": new, "op": op, "source": {"db": "shop", "table": name}}
        value = frames[version] + body_of(envelope(version), event)
        records.append(KafkaRecord(value, key_frame + body_of(KEY, {"id": key}), 0))
        if new is None:
            del rows[key]
            records.append(KafkaRecord(None, key_frame + body_of(KEY, {"id": key}), 0))
        else:
            rows[key] = new
    records.insert(60, KafkaRecord(records[0].value[:-1], None, 0))
    records.insert(120, KafkaRecord(struct.pack(">bI", 0, 999) + b"\x00", None, 0))
    return records, tables


@contextmanager
def mortal(caplog: pytest.LogCaptureFixture) -> Iterator[SchemaRegistry]:
    """A registry that goes away after some answers, and comes back once the job has said that it waits."""
    with ExitStack() as lives:
        registry = lives.enter_context(schema_registry())
        port = urlsplit(registry.url).port or 0

        def live_again() -> None:
            until = time.monotonic() + COMES_WITHIN_S
            while len(registry.asked) < BEFORE_IT_GOES and time.monotonic() < until:
                time.sleep(0.01)
            lives.close()
            while "waits until the schema registry answers" not in caplog.text and time.monotonic() < until:
                time.sleep(0.05)
            lives.enter_context(schema_registry(port, registry))

        thread = threading.Thread(target=live_again, daemon=True)
        thread.start()
        yield registry
        thread.join(COMES_WITHIN_S)


@pytest.mark.parametrize("reader", [pytest.param("spark", marks=pytest.mark.stores), "native"])
def test_tables_have_each_change_once_though_the_registry_went_away(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    topic = f"avro-tables-{reader}"
    kafka_broker.create_topic(topic)
    caplog.set_level(logging.WARNING, "bucketline.job")
    with mortal(caplog) as registry:
        records, tables = history(registry)
        kafka_broker.produce(topic, records)
        text = f"""
source:
  format: kafka
  reader: {reader}
  decode: debezium-avro
  options: {{kafka.bootstrap.servers: "{kafka_broker.bootstrap_servers}", subscribe: {topic},
            startingOffsets: earliest, maxOffsetsPerTrigger: "80"}}
  registry: {{url: "{registry.url}", retries: 0, timeout: 2 s}}
checkpoint: {tmp_path}/checkpoint
trigger: availableNow
create: auto
options: {{schema-evolution: evolve}}
bad-records: {{path: "{tmp_path}/bad", max: 2}}
tables: [{{source-table: "regex:shop\\\\.(.*)", table: "{tmp_path}/k.db/{{1}}"}}]
"""
        job = resolve_jobs(read_settings(text, name="job.yaml"))
        assert isinstance(job, RoutedJob)
        run_routed(job, spark)
    assert "waits until the schema registry answers" in caplog.text and "does not answer" in caplog.text
    for name, rows in tables.items():
        found = open_table(str(tmp_path / "k.db" / name))
        assert {row["id"]: row for row in found.to_arrow().to_pylist()} == {
            key: {"id": key, **{f"c{at}": row.get(f"c{at}") for at in range(VERSIONS - 1)}} for key, row in rows.items()
        }
        assert found.to_arrow().num_rows == len(rows)
    bad = [row for file in (tmp_path / "bad").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sorted((row["offset"], row["reason"]) for row in bad) == [
        (60, "field op: the record ends too early"),
        (120, "the schema registry has no schema with id 999"),
    ]
