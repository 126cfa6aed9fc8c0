"""The first stage, on executors: turns rows into sealed runs (sorted, packed rows), and sends each sealed run to the
task that decides the buckets of its rows, or that writes its rows.

Rows of a DataFrame come as record batches in `mapInArrow`. For Kafka and Parquet files, the task itself fetches the
records of its offset ranges or reads its files. If the record key is the primary key, the rows of one key come from one
input partition in offset order; across input partitions, the lower partition id counts as earlier. For a job that reads
files or buckets of the table itself, such as a delete, each task reads some of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from bucketline.state.store.engine.engine import PartReport, SourcePart
from bucketline.state.store.write.owned.owner_sealer import OwnerSealer
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.sealed_runs import SealedRun, SealPlan
from bucketline.state.types.arrow import UNAVAILABLE
from bucketline.state.types.schema_need import SchemaNeed
from bucketline.streaming.decode.decoder import Decoder, leaves_out_values
from bucketline.streaming.decode.rejects import RejectedRows, rejected_rows
from bucketline.streaming.decode.seen import NOTHING_SEEN, joined_seen
from bucketline.streaming.tasks.kafka.kafka_consumers import KEPT
from bucketline.streaming.tasks.kafka.kafka_feeds import KafkaFeeds
from bucketline.streaming.tasks.kafka.kafka_fetch import RangeFetch
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.parquet_files import ParquetFiles
from bucketline.streaming.tasks.parquet_fit import UnfitFileError
from bucketline.streaming.tasks.parquet_read import file_rows
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.wire import (
    NEEDS,
    REJECTS,
    REPORT,
    RUN,
    RUNS,
    SEEN,
    UNFIT,
    Routed,
    routed_mixed,
    routed_note,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A source of rows: the records of a Spark DataFrame. `decode` turns the records into rows; without `decode` the
    records are rows already.

    - A task reports at most about `reject_limit` bad records with their reasons; the limit is so large that more bad
      records would stop the job anyway. If the limit is None, the first bad row raises SchemaMismatchError.
    - `is_alone` is true if there are so few records that one task reads all of them.
    - `feeds` tells from which topic partition each record came; None if this does not matter.
    """

    frame: Any
    decode: Decoder | None = None
    reject_limit: int | None = 1
    is_alone: bool = False
    feeds: KafkaFeeds | None = None


_MOST_ROWS, _MOST_BYTES = 10_000, 64 << 20
"""Messages with few rows are joined until they have at least this many rows, or this many bytes."""

_NONE_REFUSED: tuple[tuple[pa.Table, pa.Array], ...] = ()

Records = Frame | KafkaRanges | ParquetFiles
"""The source of the records of a batch: a DataFrame, offset ranges of Kafka, or Parquet files."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The settings with which one task turns rows or records into sealed runs (sorted, packed rows). All settings are
    plain values that can be sent to tasks.

    `decode`, `reject_limit` and `feeds` are the attributes of the source with these names (see `Frame`). If a record
    needs a column that the table lacks, the batch will be read again. Then the task sends no more sealed runs, and
    only finds out which other columns its records need.
    """

    seal: SealPlan
    to: Destination
    decode: Decoder | None
    reject_limit: int | None
    feeds: KafkaFeeds | None = None

    def runs(self, tables: Iterable[pa.Table]) -> Iterator[Routed]:
        """Yields the sealed runs (sorted, packed rows) and the notes (other messages) that are made from this task's
        tables, in order.
        """
        sealing = Sealing(self)
        for rows in tables:
            yield from sealing.add(rows)
        yield from sealing.finish()


