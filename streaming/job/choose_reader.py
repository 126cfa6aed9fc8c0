"""Who reads the Kafka records of a job: Spark's Kafka source, or tasks themselves; chosen once, and logged."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_READER, ReaderChoice, SourceConfig
from bucketline.conf.kafka_client import kafka_client, obstacles
from bucketline.conf.source_options import KAFKA, find_option
from bucketline.streaming.batch.kafka_batch import KafkaReader
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.batch.write_batch import Job
from bucketline.streaming.tasks.kafka_consumers import LibrdkafkaConsumer
from bucketline.streaming.tasks.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.read_task import drain
from bucketline.streaming.tasks.worker import in_worker

_LOG = logging.getLogger("bucketline.job")
_SPLITS = ("minPartitions", "maxRecordsPerPartition")
_TOKENS = "spark.kafka.clusters."


@dataclass(frozen=True, slots=True)
class JobSink(TableSink):
    """The sink of a job that has made the stream itself, so that tasks may read what the stream stands for."""

    kafka: KafkaReader | None = None

    def _job(self) -> Job:
        return replace(TableSink._job(self), kafka=self.kafka)


def choose_reader(spark: Any, source: SourceConfig, options: Mapping[str, str]) -> KafkaReader | None:
    """How tasks read Kafka themselves; None when Spark reads. Raises OptionError where `native` is asked for and
    cannot be."""
    if source.reader is ReaderChoice.SPARK or (source.format != KAFKA and source.reader is ReaderChoice.AUTO):
        return None
    why = obstacles(source, options) or _obstacles_here(spark, options)
    if not why:
        _LOG.info("tasks read Kafka themselves (source.reader = %s)", source.reader.value)
        return KafkaReader(
            kafka_client(options).settings,
            is_required=source.reader is ReaderChoice.NATIVE,
            keeps_split=any(find_option(options, name) is not None for name in _SPLITS),
        )
    if source.reader is ReaderChoice.NATIVE:
        raise OptionError(f"source.reader = native: {why[0]}; use auto or spark", key=SOURCE_READER.key)
    _LOG.info("Spark reads Kafka (source.reader = auto): %s", "; ".join(why))
    return None


def _obstacles_here(spark: Any, options: Mapping[str, str]) -> tuple[str, ...]:
    """Why tasks of this application cannot read themselves, although the options say that they can."""
    conf = dict(spark.sparkContext.getConf().getAll())
    tokens = [key for key in conf if key.startswith(_TOKENS)]
    if tokens:
        return (f"{tokens[0]} makes Spark log in with delegation tokens",)
    here = client_error(kafka_client(options).settings)
    if here:
        return (here,)
    count = max(1, int(spark.sparkContext.defaultParallelism))
    found = spark.range(0, count, 1, count).mapInArrow(in_worker(_Try(kafka_client(options).settings)), "why string")
    return tuple(sorted({row["why"] for row in found.collect()} - {""}))[:1]


@dataclass(frozen=True, slots=True)
class _Try:
    """A task that says why it could not read."""

    settings: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        drain(batches)
        yield pa.record_batch([pa.array([client_error(self.settings)], pa.string())], names=["why"])


def client_error(settings: Mapping[str, str]) -> str:
    """Why this process cannot make a consumer with these settings; empty when it can."""
    try:
        LibrdkafkaConsumer({**settings, "group.id": "bucketline"}).close()
    except KafkaReaderError as e:
        return e.message
    except Exception as e:  # noqa: BLE001 - whatever it says of a setting
        return f"librdkafka does not take the settings: {e}"
    return ""
