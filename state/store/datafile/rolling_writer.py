"""Writes rows of one bucket to data files, begins a new file when a file has reached its size, and makes the files'
metadata for manifests.

Memory is bounded by one row group: rows are collected until a group is full, and then written.

Source: Paimon 2.0 KeyValueDataFileWriter, RowDataFileWriter, RollingFileWriter, StatsCollectorFactories.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.commit.live_files import BucketId
from bucketline.state.determinism import World
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource
from bucketline.state.format.index.file_index import INDEX_SUFFIX
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import POSTPONE_BUCKET, data_file_name, new_file_folder
from bucketline.state.format.row_ranges import has_row_ids
from bucketline.state.format.stats import KEY_MODE, ColumnStats, collect_stats, unknown_stats
from bucketline.state.lsm.aggregate.column import null_result
from bucketline.state.lsm.merge.overflow_risk import shortened_decimals
from bucketline.state.store.datafile.external_places import ExternalPlaces
from bucketline.state.store.datafile.file_settings import Postponed, file_settings, row_sink
from bucketline.state.store.datafile.formats import FileSettings
from bucketline.state.store.datafile.index_of_rows import IndexOfRows
from bucketline.state.store.storage.errors import storage_errors
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.types.arrow import KEY_PREFIX, SEQUENCE, VALUE_KIND, arrow_schema
from bucketline.state.types.binary_row import encode_row
from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import DataField
from bucketline.state.types.long_decimals import null_where_too_long
from bucketline.state.types.row_kind import is_retract
from bucketline.state.types.values import from_scalar

_DENSEST_ROWS = 1 << 20
"""The largest number of rows in a row group, however narrow the rows are."""

_UNORDERED = -1
"""The sequence number of every postponed row. The compaction that moves the row to a bucket gives it a real sequence
number.
"""


class RollingWriter:
    """Writes rows of one bucket, in the order in which they come, to as many files as the target size requires.

    Rows of a primary-key table must be in strictly ascending key order over all calls, and have the columns
    `_SEQUENCE_NUMBER` and `_VALUE_KIND`; the `_KEY_` columns are added here. Rows of an append table have only the
    table's columns, and get sequence numbers from `first_sequence_number` on. Rows for the postpone bucket are in order
    of arrival, and need no `_SEQUENCE_NUMBER`.

    Raises UnsupportedTableError and OptionError for settings that `file_settings` refuses, before anything is written.
    `settings` is the result of `file_settings` for these files, if the caller has it already. Use the writer in a
    `with` block: after an exception, every file that it has written is removed.

    The attributes belong together because any call may end one file and begin the next file. The metadata of a file is
    made from the schema, the settings and the level of all files, from the open file, and from the sequence numbers
    that earlier files have used. The rows that wait decide when a row group and a file are full.
    """

    def __init__(
        self,
        io: FileIO,
        table_path: str,
        schema: TableSchema,
        *,
        world: World,
        place: BucketId = (EMPTY_ROW, 0),
        level: int = 0,
        source: FileSource = FileSource.APPEND,
        first_sequence_number: int = 0,
        postponed: Postponed | None = None,
        settings: FileSettings | None = None,
    ) -> None:
        partition, bucket = place
        assert postponed is None or (bucket, level) == (POSTPONE_BUCKET, 0), "postponed rows have a bucket of their own"
        self._is_postponed = postponed is not None
        self._io = io
        self._directory = f"{table_path}/{new_file_folder(schema, partition, bucket)}"
        self._uuid = world.ids.new_uuid()
        self._outside = ExternalPlaces(schema, partition, bucket, self._uuid)
        self._schema = schema
        self._world = world
        self._level = level
        self._source = source
        self._settings = settings or file_settings(schema, level=level, source=source, postponed=postponed)
        self._keys = schema.select(schema.trimmed_primary_key)
        self._has_row_ids = has_row_ids(schema)
        self._physical = arrow_schema(self._settings.fields)
        self._long = frozenset(shortened_decimals(schema))
        self._next_sequence_number = first_sequence_number
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._open: _OpenFile | None = None
        self._closed: list[DataFileMeta] = []
        self._made: list[tuple[FileIO, str]] = []

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds rows. The columns of `rows` are found by name. Row groups that are full are written."""
        physical = self._with_keys(rows)
        while physical.num_rows:
            row_count = min(physical.num_rows, self._room(physical))
            part = physical.slice(0, row_count)
            physical = physical.slice(row_count)
            self._pending.append(part)
            self._pending_bytes += part.nbytes
            self._pending_rows += row_count
            if self._room(part) == 0:
                self._write_group()

    def close(self) -> list[DataFileMeta]:
        """Writes the remaining rows. Returns the metadata of the files in the order of their rows; an empty list if
        there were no rows.
        """
        self._write_group()
        self._close_file()
        return self._closed

    def abort(self) -> None:
        """Removes every file that this writer has written, including files that are closed."""
        if self._open is not None:
            self._open.abandon()
            self._open = None
        for io, path in self._made:
            io.delete(path)
        self._closed, self._made, self._pending = [], [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()

    def _with_keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        if self._is_postponed:
            unordered = pa.repeat(pa.scalar(_UNORDERED, pa.int64()), rows.num_rows)
            columns = [
                unordered if f.name == SEQUENCE else rows.column(f.name.removeprefix(KEY_PREFIX))
                for f in self._physical
            ]
        else:
            columns = [rows.column(f.name.removeprefix(KEY_PREFIX)) for f in self._physical]
        for position, field in enumerate(self._physical):
            if field.name in self._long:
                columns[position] = null_where_too_long(one_array(columns[position]))
            if not field.nullable and columns[position].null_count:
                raise SchemaMismatchError(null_result(field.name), column=field.name)
        return pa.Table.from_arrays(columns, schema=self._physical)

    def _room(self, rows: pa.Table) -> int:
        """Returns how many more rows fit into the current row group, if they are as large as the average of `rows`. The
        row group is limited in bytes and in rows, and the file is limited in rows.
        """
        row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
        written = 0 if self._open is None else self._open.row_count
        room = max(
            0 if self._pending_rows else 1,
            min(
                (self._settings.group_bytes - self._pending_bytes) // row_bytes,
                _DENSEST_ROWS - self._pending_rows,
                self._settings.target_rows - written - self._pending_rows,
            ),
        )
        return int(room)

    def _write_group(self) -> None:
        if not self._pending:
            return
        group = pa.concat_tables(self._pending)
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        if self._open is None:
            name = data_file_name(self._settings.prefix, self._uuid, len(self._closed), self._settings.form.value)
            outside = self._outside.place(name)
            io, path = self._io, f"{self._directory}/{name}"
            if outside is not None:
                io, path = file_io_for(outside, self._schema.storage, self._world)
            self._made.append((io, path))
            self._open = _OpenFile(io, path, name, self._settings, group, outside)
        self._open.write(group, self._schema.fields, self._keys)
        full = self._open.size_bytes >= self._settings.target_bytes
        if full or self._open.row_count >= self._settings.target_rows:
            self._close_file()

    def _close_file(self) -> None:
        if self._open is None:
            return
        file, self._open = self._open, None
        described = self._describe(file, file.finish())
        index = file.index.to_bytes()
        if index is not None and len(index) <= self._settings.index_in_manifest_bytes:
            described = replace(described, embedded_index=index)
        elif index is not None:
            io, path = self._made[-1]
            self._made.append((io, f"{path}{INDEX_SUFFIX}"))
            io.write_new(f"{path}{INDEX_SUFFIX}", index)
            described = replace(described, extra_files=(f"{file.name}{INDEX_SUFFIX}",))
        self._closed.append(described)

    def _describe(self, file: "_OpenFile", size_bytes: int) -> DataFileMeta:
        assert file.values is not None
        names: tuple[str, ...] | None = None
        if self._settings.is_dense:
            values, names = file.values.to_simple_stats()
        else:
            values = file.values.to_full_stats()
        if self._is_postponed:
            # The rows of a postponed file are not sorted, so its first and last keys are no bounds. Java writes no
            # bounds either.
            keys = unknown_stats(self._keys)
        else:
            keys = EMPTY_STATS if file.key_stats is None else file.key_stats.to_full_stats()
        low, high = file.sequence_range or (
            self._next_sequence_number,
            self._next_sequence_number + file.row_count - 1,
        )
        self._next_sequence_number = high + 1
        if self._has_row_ids and file.sequence_range is None:
            low = high = 0  # The commit decides the sequence numbers of these files.
        return DataFileMeta(
            file_name=file.name,
            file_size=size_bytes,
            row_count=file.row_count,
            min_key=file.min_key,
            max_key=file.max_key,
            key_stats=keys,
            value_stats=values,
            min_sequence_number=low,
            max_sequence_number=high,
            schema_id=self._schema.id,
            level=self._level,
            creation_time_ms=self._world.clock.local_ms(),
            delete_row_count=file.delete_row_count,
            file_source=self._source,
            value_stats_cols=names,
            external_path=file.external_path,
            write_cols=tuple(f.name for f in self._schema.fields) if self._has_row_ids else None,
        )


class _OpenFile:
    """A file that is being written, with the statistics of its rows so far.

    Each row group changes all of the statistics, and the manifest entry of the file needs all of them. So they stay
    together until the file is closed.
    """

    def __init__(
        self, io: FileIO, path: str, name: str, settings: FileSettings, first: pa.Table, outside: str | None
    ) -> None:
        self.name = name
        self.external_path = outside
        self.row_count = 0
        self.delete_row_count = 0
        self.min_key = self.max_key = EMPTY_ROW
        self.sequence_range: tuple[int, int] | None = None
        self.values: ColumnStats | None = None
        self.key_stats: ColumnStats | None = None
        self.index = IndexOfRows(settings.indexed)
        self._modes = settings.modes
        self._path = path
        self._sink = io.open_output(path)
        with storage_errors(path):
            self._rows = row_sink(settings, self._sink, name, first=first)

    @property
    def size_bytes(self) -> int:
        """Returns the number of bytes written so far, without the footer, and without ORC's buffer for the
        last stripe.
        """
        return int(self._sink.tell())

    def write(self, group: pa.Table, fields: tuple[DataField, ...], keys: tuple[DataField, ...]) -> None:
        """Writes a row group of at least one row. `fields` are the columns with statistics, and `keys` are the key
        columns (empty for an append table).
        """
        with storage_errors(self._path):
            self._rows.write(group)
        self.index.add(group)
        stats = collect_stats(group, fields, self._modes)
        if keys:
            self._note_keys(group, keys, stats.of_keys(keys))
        elif SEQUENCE in group.column_names:
            self._note_versions(group.column(SEQUENCE))
        self.values = stats if self.values is None else self.values.merge(stats)
        self.row_count += group.num_rows

    def finish(self) -> int:
        """Completes the file, and returns its size in bytes."""
        with storage_errors(self._path):
            self._rows.close()
            size_bytes = int(self._sink.tell())
            self._sink.close()
            return size_bytes

    def abandon(self) -> None:
        """Closes the file and ignores errors of the storage. The caller removes the file."""
        with suppress(pa.ArrowException, OSError, StorageError):
            self._rows.close()
        with suppress(pa.ArrowException, OSError, StorageError):
            self._sink.close()

    def _note_keys(self, group: pa.Table, keys: tuple[DataField, ...], stats: ColumnStats | None) -> None:
        if self.row_count == 0:
            self.min_key = _key_at(group, keys, 0)
        self.max_key = _key_at(group, keys, group.num_rows - 1)
        self._note_versions(group.column(SEQUENCE))
        self.delete_row_count += pc.sum(is_retract(group.column(VALUE_KIND))).as_py() or 0
        key_stats = stats or collect_stats(group, keys, [KEY_MODE] * len(keys))
        self.key_stats = key_stats if self.key_stats is None else self.key_stats.merge(key_stats)

    def _note_versions(self, numbers: pa.ChunkedArray) -> None:
        bounds = pc.min_max(numbers)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        seen = self.sequence_range or (low, high)
        self.sequence_range = (min(low, seen[0]), max(high, seen[1]))


def write_data_files(writer: RollingWriter, batches: Iterable[pa.Table | pa.RecordBatch]) -> list[DataFileMeta]:
    """Writes the batches to files, and returns the metadata of the files. If writing fails, or if `batches` raises an
    exception, all files are removed.
    """
    with writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def _key_at(rows: pa.Table, keys: tuple[DataField, ...], place: int) -> bytes:
    """Returns the key of the row at the position `place`, in the serialized form that manifests hold."""
    return encode_row([from_scalar(rows.column(k.name)[place], k.type) for k in keys], [k.type for k in keys])
