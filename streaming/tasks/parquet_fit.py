"""Decides from the footer of a Parquet file whether Arrow reads the file into the same rows as Spark.

Each column must have exactly the Parquet type that Spark writes for the declared type. A file with any other type is
left to Spark, which widens it, rebases it or refuses it. A file whose footer says that it uses another calendar is left
to Spark, too.

Source: Spark 4.0 ParquetReadSupport.clipParquetSchema, ParquetToSparkSchemaConverter, ParquetVectorUpdaterFactory,
DataSourceUtils.datetimeRebaseSpec; parquet-java 1.15 ParquetMetadataConverter.filterFileMetaDataByMidpoint.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.conf.errors import BucketlineError
from bucketline.streaming.tasks.parquet_files import FilePart, ParquetFiles

_SPARK_VERSION = b"org.apache.spark.version"
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_WITH_CALENDAR = "3.0.0"
_PLAIN = {"Type": "None"}
_DIGITS = {"INT32": 9, "INT64": 18}
_INT_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_BARE = {pa.bool_(): "BOOLEAN", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.binary(): "BYTE_ARRAY"}


class UnfitFileError(BucketlineError):
    """It is not certain that tasks would read a Parquet file into the same rows as Spark."""

    code = "PARQUET_READER"

    def to_bytes(self) -> bytes:
        """Returns the error as bytes: its message and its details as JSON. A task sends these bytes to the driver."""
        return json.dumps([self.message, self.fields], default=str).encode()

    @classmethod
    def from_bytes(cls, said: bytes) -> "UnfitFileError":
        """Returns the error that a task has sent as bytes."""
        message, fields = json.loads(said)
        return cls(message, **fields)


def columns_in_file(file: pq.ParquetFile, source: ParquetFiles) -> dict[str, str]:
    """Returns the declared columns that the file has, with their names in the file. Raises UnfitFileError if a column
    does not fit its declared type.
    """
    _check_calendar(file.metadata.metadata or {}, source)
    leaves = list(_top_level(file))
    by_name: dict[str, list[tuple[str, pa.DataType, Any]]] = {}
    for name, arrow_type, column in leaves:
        by_name.setdefault(name.lower() if source.ignores_case else name, []).append((name, arrow_type, column))
    names: dict[str, str] = {}
    for declared in source.declared:
        same = by_name.get(declared.name.lower() if source.ignores_case else declared.name, [])
        if len(same) > 1:
            raise UnfitFileError(
                f"the file has column {declared.name!r} {len(same)} times, in different upper and lower case"
            )
        if not declared.name.isascii() and (not same or same[0][0] != declared.name):
            raise UnfitFileError(f"the file has no column with exactly the name {declared.name!r}")
        if not same:
            continue
        name, arrow_type, column = same[0]
        if column is None or not _fits(declared.type, arrow_type, column):
            shown = arrow_type if column is None else _shown(column)
            raise UnfitFileError(
                f"column {declared.name!r} is declared as {declared.type}, but has the type {shown} in the file"
            )
        names[declared.name] = name
    if not names:
        raise UnfitFileError("the file has none of the declared columns")
    return names


def row_groups_of(metadata: pq.FileMetaData, part: FilePart) -> list[int]:
    """Returns the indices of the row groups whose middle lies in the part. Raises UnfitFileError for a row group that
    would lie in no part of the file.
    """
    if part.start == 0 and part.end >= part.file_size:
        return list(range(metadata.num_row_groups))
    middles = [_middle(metadata.row_group(i)) for i in range(metadata.num_row_groups)]
    if any(not 0 <= middle < part.file_size for middle in middles):
        raise UnfitFileError("the footer of the file describes a row group outside of the file")
    return [i for i, middle in enumerate(middles) if part.start <= middle < part.end]


def _middle(group: pq.RowGroupMetaData) -> int:
    """Returns the position of a row group's middle in the file: the position of its first page plus half of its
    compressed size. Readers that divide a file among tasks give the row group to the task whose part has this position.
    """
    first = group.column(0)
    begins = first.data_page_offset
    if first.has_dictionary_page and first.dictionary_page_offset is not None:
        begins = min(begins, first.dictionary_page_offset)
    return int(begins + sum(group.column(i).total_compressed_size for i in range(group.num_columns)) // 2)


def _check_calendar(footer: Mapping[bytes, bytes], source: ParquetFiles) -> None:
    """Raises UnfitFileError if Spark may convert dates and timestamps of the file. Spark converts them in files that
    were written before Spark 3.0, or in Spark's legacy mode.
    """
    if not any(pa.types.is_temporal(f.type) for f in source.declared):
        return
    version = footer.get(_SPARK_VERSION)
    if version is None:
        if not source.accepts_old_dates:
            raise UnfitFileError(
                "Spark did not write the file, and spark.sql.parquet.datetimeRebaseModeInRead is not CORRECTED"
            )
    elif version.decode(errors="replace") < _FIRST_WITH_CALENDAR or any(key in footer for key in _OTHER_CALENDAR):
        raise UnfitFileError("the dates and timestamps in the file may use another calendar, which Spark converts")


def _top_level(file: pq.ParquetFile) -> Iterator[tuple[str, pa.DataType, Any]]:
    """Yields for each column of a file the name, the Arrow type, and the column's description in the footer. The
    description is None for a nested column.
    """
    at, schema = 0, file.schema
    for field in file.schema_arrow:
        leaves = _leaf_count(field.type)
        is_single = leaves == 1 and not pa.types.is_nested(field.type)
        column = schema.column(at) if is_single and at < len(schema) else None
        if column is not None and (column.path != field.name or column.max_repetition_level):
            column = None
        yield field.name, field.type, column
        at += leaves
    if at != len(schema):
        raise UnfitFileError("Arrow reads the columns of the file in an unknown way")


def _leaf_count(arrow_type: pa.DataType) -> int:
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _leaf_count(arrow_type.storage_type)
    if pa.types.is_nested(arrow_type):
        return sum(_leaf_count(arrow_type.field(i).type) for i in range(arrow_type.num_fields))
    return 1


def _fits(declared: pa.DataType, arrow_type: pa.DataType, column: Any) -> bool:
    """Returns True if the column of the file has the Parquet type that Spark writes for the declared type, and Arrow
    reads it into the declared type.
    """
    physical, logical = column.physical_type, json.loads(column.logical_type.to_json())
    if declared in _BARE:
        return bool(physical == _BARE[declared]) and logical == _PLAIN and _is_read_as(declared, arrow_type)
    if declared in _INT_BITS:
        bits = _INT_BITS[declared]
        as_number = logical == {"Type": "Int", "bitWidth": bits, "isSigned": True}
        is_wide_enough = physical == ("INT64" if bits == 64 else "INT32")
        is_plain = bits >= 32 and logical == _PLAIN
        return is_wide_enough and (as_number or is_plain) and bool(arrow_type == declared)
    if declared == pa.string():
        return bool(physical == "BYTE_ARRAY") and logical == {"Type": "String"} and _is_read_as(declared, arrow_type)
    if declared == pa.date32():
        return bool(physical == "INT32" and logical == {"Type": "Date"} and arrow_type == declared)
    if pa.types.is_decimal128(declared):
        as_declared = {"Type": "Decimal", "precision": declared.precision, "scale": declared.scale}
        fits = declared.precision <= _DIGITS.get(physical, declared.precision)
        return bool(fits and logical == as_declared and arrow_type == declared)
    return pa.types.is_timestamp(declared) and _is_same_time(declared, arrow_type, physical, logical)


def _is_same_time(declared: pa.DataType, arrow_type: pa.DataType, physical: str, logical: Mapping[str, Any]) -> bool:
    return bool(
        physical == "INT64"
        and logical.get("Type") == "Timestamp"
        and logical["isAdjustedToUTC"] == (declared.tz is not None)
        and not logical["is_from_converted_type"]
        and logical["timeUnit"] in ("milliseconds", "microseconds")
        and pa.types.is_timestamp(arrow_type)
        and arrow_type.unit == {"milliseconds": "ms", "microseconds": "us"}[logical["timeUnit"]]
        and (arrow_type.tz is None) == (declared.tz is None)
    )


def _is_read_as(declared: pa.DataType, arrow_type: pa.DataType) -> bool:
    """Returns True if Arrow reads a column as the declared type. Dictionaries and types with 64-bit offsets count as
    that type, too.
    """
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    wide = pa.large_string() if declared == pa.string() else pa.large_binary()
    return arrow_type in (declared, wide) and (declared in (pa.string(), pa.binary()) or arrow_type == declared)


def _shown(column: Any) -> str:
    logical = json.loads(column.logical_type.to_json())
    details = ", ".join(f"{key}={value}" for key, value in logical.items() if key != "Type" and "_" not in key)
    name = "" if logical == _PLAIN else f" {logical['Type']}({details})" if details else f" {logical['Type']}"
    return f"{column.physical_type}{name}"
