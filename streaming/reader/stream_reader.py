"""Streams of a table's changes: Spark's reader, in the forms that the releases of Spark need.

Spark 4.0 and 4.1 ask for the newest offset without saying which position the query has reached, so the reader remembers
the position. From 4.2 on Spark passes the position, and says which trigger asks.
Source: Spark 4.0 to 4.2 PythonMicroBatchStream, pyspark.sql.streaming.python_streaming_source_runner.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from bucketline.conf.errors import OptionError
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.store.catalog.consumers import begin_consumer, set_next_of_consumer
from bucketline.state.store.read.change_splits import pack_changes, possible_units
from bucketline.state.store.read.splits import Scan, Split, TablePlace, pack, read_split
from bucketline.state.store.read.table_read import ReadRequest, rows_projection
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.reader.batch_reader import BatchRead, ChangesPartition, split_sizes
from bucketline.streaming.reader.change_columns import ChangeShape, change_names
from bucketline.streaming.reader.data_source import DataSourceStreamReader, InputPartition
from bucketline.streaming.reader.failures import naming_expiry
from bucketline.streaming.reader.stream_plan import REMEDY, Limits, StreamPlan
from bucketline.streaming.reader.stream_position import BEGINNING, JsonObject, Offset, StreamPosition, offset_of
from bucketline.streaming.reader.stream_start import check_streamable, start_of
from bucketline.streaming.worker import begin_task

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    KNOWS_THE_START = False
else:
    KNOWS_THE_START = True


@dataclass(frozen=True)
class FullPartition(InputPartition):  # type: ignore[misc]
    """A stream begins with all rows of a snapshot. This value is a part of these rows, with all that a task needs to
    read the part.
    """

    scan: Scan
    shape: ChangeShape
    split: Split

    def rows(self) -> Iterator[pa.RecordBatch]:
        assert self.scan.snapshot_id is not None
        for batch in read_split(self.scan, self.split):
            kinds = pa.repeat(pa.scalar(RowKind.INSERT, pa.int8()), batch.num_rows)
            yield from self.shape.fit(batch, kinds, self.scan.snapshot_id, self.scan.time_ms)


class StreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Plans the stream of a table: where the stream starts, where a micro-batch ends, and what lies between. A
    StreamReader does not know which position the query has reached.
    """

    def __init__(self, read: BatchRead, world: World = SYSTEM_WORLD) -> None:
        self.read_plan = read
        self._options = read.options
        self._names = change_names(read.options, read.place.schema)
        self._place = read.place
        self._has_all_columns = read.options.columns is None
        self._world = world
        self._plan: StreamPlan | None = None
        self._started: StreamPosition | None = None
        self._noted: int | None = None

    def initialOffset(self) -> JsonObject:
        return BEGINNING.to_json()

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        first, last = offset_of(start), offset_of(end)
        if first == last:
            return []
        at = first.at
        if first == BEGINNING:
            assert last.started is not None, "the first offset says where the stream started"
            at = last.started
            self._note_progress(at)
        if last.at.order < at.order:
            raise OptionError(
                f"the next offset {last.at.to_json()} is before the offset {at.to_json()} in the checkpoint: was the "
                "table rolled back? Start the query with another checkpoint",
                key="checkpointLocation",
            )
        scan, units = self.plan.between(at, last.at)
        schema = self.plan.schema
        sizes = split_sizes(self._options, self.plan.table)
        shape = ChangeShape.of(arrow_schema(schema.select(self._names.of_table)), self._names)
        partitions: list[InputPartition] = []
        if scan is not None:
            whole = scan.without_units()
            partitions += [FullPartition(whole, shape, split) for split in pack(scan.units, sizes)]
        projection = rows_projection(self.plan.table, self.plan.request)
        units = possible_units(self.plan.table, units, projection)
        place = TablePlace.of(self.plan.table)
        partitions += [
            ChangesPartition(place, projection, shape, split) for split in pack_changes(schema, units, sizes)
        ]
        return partitions

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        begin_task()
        if not isinstance(partition, FullPartition | ChangesPartition):
            return iter(())
        snapshot_id = partition.scan.snapshot_id if isinstance(partition, FullPartition) else None
        return naming_expiry(partition.rows(), self._place.uri, snapshot_id, REMEDY)

    def commit(self, end: JsonObject) -> None:
        """Stores in the consumer that the stream has read everything before `end`. Spark calls this when it has
        committed the micro-batch that ends there.
        """
        self._note_progress(offset_of(end).at)

    @property
    def plan(self) -> StreamPlan:
        """Returns the plan of the stream. The plan is made at the first call, because a reader that is sent to tasks
        needs no plan.
        """
        if self._plan is None:
            request = ReadRequest(self._names.of_table, self._options.filter)
            self._plan = StreamPlan(self._place.open(), request, self._has_all_columns)
        return self._plan

    @property
    def limits(self) -> Limits:
        return Limits(*self._options.limits)

    def newest_id(self) -> int | None:
        """Returns the id of the newest snapshot that is certain to stay; None if there is no such snapshot. (A writer
        may take back a snapshot that it has just published, if files of the snapshot are gone.)
        """
        return self.plan.table.snapshot_store.settled_id(self._world.clock.now_ms())

    def next_offset(self, start: JsonObject, limits: Limits, newest_id: int | None) -> JsonObject:
        """Returns the end of the next micro-batch, which begins at `start`. Returns `start` itself if there is nothing
        new.
        """
        before = offset_of(start)
        if before != BEGINNING:
            has_read = before.at != before.started
            if has_read and before.at.snapshot > (newest_id or 0) + 1:
                self.plan.check_not_rolled_back(before.at)
            end = self.plan.advance(before.at, limits, newest_id or 0)
            return start if end == before.at else Offset(end).to_json()
        if self._started is None:
            self._started = start_of(self.plan.table, self._options, newest_id)
        end = self.plan.advance(self._started, limits, newest_id or 0)
        return Offset(end, self._started).to_json()

    def _note_progress(self, at: StreamPosition) -> None:
        if self._options.consumer_id is not None and at.snapshot != self._noted:
            table = self.plan.table
            io, path, consumer = table.io, table.metadata_path, self._options.consumer_id
            if self._noted is None:
                begin_consumer(table.snapshot_store, io, path, consumer, at.snapshot, self._world)
            else:
                set_next_of_consumer(io, path, consumer, at.snapshot)
            self._noted = at.snapshot


