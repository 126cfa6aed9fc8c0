"""Runs the tasks of a batch of many tables. Tasks first read all records once and send them to the tasks that write.
These tasks write when the driver has decided what to write.

`Ahead` is a batch that was read and is not written yet. `SparkTables` runs the tasks in Spark; tests without Spark use
another class with the same methods.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.engine.engine import Engine
from bucketline.streaming.tasks.frame_messages import frame_messages
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.many.read_tables import (
    KnownTables,
    ReadTables,
    ReadTablesOfFrame,
    ReadTablesOfKafka,
    SharedTables,
)
from bucketline.streaming.tasks.many.table_notes import TaskNotes, pass_on, read_notes, table_of
from bucketline.streaming.tasks.many.two_steps import TwoSteps, steps_without_input
from bucketline.streaming.tasks.many.write_tables import WriteTables
from bucketline.streaming.tasks.read_task import Frame
from bucketline.streaming.tasks.spark_engine import SparkEngine
from bucketline.streaming.tasks.wire import TaskResult

TableResults = Mapping[int, Sequence[TaskResult]]
"""The results of the tasks that write, by the number of the table."""


class Ahead(Protocol):
    """The records of a batch after tasks have read them and sealed them into runs (sorted, packed rows). Nothing is
    written until `write` is called.
    """

    @property
    def notes(self) -> TaskNotes:
        """The notes of the tasks that have read."""
        ...

    def write(self, tables: WriteTables) -> TableResults:
        """Writes the tables, and returns the results by the number of the table. May be called only once."""
        ...


class TablesEngine(Protocol):
    """Reads and writes the tables of a batch."""

    @property
    def engine(self) -> Engine:
        """The engine for work on one table, such as compaction."""
        ...

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at the same time."""
        ...

    def keep(self, known: KnownTables) -> SharedTables:
        """Makes `known` (what tasks must know about the job's tables) available to tasks, until the next call with
        another value. Returns the object from which tasks get `known`.
        """
        ...

    def read(self, reading: ReadTables, source: Any) -> AbstractContextManager[Ahead]:
        """Reads the records of a source in tasks. The `with` block gets an object with the notes of these tasks, which
        also writes the records that were read. Spark keeps the records until the block ends. `reading.notes_to` is the
        number of tasks that write.
        """
        ...


@dataclass(slots=True)
class SparkTables:
    """The engine that runs the tasks of a job of several tables in a Spark session. What tasks must know about the
    tables is broadcast to the executors, and stays there until it changes.
    """

    spark: Any
    _broadcast: Any = field(default=None, init=False)

    @property
    def engine(self) -> SparkEngine:
        return SparkEngine(self.spark)

    @property
    def parallelism(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def keep(self, known: KnownTables) -> SharedTables:
        """Broadcasts `known` with Spark, unless the last call had the same object. The broadcast of the last call is
        destroyed before. See `TablesEngine.keep`.
        """
        if self._broadcast is None or self._broadcast.value is not known:
            self.close()
            self._broadcast = self.spark.sparkContext.broadcast(known)
        kept: SharedTables = self._broadcast
        return kept

    def close(self) -> None:
        """Destroys the broadcast of the facts about tables, if there is one."""
        if self._broadcast is not None:
            self._broadcast.destroy()
            self._broadcast = None

    @contextmanager
    def read(self, reading: ReadTables, source: KafkaRanges | Frame) -> Iterator[Ahead]:
        with self._steps(reading, source) as steps:
            notes = read_notes(steps.run(pass_on, [reading.notes_to]))
            yield _Sent(steps, reading.notes_to, notes)

    def _steps(self, reading: ReadTables, source: KafkaRanges | Frame) -> TwoSteps:
        count = reading.notes_to + 1
        if isinstance(source, KafkaRanges):
            first = ReadTablesOfKafka(reading, source)
            return steps_without_input(self.spark, len(source.shares), first, count)
        messages = frame_messages(self.spark, source.frame, is_alone=source.is_alone)
        if messages is None:
            raise UnsupportedTableError(
                "a job of several tables needs the rows of a DataFrame as Arrow, which this version of Spark does not "
                "provide; set source.reader to native, or use Spark 4"
            )
        return TwoSteps(self.spark, messages.rdd, ReadTablesOfFrame(reading, messages.schema), count)


@dataclass(frozen=True, slots=True)
class _Sent:
    steps: TwoSteps
    count: int
    notes: TaskNotes

    def write(self, tables: WriteTables) -> TableResults:
        return by_table(self.steps.run(tables, range(self.count)))


def by_table(results: Sequence[TaskResult]) -> TableResults:
    """Returns the results of the tasks that write, grouped by the number of the table."""
    found: dict[int, list[TaskResult]] = {}
    for result in results:
        number, payload = table_of(result.payload)
        found.setdefault(number, []).append(replace(result, payload=payload))
    return found
