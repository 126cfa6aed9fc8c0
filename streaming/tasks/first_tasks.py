"""The first tasks of a job. The tasks run while the query of the job starts. They load the modules that tasks of
batches need, and find out whether tasks can read Kafka themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.tasks.kafka.kafka_consumers import LibrdkafkaConsumer
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.read_task import ReadKafkaTask
from bucketline.streaming.tasks.start_workers import run_everywhere
from bucketline.streaming.tasks.wire import TaskResult
from bucketline.streaming.tasks.write_task import WriteTask

LOADED = (DecodeStep, ReadKafkaTask, WriteTask)
"""The modules that tasks of batches need. A worker that has run one of the first tasks has loaded them."""


def try_tasks(spark: Any, settings: Mapping[str, str]) -> str:
    """Returns the reason why tasks of this application cannot read Kafka with these settings of librdkafka; empty if
    they can.

    To find out, the function runs as many tasks as Spark can run at the same time, if Spark tells that number.
    """
    return max(why.decode() for why in run_everywhere(spark, _Trial(settings)))


def client_error(settings: Mapping[str, str]) -> str:
    """Returns the reason why this process cannot make a Kafka consumer with these settings; empty if it can."""
    try:
        LibrdkafkaConsumer({**settings, "group.id": "bucketline"}).close()
    except KafkaReaderError as e:
        return e.message
    except Exception as e:  # noqa: BLE001 - whatever it says of a setting
        return f"librdkafka refuses the settings: {e}"
    return ""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A task that tries to make a Kafka client. The result of the task is empty if it can make a client, and otherwise
    the reason why it cannot.
    """

    settings: Mapping[str, str]

    def __call__(self) -> Iterator[TaskResult]:
        yield TaskResult("why", client_error(self.settings).encode())
