"""Rows of one bucket to data files that roll at a size, with the metadata that manifests need.

Memory is bounded by one row group: rows are gathered until a group is full, then written and forgotten.
Source: Paimon 2.0 KeyValueDataFileWriter, RowDataFileWriter, RollingFileWriter, StatsCollectorFactories.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.option import UNLIMITED
from bucketline.conf.table_options import (
    DATA_FILE_PREFIX,
    DATA_FILE_THIN_MODE,
    FILE_BLOCK_SIZE,
    FILE_COMPRESSION,
    FILE_COMPRESSION_PER_LEVEL,
    FILE_FORMAT,
    FILE_FORMAT_PER_LEVEL,
    STATS_DENSE_STORE,
    TARGET_FILE_ROW_NUM,
    ZSTD_LEVEL,
    target_file_size,
)
from bucketline.state.determinism import Clock, IdSource
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta, FileSource
from bucketline.state.format.paths import bucket_path, data_file_name
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.format.stats import KEY_MODE, ColumnStats, StatsMode, collect_stats, stats_modes
from bucketline.state.store.file_io import FileIO
from bucketline.state.store.parquet_sink import parquet_writer, refuse_mixed_timestamps
from bucketline.state.types.arrow import KEY_PREFIX, SEQUENCE, VALUE_KIND, arrow_schema, key_value_schema
from bucketline.state.types.binary_row import encode_rows
from bucketline.state.types.logical import DataField
from bucketline.state.types.row_kind import is_retract

ROW_GROUP_BYTES = 32 << 20
"""Arrow bytes of a row group, and so of what a writer holds, unless `file.block-size` asks for less."""

_SMALLEST_GROUP_BYTES = 64 << 10
_GROUPS_PER_FILE = 4
_DENSEST_ROWS = 1 << 20
"""Rows of a row group at most, however narrow they are."""


@dataclass(frozen=True, slots=True)
class Postponed:
    """Files of the postpone bucket: who writes them, and the number of the writer that all rows of a key go through."""

    user: str
    writer_id: int


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How the files of one level are written; sizes in bytes."""

    compression: str
    compression_level: int | None
    target_bytes: int
    target_rows: int
    group_bytes: int
    prefix: str
    is_thin: bool
    is_dense: bool
    modes: tuple[StatsMode, ...]


def file_settings(schema: TableSchema, *, level: int, source: FileSource) -> FileSettings:
    """The settings that a table's options give for files of a level.

    Raises UnsupportedTableError when another format than Parquet is wanted, or what we cannot write in that;
    OptionError for an unreadable option.
    """
    refuse_mixed_timestamps(schema.fields)
    options = schema.options
    file_format = FILE_FORMAT_PER_LEVEL.get(options).get(str(level), FILE_FORMAT.get(options)).lower()
    if file_format != "parquet":
        raise UnsupportedTableError(f"data files of format {file_format} cannot be written", format=file_format)
    codec = FILE_COMPRESSION_PER_LEVEL.get(options).get(str(level), FILE_COMPRESSION.get(options)).lower()
    target_bytes = target_file_size(options, has_primary_key=bool(schema.primary_keys))
    group_bytes = min(
        FILE_BLOCK_SIZE.find(options) or ROW_GROUP_BYTES, ROW_GROUP_BYTES, target_bytes // _GROUPS_PER_FILE
    )
    return FileSettings(
        compression={"none": "NONE", "uncompressed": "NONE", "zstandard": "ZSTD"}.get(codec, codec.upper()),
        compression_level=ZSTD_LEVEL.get(options) if codec in ("zstd", "zstandard") else None,
        target_bytes=target_bytes,
        target_rows=TARGET_FILE_ROW_NUM.get(options) if source is FileSource.APPEND else UNLIMITED,
        group_bytes=max(_SMALLEST_GROUP_BYTES, group_bytes),
        prefix=DATA_FILE_PREFIX.get(options),
        is_thin=DATA_FILE_THIN_MODE.get(options),
        is_dense=STATS_DENSE_STORE.get(options),
        modes=stats_modes(schema.fields, options, level),
    )


