"""`create: auto`: the table is created as the records of the topic declare it, once, and no other table is taken."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.conf.sources.source_options import find_option, source_options
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.state.types.columns_text import columns_text
from bucketline.streaming.job.create_declared import create_declared
from bucketline.streaming.job.run import run_job
from tests.support.models.avro_values import body_of
from tests.support.servers.broker import KafkaBroker, KafkaRecord
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
}
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
COLUMNS = "id BIGINT NOT NULL, text STRING"


def job(broker: KafkaBroker, folder: Path, topic: str, *more: str) -> JobConfig:
    settings = (
        f"table={folder / 'k.db' / 't'}",
        "source.format=kafka",
        f"source.options.kafka.bootstrap.servers={broker.bootstrap_servers}",
        f"source.options.subscribe={topic}",
        "source.options.startingOffsets=earliest",
        f"checkpoint={folder / 'checkpoint'}",
        "trigger=availableNow",
        "create=auto",
        "create.options.bucket=2",
    )
    return resolve_job({}, read_assignments((*settings, *more)))


def of_avro(registry: SchemaRegistry) -> tuple[str, ...]:
    return ("source.decode=debezium-avro", f"source.registry.url={registry.url}")


def send_events(broker: KafkaBroker, topic: str, registry: SchemaRegistry, *rows: dict[str, object]) -> None:
    frames = [struct.pack(">bI", 0, registry.add(*of)) for of in ((f"{topic}-key", KEY), (f"{topic}-value", EVENT))]
    records = []
    for row in rows:
        event = {"before": None, "after": row, "op": "c"}
        key = frames[0] + body_of(KEY, {"id": row["id"]})
        records.append(KafkaRecord(frames[1] + body_of(EVENT, event), key, 0))
    broker.produce(topic, records)


def table_at(folder: Path) -> tuple[str, tuple[str, ...], list[tuple[Any, ...]]]:
    table = open_table(str(folder / "k.db" / "t"))
    rows = sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    return columns_text(handle_of(table).table_schema.fields), table.primary_key, rows


def test_a_table_appears_with_its_first_record_and_has_all_of_them(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker.create_topic("appears")
    with schema_registry() as registry:
        config = job(kafka_broker, tmp_path, "appears", *of_avro(registry))
        run_job(config, spark)
        assert "has no row yet that declares the table" in caplog.text
        assert not (tmp_path / "k.db").exists() and not (tmp_path / "checkpoint").exists()
        send_events(kafka_broker, "appears", registry, {"id": 1, "text": "a"}, {"id": 2, "text": None})
        run_job(config, spark)
        assert table_at(tmp_path) == (COLUMNS, ("id",), [(1, "a"), (2, None)])
        send_events(kafka_broker, "appears", registry, {"id": 3, "text": "c"})
        run_job(config, spark)
    assert table_at(tmp_path) == (COLUMNS, ("id",), [(1, "a"), (2, None), (3, "c")])


def test_the_table_of_a_job_that_died_before_its_first_batch_is_used_and_another_one_is_not(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("dies")
    with schema_registry() as registry:
        send_events(kafka_broker, "dies", registry, {"id": 1, "text": "a"})
        config = job(kafka_broker, tmp_path, "dies", *of_avro(registry))
        made = create_declared(spark, config, source_options(config.source), lambda: False)
        assert made is not None and made[0].primary_key == ("id",)
        run_job(config, spark)
        assert table_at(tmp_path) == (COLUMNS, ("id",), [(1, "a")])

        other = tmp_path / "other"
        create_table(str(other / "k.db" / "t"), COLUMNS, ["id", "text"], options={"bucket": "2"})
        with pytest.raises(
            SchemaMismatchError, match=r"differs from the table that the records declare: its primary key is"
        ):
            run_job(job(kafka_broker, other, "dies", *of_avro(registry)), spark)
        assert open_table(str(other / "k.db" / "t")).snapshots().num_rows == 0


def test_a_job_that_begins_at_the_latest_record_has_the_one_that_it_waited_for(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("waits")
    with schema_registry() as registry:
        more = (*of_avro(registry), "source.options.startingOffsets=latest", "trigger=5 seconds")
        config = job(kafka_broker, tmp_path, "waits", *more)
        asked = 0

        def is_ending() -> bool:
            nonlocal asked
            asked += 1
            if asked == 2:  # the topic was looked at once, and is empty
                send_events(kafka_broker, "waits", registry, {"id": 1, "text": "a"})
            return False

        made = create_declared(spark, config, source_options(config.source), is_ending)
        assert made is not None and find_option(made[1].options, "startingOffsets") == "earliest"
        again = create_declared(spark, config, source_options(config.source), lambda: False)
        assert again is not None and find_option(again[1].options, "startingOffsets") == "latest"
        assert create_declared(spark, config, source_options(config.source), lambda: True) is None


def test_records_of_two_tables_and_records_that_declare_nothing_are_refused(
    spark: Any, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("two")
    events = [
        {"before": None, "after": {"id": at}, "op": "c", "source": {"db": "shop", "table": f"t{at}"}} for at in (1, 2)
    ]
    records = [KafkaRecord(json.dumps(event).encode(), b'{"id": 1}', 0) for event in events]
    kafka_broker.produce("two", records)
    more = ("source.decode=debezium-json",)
    with pytest.raises(OptionError, match=r"do not declare the type of id, .* set types\.id, or"):
        run_job(job(kafka_broker, tmp_path, "two", *more), spark)
    with pytest.raises(
        SchemaMismatchError, match=r"come from 2 tables of the source, shop\.t1 and shop\.t2: set source-"
    ):
        run_job(job(kafka_broker, tmp_path, "two", *more, "types.id=BIGINT"), spark)
    assert not (tmp_path / "k.db").exists()
    run_job(job(kafka_broker, tmp_path, "two", *more, "types.id=BIGINT", "source-table=shop.t2"), spark)
    assert table_at(tmp_path) == ("id BIGINT NOT NULL", ("id",), [(2,)])
