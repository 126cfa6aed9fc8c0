"""How the data files of one level are written, as the table's options say, and what writes them.

Source: Paimon 2.0 KeyValueFileWriterFactory, FileFormat, PostponeBucketFileStoreWrite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bucketline.conf.file_options import (
    DATA_FILE_PREFIX,
    DATA_FILE_THIN_MODE,
    FILE_BLOCK_SIZE,
    FILE_COMPRESSION_PER_LEVEL,
    FILE_FORMAT_PER_LEVEL,
    ORC_LEGACY_LTZ,
    STATS_DENSE_STORE,
    file_codec,
    file_format,
    postponed_codec,
)
from bucketline.conf.option import UNLIMITED
from bucketline.conf.table_options import TARGET_FILE_ROW_NUM, target_file_size
from bucketline.state.format.avro.data_schema import data_schema, is_representable
from bucketline.state.format.data_file import FileSource
from bucketline.state.format.paths import postpone_prefix
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.format.stats import StatsKind, StatsMode, stats_modes
from bucketline.state.store.datafile.avro_sink import AvroSink
from bucketline.state.store.datafile.orc_sink import OrcSink, refuse_for_orc
from bucketline.state.store.datafile.parquet_sink import ParquetSink, refuse_mixed_timestamps
from bucketline.state.types.arrow import arrow_schema, key_value_fields
from bucketline.state.types.logical import DataField

ROW_GROUP_BYTES = 32 << 20
"""Arrow bytes of a row group, and so of what a writer holds, unless `file.block-size` asks for less."""

_SMALLEST_GROUP_BYTES = 64 << 10
_GROUPS_PER_FILE = 4


@dataclass(frozen=True, slots=True)
class Postponed:
    """Files of the postpone bucket: who writes them, and the number of the writer that all rows of a key go through."""

    user: str
    writer_id: int


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How files are written; sizes in bytes. `fields` are the columns of a file, in order."""

    form: str
    codec: str
    codec_level: int | None
    fields: tuple[DataField, ...]
    target_bytes: int
    target_rows: int
    group_bytes: int
    prefix: str
    is_dense: bool
    modes: tuple[StatsMode, ...]
    is_legacy_ltz: bool = True
    """Whether ORC holds an instant as the time that a clock in UTC shows."""


class RowSink(Protocol):
    """One data file of some format while it is written into an open stream, which it does not close."""

    def write(self, group: pa.Table) -> None:
        """Adds rows; columns are those of `FileSettings.fields`, in order."""
        ...

    def close(self) -> None:
        """Completes the file."""
        ...


def file_settings(
    schema: TableSchema, *, level: int, source: FileSource, postponed: Postponed | None = None
) -> FileSettings:
    """The settings that a table's options give for files of a level, or of the postpone bucket.

    Postponed files are Avro, whatever the options say, unless Avro has no place for a column; they keep no statistics.
    Raises UnsupportedTableError for columns that are not written in the format, OptionError for options that
    do not fit.
    """
    options = schema.options
    fields = _physical_fields(schema, is_thin=DATA_FILE_THIN_MODE.get(options))
    prefix, modes = DATA_FILE_PREFIX.get(options), stats_modes(schema.fields, options, level)
    if postponed is not None:
        prefix = postpone_prefix(prefix, postponed.user, postponed.writer_id)
        modes = (StatsMode(StatsKind.NONE),) * len(modes)
    if postponed is not None and is_representable(fields):
        form, (codec, codec_level) = "avro", postponed_codec(options)
    else:
        form = file_format(options, level)
        _check_columns(form, schema, fields)
        codec, codec_level = file_codec(options, level, form)
    target_bytes = target_file_size(options, has_primary_key=bool(schema.primary_keys))
    group_bytes = min(
        FILE_BLOCK_SIZE.find(options) or ROW_GROUP_BYTES, ROW_GROUP_BYTES, target_bytes // _GROUPS_PER_FILE
    )
    return FileSettings(
        form=form,
        codec=codec,
        codec_level=codec_level,
        fields=fields,
        target_bytes=target_bytes,
        target_rows=TARGET_FILE_ROW_NUM.get(options) if source is FileSource.APPEND else UNLIMITED,
        group_bytes=max(_SMALLEST_GROUP_BYTES, group_bytes),
        prefix=prefix,
        is_dense=STATS_DENSE_STORE.get(options),
        modes=modes,
        is_legacy_ltz=ORC_LEGACY_LTZ.get(options),
    )


def check_files(schema: TableSchema) -> None:
    """Returns when files of this table can be written on every level. Raises as `file_settings` does."""
    options = schema.options
    levels = {int(text) for o in (FILE_FORMAT_PER_LEVEL, FILE_COMPRESSION_PER_LEVEL) for text in o.get(options)}
    # One level that no option names stands for all others.
    for level in sorted(levels | {max(levels, default=-1) + 1}):
        file_settings(schema, level=level, source=FileSource.COMPACT)


def row_sink(settings: FileSettings, sink: pa.NativeFile, file_name: str, *, first: pa.Table | None = None) -> RowSink:
    """What writes a file of that name into an open stream; the `first` rows, if known, help to choose encodings."""
    if settings.form == "avro":
        return AvroSink(sink, settings.fields, file_name, codec=settings.codec, codec_level=settings.codec_level)
    physical = arrow_schema(settings.fields)
    if settings.form == "orc":
        return OrcSink(
            sink,
            physical,
            codec=settings.codec,
            stripe_bytes=settings.group_bytes,
            target_bytes=settings.target_bytes,
            is_legacy_ltz=settings.is_legacy_ltz,
        )
    return ParquetSink(sink, physical, codec=settings.codec, codec_level=settings.codec_level, first=first)


def _physical_fields(schema: TableSchema, *, is_thin: bool) -> tuple[DataField, ...]:
    if not schema.primary_keys:
        return schema.fields
    system: Sequence[DataField] = key_value_fields(schema)
    return (*(system[-2:] if is_thin else system), *schema.fields)


def _check_columns(form: str, schema: TableSchema, fields: Sequence[DataField]) -> None:
    if form == "avro":
        data_schema(fields)
    elif form == "orc":
        refuse_for_orc(fields)
    else:
        refuse_mixed_timestamps(schema.fields)