class RollingWriter:
    """Writes rows of one bucket, in the order given, to as many files as the target size asks for.

    Rows of a primary-key table must be in strictly ascending key order over all calls, and carry `_SEQUENCE_NUMBER` and
    `_VALUE_KIND`; the `_KEY_` columns are added here. Rows of an append table carry the table's columns alone and get
    sequence numbers from `first_sequence_number` on.
    Use it in a `with` block: an exception removes every file it wrote. The directory is `directory`, below the table.
    """

    def __init__(
        self,
        io: FileIO,
        table_path: str,
        schema: TableSchema,
        *,
        clock: Clock,
        ids: IdSource,
        partition: bytes = EMPTY_ROW,
        bucket: int = 0,
        level: int = 0,
        source: FileSource = FileSource.APPEND,
        first_sequence_number: int = 0,
        postponed: Postponed | None = None,
    ) -> None:
        self._postponed = postponed
        self._io = io
        self._directory = f"{table_path}/{bucket_path(schema, partition, bucket)}"
        self._schema = schema
        self._clock = clock
        self._level = level
        self._source = source
        self._settings = file_settings(schema, level=level, source=source)
        self._uuid = ids.new_uuid()
        self._keys = schema.select(schema.trimmed_primary_key)
        thin = self._settings.is_thin
        self._physical = key_value_schema(schema, thin=thin) if self._keys else arrow_schema(schema.fields)
        self._next_sequence_number = first_sequence_number
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._open: _OpenFile | None = None
        self._closed: list[DataFileMeta] = []
        self._paths: list[str] = []

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Takes rows; columns are found by name. Writes whatever row groups are full."""
        physical = self._with_keys(rows)
        while physical.num_rows:
            taken = min(physical.num_rows, self._room(physical))
            part = physical.slice(0, taken)
            physical = physical.slice(taken)
            self._pending.append(part)
            self._pending_bytes += part.nbytes
            self._pending_rows += taken
            if self._room(part) == 0:
                self._write_group()

    def close(self) -> list[DataFileMeta]:
        """Writes what is left; the files, in row order. Without rows there are none."""
        self._write_group()
        self._close_file()
        return self._closed

    def abort(self) -> None:
        """Removes every file this writer has written, also closed ones."""
        if self._open is not None:
            self._open.abandon()
            self._open = None
        for path in self._paths:
            self._io.delete(path)
        self._closed, self._paths, self._pending = [], [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()

    def _with_keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        columns = [rows.column(f.name.removeprefix(KEY_PREFIX)) for f in self._physical]
        return pa.Table.from_arrays(columns, schema=self._physical)

    def _room(self, rows: pa.Table) -> int:
        """How many rows like these still fit into the row group, by bytes and by the file's limit of rows."""
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
        group = pa.concat_tables(self._pending).combine_chunks()
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        if self._open is None:
            name = data_file_name(self._settings.prefix, self._uuid, len(self._paths), "parquet")
            self._paths.append(f"{self._directory}/{name}")
            self._open = _OpenFile(self._io, self._paths[-1], name, self._physical, self._settings)
        self._open.write(group, self._schema.fields, self._keys)
        full = self._open.size_bytes >= self._settings.target_bytes
        if full or self._open.row_count >= self._settings.target_rows:
            self._close_file()

    def _close_file(self) -> None:
        if self._open is None:
            return
        file, self._open = self._open, None
        self._closed.append(self._describe(file, file.finish()))

    def _describe(self, file: "_OpenFile", size_bytes: int) -> DataFileMeta:
        assert file.values is not None
        values, names = file.values.to_simple_stats()
        if not self._settings.is_dense:
            values, names = file.values.to_full_stats(), None
        low, high = file.sequence_range or (
            self._next_sequence_number,
            self._next_sequence_number + file.row_count - 1,
        )
        self._next_sequence_number = high + 1
        return DataFileMeta(
            file_name=file.name,
            file_size=size_bytes,
            row_count=file.row_count,
            min_key=file.min_key,
            max_key=file.max_key,
            key_stats=EMPTY_STATS if file.key_stats is None else file.key_stats.to_full_stats(),
            value_stats=values,
            min_sequence_number=low,
            max_sequence_number=high,
            schema_id=self._schema.id,
            level=self._level,
            creation_time_ms=self._clock.local_ms(),
            delete_row_count=file.delete_row_count,
            file_source=self._source,
            value_stats_cols=names,
        )


class _OpenFile:
    """One Parquet file being written, and what its rows have shown so far."""

    def __init__(self, io: FileIO, path: str, name: str, physical: pa.Schema, settings: FileSettings) -> None:
        self.name = name
        self.row_count = 0
        self.delete_row_count = 0
        self.min_key = self.max_key = EMPTY_ROW
        self.sequence_range: tuple[int, int] | None = None
        self.values: ColumnStats | None = None
        self.key_stats: ColumnStats | None = None
        self._modes = settings.modes
        self._sink = io.open_output(path)
        self._writer = parquet_writer(
            self._sink, physical, compression=settings.compression, compression_level=settings.compression_level
        )

    @property
    def size_bytes(self) -> int:
        """Bytes written so far: all row groups, without the footer."""
        return int(self._sink.tell())

    def write(self, group: pa.Table, fields: tuple[DataField, ...], keys: tuple[DataField, ...]) -> None:
        """Adds a row group of at least one row."""
        self._writer.write_table(group, row_group_size=group.num_rows)
        if keys:
            self._note_keys(group, keys)
        found = collect_stats(group, fields, self._modes)
        self.values = found if self.values is None else self.values.merge(found)
        self.row_count += group.num_rows

    def finish(self) -> int:
        """Completes the file; its size in bytes."""
        self._writer.close()
        size_bytes = int(self._sink.tell())
        self._sink.close()
        return size_bytes

    def abandon(self) -> None:
        """Lets go of the file, which the caller removes; what the storage says to that no longer matters."""
        with suppress(pa.ArrowException, OSError, StorageError):
            self._writer.close()
        with suppress(pa.ArrowException, OSError, StorageError):
            self._sink.close()

    def _note_keys(self, group: pa.Table, keys: tuple[DataField, ...]) -> None:
        ends = group.select([k.name for k in keys]).take([0, group.num_rows - 1]).combine_chunks()
        columns = [_whole(ends.column(k.name)) for k in keys]
        first, last = encode_rows(columns, [k.type for k in keys], with_arity=True).to_pylist()
        if self.row_count == 0:
            self.min_key = first
        self.max_key = last
        bounds = pc.min_max(group.column(SEQUENCE))
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        seen = self.sequence_range or (low, high)
        self.sequence_range = (min(low, seen[0]), max(high, seen[1]))
        self.delete_row_count += pc.sum(is_retract(group.column(VALUE_KIND))).as_py() or 0
        found = collect_stats(group, keys, [KEY_MODE] * len(keys))
        self.key_stats = found if self.key_stats is None else self.key_stats.merge(found)


def write_data_files(writer: RollingWriter, batches: Iterable[pa.Table | pa.RecordBatch]) -> list[DataFileMeta]:
    """The files that hold the batches; an exception on the way, also from `batches`, leaves no file behind."""
    with writer:
        for batch in batches:
            writer.write(batch)
        return writer.close()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
