"""The first tasks of a job. The tasks run while the query of the job starts. They load the modules that tasks of
batches need, and find out whether tasks can read Kafka themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.tasks.bytes_job import FirstOfNothing, bytes_job
from bucketline.streaming.tasks.kafka.kafka_consumers import LibrdkafkaConsumer
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.read_task import ReadKafkaTask
from bucketline.streaming.tasks.wire import TaskResult
from bucketline.streaming.tasks.write_task import WriteTask

LOADED = (DecodeStep, ReadKafkaTask, WriteTask)
"""The modules that tasks of batches need. A worker that has run one of the first tasks has loaded them."""

_PARALLELISM, _FEW = "spark.default.parallelism", 8


def try_tasks(spark: Any, settings: Mapping[str, str]) -> str:
    """Returns the reason why tasks of this application cannot read Kafka with these settings of librdkafka; empty if
    they can.

    To find out, the function runs as many tasks as Spark can run at the same time, if Spark tells that number.
    """
    return max(why.decode() for why in _said(spark, _Trial(settings)))


def start_workers(spark: Any) -> None:
    """Starts as many Python workers as Spark can run tasks at the same time, if Spark tells that number. Spark keeps
    the workers for the first batch.
    """
    _said(spark, _Start())


def client_error(settings: Mapping[str, str]) -> str:
    """Returns the reason why this process cannot make a Kafka consumer with these settings; empty if it can."""
    try:
        LibrdkafkaConsumer({**settings, "group.id": "bucketline"}).close()
    except KafkaReaderError as e:
        return e.message
    except Exception as e:  # noqa: BLE001 - whatever it says of a setting
        return f"librdkafka refuses the settings: {e}"
    return ""


def _said(spark: Any, task: FirstOfNothing) -> list[bytes]:
    return [result.payload for result in bytes_job(spark, _at_a_time(spark.sparkContext), task)]


def _at_a_time(context: Any) -> int:
    """Returns how many tasks can run at a time, at least one.

    Spark does not tell this number if `spark.default.parallelism` is set: it tells the value of this setting, which may
    be too large. The result is then at most a few tasks, because the first batch waits for these tasks.
    """
    tasks = max(1, int(context.defaultParallelism))
    return tasks if context.getConf().get(_PARALLELISM) is None else min(tasks, _FEW)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A task that tries to make a Kafka client. The result of the task is empty if it can make a client, and otherwise
    the reason why it cannot.
    """

    settings: Mapping[str, str]

    def __call__(self) -> Iterator[TaskResult]:
        yield TaskResult("why", client_error(self.settings).encode())


@dataclass(frozen=True, slots=True)
class _Start:
    """A task that only reports that it runs."""

    def __call__(self) -> Iterator[TaskResult]:
        yield TaskResult("up", b"")
