"""Batch reads for Spark: one snapshot, or the changes between two snapshots, as splits that tasks read.

The table and its schema are fixed when the DataFrame is made. The files are chosen when Spark plans an action.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from bucketline.conf.open_options import open_options
from bucketline.conf.reader_options import CHANGE_COLUMNS, ReaderOptions
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.catalog.table_handle import TableHandle, open_handle
from bucketline.state.store.read.change_splits import (
    ChangeSplit,
    change_units,
    pack_changes,
    possible_units,
    read_change_split,
)
from bucketline.state.store.read.projection import Projection
from bucketline.state.store.read.splits import Scan, Split, SplitSizes, TablePlace, pack, plan_scan, read_split
from bucketline.state.store.read.table_read import ReadRequest, filter_condition, plan_changes, rows_schema
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.char_text import chars_of
from bucketline.streaming.reader.change_columns import ChangeShape, change_names, with_change_columns
from bucketline.streaming.reader.data_source import DataSourceReader, InputPartition
from bucketline.streaming.reader.failures import naming_expiry
from bucketline.streaming.reader.pushed_filters import condition_of
from bucketline.streaming.reader.spark_rows import check_given, fit, names_of, spark_arrow, spark_schema
from bucketline.streaming.worker import begin_task

_REMEDY = "run the action again; to keep snapshots longer, set a tag or a longer 'snapshot.time-retained'"


@dataclass(frozen=True, slots=True)
class BatchRead:
    """A read of a table whose schema is fixed: a plain value that Spark can send to tasks."""

    options: ReaderOptions
    place: TablePlace
    request: ReadRequest

    @property
    def has_change_columns(self) -> bool:
        """Returns True if the rows are changes that show their kind: rows of a batch with `changes-since`, or of a
        stream that asks for the columns of changes.
        """
        return self.request.changes_since is not None or self.options.asks_for_changes

    def rows(self) -> pa.Schema:
        """Returns the schema of the rows of this read, in the table's types."""
        if not (self.has_change_columns or self.options.is_stream):
            return rows_schema(self.place.open(), self.request)
        names = change_names(self.options, self.place.schema)
        return with_change_columns(arrow_schema(self.place.schema.select(names.of_table)), names.names)

    def narrowed(self, user_schema: StructType) -> "BatchRead":
        """Returns this read with only the columns of `user_schema`, which the user or Spark gave. Raises
        SchemaMismatchError if the schema does not fit the table.
        """
        own = planned_schema(self)
        check_given(user_schema, own)
        names = names_of(user_schema)
        if names == names_of(own):
            return self
        read = unchecked_read(replace(self.options, columns=names), self.place)
        if names_of(planned_schema(read)) != names:
            raise SchemaMismatchError(
                f"the given schema lacks the columns {', '.join(CHANGE_COLUMNS)}; add at least one, or set "
                "'read.changelog' = false",
                column=CHANGE_COLUMNS[0],
            )
        return read

    def filtered(self, condition: pc.Expression | None) -> "BatchRead":
        """Returns this read with one more condition on its rows."""
        if condition is None:
            return self
        before = filter_condition(self.request.filter, self.place.schema)
        return replace(self, request=replace(self.request, filter=before.also(condition)))


def unchecked_read(options: ReaderOptions, place: TablePlace | None = None) -> BatchRead:
    """Returns the read that the options describe, for a batch or a stream. It has not been checked whether the options
    are allowed for a batch or for a stream. `place` is the table, if it was opened before.

    Raises OptionError, and the errors of opening a table.
    """
    if place is None:
        # `open_table` is not used, because Spark starts processes for each read, and importing all that a `Table` can
        # do takes long.
        place = TablePlace.of(open_handle(options.path, options.storage, *open_options(options.opening)))
    columns, since = options.columns, options.changes_since
    if since is not None:
        columns = change_names(options, place.schema).of_table
    version = options.version if since is None else options.changes_until
    request = ReadRequest(columns, options.filter, version, options.read_optimized, changes_since=since)
    return BatchRead(options, place, request)


def split_sizes(options: ReaderOptions, table: TableHandle) -> SplitSizes:
    """Returns the target sizes of splits: from the reader's options, or else from the table's options."""
    return SplitSizes(*options.split_bytes(table.table_schema.options))


@dataclass(frozen=True)
class RowsPartition(InputPartition):  # type: ignore[misc]
    """A partition of Spark for a batch read of one snapshot: the files that one task reads (`split`), and what they are
    read for (`scan`).
    """

    scan: Scan
    split: Split

    def rows(self) -> Iterator[pa.RecordBatch]:
        target = spark_arrow(self.scan.out)
        return (fit(b, target) for b in read_split(self.scan, self.split))


@dataclass(frozen=True)
class ChangesPartition(InputPartition):  # type: ignore[misc]
    """A part of the changes between two snapshots, with all that a task needs to read it."""

    place: TablePlace
    projection: Projection
    shape: ChangeShape
    split: ChangeSplit

    def rows(self) -> Iterator[pa.RecordBatch]:
        for unit, batch in read_change_split(self.place, self.projection, self.split):
            columns = pa.RecordBatch.from_arrays(batch.columns[:-1], schema=pa.schema(list(batch.schema)[:-1]))
            yield from self.shape.fit(columns, batch.columns[-1], unit.snapshot_id, unit.time_ms)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Spark's reader of a batch: plans the read on the driver, and reads the rows in tasks."""

    def __init__(self, read: BatchRead) -> None:
        self._read = read

    @property
    def plan(self) -> BatchRead:
        """Returns the read that this reader carries out: its options, the place of the table, and the request."""
        return self._read

    def partitions(self) -> Sequence[InputPartition]:
        begin_task()
        table = self._read.place.open()
        sizes = split_sizes(self._read.options, table)
        if self._read.request.changes_since is not None:
            return self._changes(table, sizes)
        scan = plan_scan(table, self._read.request)
        return [RowsPartition(scan.without_units(), split) for split in pack(scan.units, sizes)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        begin_task()
        if not isinstance(partition, RowsPartition | ChangesPartition):
            return iter(())
        snapshot_id = partition.scan.snapshot_id if isinstance(partition, RowsPartition) else None
        return naming_expiry(partition.rows(), self._read.place.uri, snapshot_id, _REMEDY)

    def _changes(self, table: TableHandle, sizes: SplitSizes) -> list[InputPartition]:
        assert self._read.request.changes_since is not None
        plan = plan_changes(table, self._read.request, self._read.request.changes_since)
        schema = plan.view.schema
        units = [unit for snapshot in plan.snapshots for unit in change_units(table, snapshot)]
        units = possible_units(table, units, plan.projection)
        names = change_names(self._read.options, schema)
        shape = ChangeShape.of(arrow_schema(schema.select(names.of_table)), names)
        place = TablePlace.of(table, schema)
        return [ChangesPartition(place, plan.projection, shape, s) for s in pack_changes(schema, units, sizes)]


class PushingReader(BatchReader):
    """A batch reader for a Spark that pushes filters down."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Notes the filters that the read can use, and returns all filters, so that Spark applies them again."""
        asked = set(self._read.rows().names)
        columns = arrow_schema([f for f in self._read.place.schema.fields if f.name in asked])
        self._read = self._read.filtered(condition_of(filters, columns))
        return filters


def planned_schema(read: BatchRead) -> StructType:
    """Returns the columns of a read as Spark's types."""
    return spark_schema(read.rows(), chars_of(read.place.schema.fields))
