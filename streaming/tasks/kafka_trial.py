"""Whether tasks can read Kafka themselves: asked of them once, by a task that loads what the tasks of batches need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.tasks.kafka_consumers import LibrdkafkaConsumer
from bucketline.streaming.tasks.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.read_task import ReadKafkaTask, drain
from bucketline.streaming.tasks.worker import in_worker
from bucketline.streaming.tasks.write_task import WriteTask

LOADED = (DecodeStep, ReadKafkaTask, WriteTask)
"""What the tasks of batches are made of: a worker that has run a trial has loaded it."""


def try_tasks(spark: Any, settings: Mapping[str, str]) -> str:
    """Why tasks of this application cannot read with these settings of librdkafka; empty when they can. As many tasks
    as run at a time try it."""
    count = max(1, int(spark.sparkContext.defaultParallelism))
    found = spark.range(0, count, 1, count).mapInArrow(in_worker(_Trial(settings)), "why string").collect()
    return max((str(row["why"]) for row in found), default="")


def client_error(settings: Mapping[str, str]) -> str:
    """Why this process cannot make a consumer with these settings; empty when it can."""
    try:
        LibrdkafkaConsumer({**settings, "group.id": "bucketline"}).close()
    except KafkaReaderError as e:
        return e.message
    except Exception as e:  # noqa: BLE001 - whatever it says of a setting
        return f"librdkafka does not take the settings: {e}"
    return ""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A task that says why it could not read."""

    settings: Mapping[str, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        drain(batches)
        yield pa.record_batch([pa.array([client_error(self.settings)], pa.string())], names=["why"])
