"""A job over records in Avro: schemas out of a registry, which may go away and come back; both readers."""

import struct
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.store.table.table import open_table
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError
from bucketline.streaming.job.run import run_job
from tests.support.models.avro_values import body_of
from tests.support.servers.broker import KafkaBroker, KafkaRecord
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FIELDS = [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
NEWER = {"type": "record", "name": "Order", "fields": [*FIELDS, {"name": "note", "type": ["null", "string"]}]}
READERS = ("spark", pytest.param("native", marks=pytest.mark.stores))


def framed(registry: SchemaRegistry, schema: dict[str, object], value: object) -> bytes:
    return struct.pack(">bI", 0, registry.add("orders-value", schema)) + body_of(schema, value)


def send(broker: KafkaBroker, topic: str, *values: bytes) -> None:
    broker.produce(topic, [KafkaRecord(value, None, 0) for value in values])


def run(spark: Any, broker: KafkaBroker, folder: Path, registry: SchemaRegistry, topic: str, *more: str) -> None:
    settings = (
        f"table={folder / 'k.db' / 't'}",
        "source.format=kafka",
        f"source.options.kafka.bootstrap.servers={broker.bootstrap_servers}",
        f"source.options.subscribe={topic}",
        "source.options.startingOffsets=earliest",
        "source.decode=avro",
        f"source.registry.url={registry.url}",
        "source.registry.username=ada",
        "source.registry.password=hunter-registry",
        "source.registry.retries=0",
        "source.registry.wait=0 s",
        f"checkpoint={folder / 'checkpoint'}",
        "trigger=availableNow",
        "create.schema=id BIGINT NOT NULL, text STRING",
        "create.primary-key=id",
        "create.options.bucket=2",
        "options.schema-evolution=evolve",
        f"bad-records.path={folder / 'rejects'}",
        "bad-records.max=2",
    )
    run_job(resolve_job({}, read_assignments((*settings, *more))), spark)


@pytest.mark.parametrize("reader", READERS)
def test_a_registry_goes_away_and_comes_back_and_nothing_is_lost_or_twice(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, reader: str
) -> None:
    topic = f"avro-{reader}"
    kafka_broker.create_topic(topic)
    with schema_registry() as registry:
        first = [framed(registry, ORDER, {"id": i, "text": f"t{i}"}) for i in range(100)]
        send(kafka_broker, topic, *first, first[0][:-1], struct.pack(">bI", 0, 999) + b"\x02\x00")
        run(spark, kafka_broker, tmp_path, registry, topic, f"source.reader={reader}")
        newer = [framed(registry, NEWER, {"id": i, "text": "new", "note": f"n{i}"}) for i in range(50, 150)]
        send(kafka_broker, topic, *newer)
        registry.status = 503
        with pytest.raises(RegistryDownError, match=r"^the schema registry at .* answers 503"):
            run(spark, kafka_broker, tmp_path, registry, topic, f"source.reader={reader}")
        registry.status, registry.refused = 200, 1
        waiting = f"source.reader={reader}", "source.registry.wait=60 s"
        run(spark, kafka_broker, tmp_path, registry, topic, *waiting)
        assert (
            f"the batch waits until the schema registry answers: the schema registry at {registry.url} answers 503"
            in caplog.text
        )

    rows = {
        row["id"]: (row["text"], row["note"]) for row in open_table(str(tmp_path / "k.db" / "t")).to_arrow().to_pylist()
    }
    expected: dict[int, tuple[str, str | None]] = {i: (f"t{i}", None) for i in range(100)}
    expected |= {i: ("new", f"n{i}") for i in range(50, 150)}
    assert rows == expected
    assert registry.logins == {"Basic " + b64encode(b"ada:hunter-registry").decode()}
    assert "hunter" not in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10 and not [path for path in files if b"hunter" in path.read_bytes()]
    rejects = [pq.read_table(path)["reason"].to_pylist() for path in sorted((tmp_path / "rejects").rglob("*.parquet"))]
    assert rejects == [["field text: the record ends too early", "the schema registry has no schema with id 999"]]
