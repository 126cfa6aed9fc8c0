"""Which partition of a Kafka topic each record of a batch came from, as the number of a feed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.buffers import one_array

TOPIC_COLUMN, PARTITION_COLUMN = "_kafka_topic", "_kafka_partition"
"""The columns by which rows that are not decoded say where they came from."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class KafkaFeeds:
    """The topics and partitions that a batch reads, ascending; a feed's number is its position among them.

    `topic` and `partition` name the columns of the records that say where each came from; those in `beside` are there
    for this alone, and are no columns of the table.
    """

    partitions: tuple[TopicPartition, ...]
    topic: str = "topic"
    partition: str = "partition"
    beside: tuple[str, ...] = ()

    def numbers(self, records: pa.Table) -> NDArray[np.int32]:
        """The feed of each record. Shapes: n records in, n out.

        Raises SchemaMismatchError for a record of a topic or partition that the batch does not read.
        """
        if not records.num_rows:
            return np.empty(0, np.int32)
        topics, table = _numbered(self.partitions)
        partitions = _known(records, self.partition, pa.int64())
        within = (partitions >= 0) & (partitions < table.shape[1])
        if len(topics) == 1 and self.topic == "topic":
            # Records of a job that reads one topic are of no other.
            rows = np.zeros(len(partitions), np.int64)
        else:
            codes = pc.fill_null(
                pc.index_in(one_array(records[self.topic]), value_set=pa.array(topics, pa.string())), -1
            )
            rows = codes.to_numpy().astype(np.int64)
        found = np.where(within & (rows >= 0), table[rows, np.where(within, partitions, 0)], -1)
        if (found < 0).any():
            self._refuse(records, int(np.argmin(found)))
        return found.astype(np.int32)

    def rows(self, records: pa.Table) -> pa.Table:
        """The records without the columns that are not the table's."""
        return records.drop_columns(list(self.beside)) if self.beside else records

    def _refuse(self, records: pa.Table, row: int) -> None:
        topic, partition = (records[name][row].as_py() for name in (self.topic, self.partition))
        raise SchemaMismatchError(
            f"a row says that it came from topic {topic!r} partition {partition!r}, which the offsets of this batch do "
            f"not have; columns {self.topic} and {self.partition} must hold Kafka's own topic and partition",
            column=self.topic,
        )


def _known(records: pa.Table, name: str, kind: pa.DataType) -> NDArray[np.int64]:
    """The numbers in a column, -1 for nulls."""
    numbers: NDArray[np.int64] = pc.fill_null(one_array(records[name]), -1).cast(kind).to_numpy()
    return numbers


@lru_cache(16)
def _numbered(partitions: Sequence[TopicPartition]) -> tuple[list[str], NDArray[np.int64]]:
    """The topics, and a table of numbers by position of the topic and by partition; -1 where there is none."""
    topics = sorted({topic for topic, _ in partitions})
    table = np.full((max(1, len(topics)), max((p for _, p in partitions), default=0) + 1), -1, np.int64)
    for number, (topic, partition) in enumerate(partitions):
        table[topics.index(topic), partition] = number
    return topics, table