class Sealing:
    """Turns the rows or records of one task into sealed runs (sorted, packed rows) while they arrive."""

    def __init__(self, reading: ReadPlan) -> None:
        self._reading = reading
        self._origin = task_number()
        self._sealer = OwnerSealer(reading.seal, reading.to, origin=self._origin)
        self._acceptance = RowAcceptance(reading.seal.schema)
        self._refused_rows = 0
        self._needs: list[SchemaNeed] = []
        self._seen = NOTHING_SEEN

    @property
    def pending_bytes(self) -> int:
        """Returns the size of the rows that wait in memory until they are sorted and packed into sealed runs, in
        bytes.
        """
        return self._sealer.pending_bytes

    def add(self, rows: pa.Table) -> Iterator[Routed]:
        """Adds the next rows, and yields the sealed runs (sorted, packed rows) that are ready to be sent."""
        reading, origin = self._reading, self._origin
        limit = reading.reject_limit or 0
        feeds = None
        if reading.feeds is not None:
            feeds, rows = reading.feeds.numbers(rows), reading.feeds.rows(rows)
        if reading.decode is not None:
            made = reading.decode(rows)
            rows, rejects, need, also_seen, records = made.rows, made.rejects, made.need, made.seen, made.records
            assert UNAVAILABLE in rows.column_names or not leaves_out_values(reading.decode), "marks travel with rows"
            self._seen = joined_seen((self._seen, also_seen)) if also_seen else self._seen
            if feeds is not None:
                assert records is not None, "a decoder of Kafka's records says from which record each row comes"
                feeds = feeds[np.asarray(records)]
            if need and need not in self._needs:
                self._needs.append(need)
                yield routed_note(NEEDS, origin=origin, row_count=0, blob=need.encode())
            if self._needs:
                return
            if rejects is not None and (self._refused_rows < limit or rejects.unexpected_count):
                self._refused_rows += rejects.row_count
                yield _rejects(rejects, origin)
        if reading.reject_limit is None:
            accepted, refused = self._acceptance.accept(rows, feeds), _NONE_REFUSED
        else:
            accepted, refused = self._acceptance.accept_good(rows, feeds)
        for bad, reasons in refused:
            if self._refused_rows < limit:
                kept = rejected_rows(bad, reasons, limit - self._refused_rows)
                self._refused_rows += kept.row_count
                yield _rejects(kept, origin)
        for run in self._sealer.add(accepted):
            yield Routed(run.owner, RUNS, run)

    def flush(self) -> Iterator[Routed]:
        """Seals the rows that are not sealed yet, and yields the sealed runs (sorted, packed rows). Afterwards the rows
        use no memory.
        """
        for run in self._sealer.finish() if not self._needs else ():
            yield Routed(run.owner, RUNS, run)

    def finish(self) -> Iterator[Routed]:
        """Yields the sealed runs (sorted, packed rows) that have not been sent yet, and the task's notes: messages
        without rows, such as the note of what the task has seen. Called when all records have been added.
        """
        if self._seen:
            yield routed_note(SEEN, origin=self._origin, row_count=0, blob=self._seen.encode())
        yield from self.flush()
        if self._sealer.mixed is not None:
            yield routed_mixed(self._sealer.mixed, self._origin)


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads the records of a DataFrame. It holds only plain values, so that it can be sent to tasks."""

    reading: ReadPlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Routed]:
        return self.reading.runs(pa.Table.from_batches([batch]) for batch in batches)


@dataclass(frozen=True, slots=True)
class ReadMessagesTask:
    """A task that reads the records of a DataFrame from Arrow IPC messages, and yields the rows as sealed runs (sorted,
    packed rows). The object holds only plain values, so that it can be sent to executors.
    """

    reading: ReadPlan
    schema: pa.Schema

    def __call__(self, messages: Iterator[bytes]) -> Iterator[Routed]:
        return self.reading.runs(joined_messages(messages, self.schema))


@dataclass(frozen=True, slots=True)
class ReadKafkaTask:
    """A task that reads its own offset ranges from Kafka. It holds only plain values, so that it can be sent to
    executors.
    """

    reading: ReadPlan
    source: KafkaRanges

    def __call__(self) -> Iterator[Routed]:
        source, share = self.source, self.source.shares[task_number()]
        if not share:
            return
        with KEPT.consumer(source.reading.settings) as consumer:
            yield from self.reading.runs(RangeFetch(consumer, source.reading, source.columns).tables(share))


@dataclass(frozen=True, slots=True)
class ReadParquetTask:
    """A task that reads its own parts of Parquet files. The object holds only plain values, so that it can be sent to
    executors.

    The task ends at the first file that only Spark can read, because Spark will then read the whole batch again. The
    task sends a note about this file to every task of the next stage, not only to one of them: if this task runs a
    second time because its output was lost, some tasks of the next stage have ended already.
    """

    reading: ReadPlan
    source: ParquetFiles

    def __call__(self) -> Iterator[Routed]:
        try:
            yield from self.reading.runs(file_rows(self.source.shares[task_number()], self.source))
        except UnfitFileError as e:
            note = routed_note(UNFIT, origin=task_number(), row_count=0, blob=e.to_bytes())
            yield from to_each(note, self.reading.to)


@dataclass(frozen=True, slots=True)
class ReadPartsTask:
    """A task that reads some `parts` of a source, and yields the rows as sealed runs (sorted, packed rows). With n
    tasks, task i reads the parts i, i + n, i + 2n and so on. The object holds only plain values, so that it can be sent
    to executors.
    """

    seal: SealPlan
    to: Destination
    parts: Sequence[SourcePart]
    task_count: int

    def __call__(self) -> Iterator[Routed]:
        for part in self.parts[task_number() :: self.task_count]:
            for run in part.runs(self.seal):
                yield routed(run, self.to)


def to_each(note: Routed, to: Destination) -> Iterator[Routed]:
    """Yields copies of a message, one for each task of the next stage."""
    return (replace(note, task=number) for number in range(to.task_count))


def routed(result: SealedRun | PartReport, to: Destination) -> Routed:
    """Addresses something that a task of the first stage has made, and returns it as a message to a task of the next
    stage. A sealed run (sorted, packed rows) goes to the task that writes its rows. A report becomes a note to any
    task, which passes it on to the driver.
    """
    if isinstance(result, PartReport):
        return routed_note(REPORT, origin=task_number(), row_count=0, blob=result.payload)
    return routed_run(result, to)


def routed_run(run: SealedRun, to: Destination) -> Routed:
    """Returns a sealed run (sorted, packed rows), addressed to a task of the next stage: the task that decides the
    buckets of the rows, or the task that writes the bucket.
    """
    return Routed(to.task(run.partition, run.bucket), RUN, run)


def _rejects(rejects: RejectedRows, origin: int) -> Routed:
    return routed_note(REJECTS, origin=origin, row_count=rejects.row_count, blob=rejects.blob)


def joined_messages(messages: Iterable[bytes], schema: pa.Schema) -> Iterator[pa.Table]:
    """Takes messages, which are record batches in Arrow's IPC format. Yields their rows in larger tables, of about the
    size that Spark passes to a task at once.
    """
    kept, rows, size = list[pa.RecordBatch](), 0, 0
    for message in messages:
        kept.append(pa.ipc.read_record_batch(pa.py_buffer(message), schema))
        rows, size = rows + kept[-1].num_rows, size + len(message)
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield pa.Table.from_batches(kept, schema).combine_chunks()
            kept, rows, size = [], 0, 0
    if kept:
        yield pa.Table.from_batches(kept, schema).combine_chunks()


def decoded(batches: Iterable[pa.RecordBatch], decode: Decoder | None) -> Iterator[pa.Table]:
    """Yields the rows in batches from a DataFrame. If the batches hold undecoded records, `decode` turns them into
    rows; otherwise `decode` is None. Raises SchemaMismatchError if a record is bad.
    """
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        yield rows if decode is None else decode(rows).rows


def task_number() -> int:
    """Returns the number of the task that this process runs; 0 outside of Spark."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def drain(items: Iterator[Any]) -> None:
    """Reads and drops the items that Spark passes to a task that does not need them."""
    for item in items:
        del item
