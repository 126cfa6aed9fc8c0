"""The table's options for data files of one level, and the choice of a writer for such files.

Source: Paimon 2.0 KeyValueFileWriterFactory, FileFormat, PostponeBucketFileStoreWrite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketline.conf.option import UNLIMITED
from bucketline.conf.table.choices import FileFormat
from bucketline.conf.table.stats_mode import StatsKind, StatsMode
from bucketline.state.format.avro.data_schema import is_representable
from bucketline.state.format.data_file import FileSource
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import postpone_prefix
from bucketline.state.format.stats import stats_modes
from bucketline.state.format.storable import refuse_columns
from bucketline.state.store.datafile.formats import FORMATS, FileSettings, RowSink
from bucketline.state.store.datafile.index_of_rows import indexed_fields
from bucketline.state.types.arrow import key_value_fields
from bucketline.state.types.logical import DataField

ROW_GROUP_BYTES = 32 << 20
"""The size of a row group in bytes of Arrow data, unless `file.block-size` is less. It is also the memory that a writer
takes.
"""

_SMALLEST_GROUP_BYTES = 64 << 10
_GROUPS_PER_FILE = 4


@dataclass(frozen=True, slots=True)
class Postponed:
    """The parts of the names of files in a postpone bucket: the commit user, and the number of the writer among the
    parallel writers. All rows of a key go to the same writer.
    """

    user: str
    writer_id: int


def file_settings(
    schema: TableSchema, *, level: int, source: FileSource, postponed: Postponed | None = None
) -> FileSettings:
    """Returns the settings for files of a level, or of the postpone bucket, as the table's options say.

    Postponed files are Avro, whatever the options say, unless Avro cannot store a column. Postponed files have no
    statistics and no index, because readers read all of their rows. Raises UnsupportedTableError for columns that the
    format cannot store, OptionError for options that do not fit.
    """
    settings = schema.settings.files
    fields = _physical_fields(schema, is_thin=settings.is_thin)
    prefix, modes = settings.prefix, stats_modes(schema.fields, schema.settings, level)
    if postponed is not None:
        prefix = postpone_prefix(prefix, postponed.user, postponed.writer_id)
        modes = (StatsMode(StatsKind.NONE),) * len(modes)
    if postponed is not None and is_representable(fields):
        form, (codec, codec_level) = FileFormat.AVRO, settings.postponed_codec
    else:
        form = settings.format_of(level)
        refuse_columns(form, schema.fields, fields)
        codec, codec_level = settings.codec_of(level, form)
    target_bytes = settings.target_bytes(has_primary_key=bool(schema.primary_keys))
    group_bytes = min(settings.block_bytes or ROW_GROUP_BYTES, ROW_GROUP_BYTES, target_bytes // _GROUPS_PER_FILE)
    return FileSettings(
        form=form,
        codec=codec,
        codec_level=codec_level,
        fields=fields,
        target_bytes=target_bytes,
        target_rows=settings.target_rows if source is FileSource.APPEND else UNLIMITED,
        group_bytes=max(_SMALLEST_GROUP_BYTES, group_bytes),
        prefix=prefix,
        is_dense=settings.dense_stats,
        modes=modes,
        is_legacy_ltz=settings.legacy_instants,
        indexed=() if postponed is not None else indexed_fields(schema),
        index_in_manifest_bytes=settings.index_in_manifest_bytes,
    )


def check_files(schema: TableSchema) -> None:
    """Checks that files of this table can be written on every level. Raises the errors of `file_settings` if they
    cannot.
    """
    settings = schema.settings.files
    levels = {*settings.format_per_level, *settings.codec_per_level}
    # One level without an option of its own represents all levels without such an option.
    for level in sorted(levels | {max(levels, default=-1) + 1}):
        file_settings(schema, level=level, source=FileSource.COMPACT)


def row_sink(settings: FileSettings, sink: pa.NativeFile, file_name: str, *, first: pa.Table | None = None) -> RowSink:
    """Returns a writer for a file with that name, which writes into an open stream. `first` are the first rows of the
    file, if they are known; they help to choose encodings.
    """
    return FORMATS[settings.form].sink(settings, sink, file_name, first)


def _physical_fields(schema: TableSchema, *, is_thin: bool) -> tuple[DataField, ...]:
    if not schema.primary_keys:
        return schema.fields
    system: Sequence[DataField] = key_value_fields(schema)
    return (*(system[-2:] if is_thin else system), *schema.fields)