class RememberingReader(StreamReader):
    """The reader for Spark 4.0 and 4.1. These releases ask for the newest offset, and do not say which position the
    query has reached, so the reader remembers the position.
    """

    _cursor: JsonObject | None = None
    _is_guess = False

    def latestOffset(self) -> JsonObject:
        self._is_guess = self._cursor is None
        start = self.initialOffset() if self._cursor is None else self._cursor
        self._cursor = self.next_offset(start, self.limits, self.newest_id())
        return self._cursor

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        if start == end:
            # After a restart Spark asks for an empty range, to say which position the query has reached.
            if self._is_guess and self.limits:
                raise OptionError(
                    "this release of Spark cannot limit the micro-batches of a restarted stream if the trigger is "
                    "availableNow: remove the limits (read.stream.max...), use another trigger, or use Spark 4.2",
                    key="trigger",
                )
            self._cursor = end
        self._is_guess = False
        return super().partitions(start, end)


if KNOWS_THE_START:

    class AskedReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
        """The reader for Spark 4.2 and later."""

        _target: tuple[int | None] | None = None
        """The newest snapshot at the start of a query with the trigger availableNow."""

        def latestOffset(self, start: JsonObject, limit: Any) -> JsonObject:
            limits = Limits() if isinstance(limit, ReadAllAvailable) else self.limits
            return self.next_offset(start, limits, self.newest_id() if self._target is None else self._target[0])

        def getDefaultReadLimit(self) -> "ReadLimit":
            limits = self.limits
            if limits.files is not None:
                return ReadMaxFiles(limits.files)
            if limits.bytes is not None:
                return ReadMaxBytes(limits.bytes)
            return ReadAllAvailable() if limits.rows is None else ReadMaxRows(limits.rows)

        def prepareForTriggerAvailableNow(self) -> None:
            self._target = (self.newest_id(),)


def stream_reader(read: BatchRead, schema: StructType) -> StreamReader:
    """Returns the reader of a stream with the columns of `schema`. Raises OptionError or UnsupportedTableError if the
    table's changes cannot be streamed.
    """
    check_streamable(read.place.schema, read.options)
    return (AskedReader if KNOWS_THE_START else RememberingReader)(read.narrowed(schema))
