"""Gives each record of a batch the number of its feed. A feed is the partition of a Kafka topic from which a record
came.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.buffers import one_array

TOPIC_COLUMN, PARTITION_COLUMN = "_kafka_topic", "_kafka_partition"
"""The columns with the topic and the partition of rows that are not decoded."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class KafkaFeeds:
    """The topics and partitions that a batch reads, in ascending order. The number of a feed (topic partition) is its
    position in this order.

    `topic` and `partition` are the names of the columns with each record's topic and partition. The columns in `origin`
    were read only to find the feed, and the table does not have them.
    """

    partitions: tuple[TopicPartition, ...]
    topic: str = "topic"
    partition: str = "partition"
    origin: tuple[str, ...] = ()

    def numbers(self, records: pa.Table) -> NDArray[Any]:
        """Returns the number of the feed (topic partition) of each record, as integers of the smallest possible type.

        Raises SchemaMismatchError for a record from a topic or partition that the batch does not read.
        """
        topics, table = _numbered(self.partitions)
        partitions = one_array(records[self.partition])
        if not records.num_rows:
            return table[0, :0]
        if partitions.null_count or not pa.types.is_integer(partitions.type):
            return self._refuse(records, pc.index(partitions.is_null(), True).as_py() if partitions.null_count else 0)
        numbers = partitions.to_numpy()
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= table.shape[1]:
            return self._refuse(records, int(numbers.argmin() if low < 0 else numbers.argmax()))
        topic = self._topic(records, topics)
        if isinstance(topic, int) and low == high:
            found = np.full(records.num_rows, table[topic, low])
        else:
            found = table[topic, numbers]
        if (found < 0).any():
            return self._refuse(records, int(np.argmax(found < 0)))
        return found

    def _topic(self, records: pa.Table, topics: list[str]) -> int | NDArray[Any]:
        """Returns the position of the records' topic among `topics`: one integer if all records have the same topic, or
        else an array with an integer for each record. For an unknown topic the integer is the number of topics.
        """
        if len(topics) == 1 and self.topic == "topic":
            return 0  # a job that reads one topic gets only records of this topic
        column = one_array(records[self.topic])
        if not pa.types.is_string(column.type):
            return len(topics)
        first = column[0]
        if first.is_valid and pc.all(pc.fill_null(pc.equal(column, first), False)).as_py():
            return topics.index(first.as_py()) if first.as_py() in topics else len(topics)
        codes = pc.fill_null(pc.index_in(column, value_set=pa.array(topics, pa.string())), len(topics))
        positions: NDArray[Any] = codes.to_numpy()
        return positions

    def rows(self, records: pa.Table) -> pa.Table:
        """Returns the records without the columns `origin`. These columns (the topic and the partition of each record)
        were read only to find the feed of a record; the table does not have them.
        """
        return records.drop_columns(list(self.origin)) if self.origin else records

    def _refuse(self, records: pa.Table, row: int) -> NoReturn:
        topic, partition = (records[name][row].as_py() for name in (self.topic, self.partition))
        raise SchemaMismatchError(
            f"a row says that it came from topic {topic!r} partition {partition!r}, but this batch does not read "
            f"that partition; columns {self.topic} and {self.partition} must hold Kafka's own topic and partition",
            column=self.topic,
        )


@lru_cache(16)
def _numbered(partitions: Sequence[TopicPartition]) -> tuple[list[str], NDArray[Any]]:
    """Returns the topics, and a table of feed numbers: a row for each topic, and a column for each partition number.

    The table has -1 for a missing partition. Its last row is for unknown topics, and has only -1.
    """
    topics = sorted({topic for topic, _ in partitions})
    width = max((p for _, p in partitions), default=0) + 1
    table = np.full((len(topics) + 1, width), -1, np.min_scalar_type(-max(1, len(partitions))))
    for number, (topic, partition) in enumerate(partitions):
        table[topics.index(topic), partition] = number
    return topics, table
