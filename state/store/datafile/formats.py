"""How files of each file format are read and written. Each format has one object.

`state/format/storable.py` says which columns a format cannot store.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from bucketline.conf.table.choices import FileFormat
from bucketline.conf.table.stats_mode import StatsMode
from bucketline.conf.table.table_settings import DataFileSettings
from bucketline.state.store.datafile.avro_rows import AvroRows
from bucketline.state.store.datafile.avro_sink import AvroSink
from bucketline.state.store.datafile.dictionary_choice import DictionaryChoice
from bucketline.state.store.datafile.index_of_rows import IndexedField
from bucketline.state.store.datafile.orc_rows import OrcRows
from bucketline.state.store.datafile.orc_sink import OrcSink
from bucketline.state.store.datafile.parquet_rows import ParquetRows
from bucketline.state.store.datafile.parquet_sink import ParquetSink
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.logical import DataField, DataType


@dataclass(frozen=True, slots=True)
class FileSettings:
    """How files are written. Sizes are in bytes. `fields` are the columns of a file, in order.

    The settings are together because every writer of a file gets all of them unchanged.
    """

    form: FileFormat
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
    """Whether ORC stores a timestamp with local time zone as its time in UTC."""
    dictionaries: DictionaryChoice = field(default_factory=DictionaryChoice, compare=False, repr=False)
    indexed: tuple[IndexedField, ...] = ()
    """The columns for which the file's index has a bloom filter."""
    index_in_manifest_bytes: int = 0


class FileRows(Protocol):
    """An open data file, while its rows are read. There is a class for each file format."""

    @property
    def row_count(self) -> int | None: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def ids(self) -> Mapping[str, int]: ...

    @property
    def types(self) -> Mapping[str, pa.DataType]: ...

    @property
    def has_units(self) -> bool: ...

    @property
    def offset(self) -> int: ...

    def batches(self, columns: Sequence[str], batch_rows: int, batch_bytes: int) -> Iterator[pa.RecordBatch]: ...

    def declare(self, column: pa.Array, stored: DataType) -> pa.Array: ...


class RowSink(Protocol):
    """A data file of some format that is being written into an open stream. The stream stays open."""

    def write(self, group: pa.Table) -> None:
        """Adds rows. The columns of `group` are those of `FileSettings.fields`, in order."""
        ...

    def close(self) -> None:
        """Completes the file."""
        ...


class DataFormat(Protocol):
    """The reader and the writer of a file format."""

    def rows(self, source: pa.NativeFile, settings: DataFileSettings) -> FileRows:
        """Opens a file, and returns its reader. `settings` are the table's settings when the file was written."""
        ...

    def sink(self, settings: FileSettings, stream: pa.NativeFile, file_name: str, first: pa.Table | None) -> RowSink:
        """Returns a writer for a file with that name. `first` are the first rows of the file, if they are known; they
        help to choose encodings.
        """
        ...


class _Parquet:
    def rows(self, source: pa.NativeFile, settings: DataFileSettings) -> FileRows:
        del settings
        return ParquetRows(source)

    def sink(self, settings: FileSettings, stream: pa.NativeFile, file_name: str, first: pa.Table | None) -> RowSink:
        del file_name
        return ParquetSink(
            stream,
            arrow_schema(settings.fields),
            codec=settings.codec,
            codec_level=settings.codec_level,
            first=first,
            dictionaries=settings.dictionaries,
        )


class _Orc:
    def rows(self, source: pa.NativeFile, settings: DataFileSettings) -> FileRows:
        return OrcRows(source, settings)

    def sink(self, settings: FileSettings, stream: pa.NativeFile, file_name: str, first: pa.Table | None) -> RowSink:
        del file_name, first
        return OrcSink(
            stream,
            arrow_schema(settings.fields),
            codec=settings.codec,
            stripe_bytes=settings.group_bytes,
            target_bytes=settings.target_bytes,
            is_legacy_ltz=settings.is_legacy_ltz,
        )


class _Avro:
    def rows(self, source: pa.NativeFile, settings: DataFileSettings) -> FileRows:
        del settings
        return AvroRows(source)

    def sink(self, settings: FileSettings, stream: pa.NativeFile, file_name: str, first: pa.Table | None) -> RowSink:
        del first
        return AvroSink(stream, settings.fields, file_name, codec=settings.codec, codec_level=settings.codec_level)


FORMATS: Mapping[FileFormat, DataFormat] = {
    FileFormat.PARQUET: _Parquet(),
    FileFormat.ORC: _Orc(),
    FileFormat.AVRO: _Avro(),
}


def format_named(extension: str) -> DataFormat | None:
    """Returns the format of files whose names have this ending; None for an unknown ending."""
    return next((known for form, known in FORMATS.items() if form.value == extension), None)
