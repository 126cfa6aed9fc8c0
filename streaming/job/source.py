"""Opens a job's source as a streaming DataFrame with the columns that the table needs. Any source of Spark can
be used.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql.types import BinaryType, StringType

from bucketline.conf.column_options import NO_COLUMN_OPTIONS, SELECT, WHERE, ColumnOptions
from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_DECODE, SOURCE_FORMAT, SourceConfig
from bucketline.conf.option import did_you_mean
from bucketline.conf.sources.source_options import (
    EARLIEST,
    INCLUDE_HEADERS,
    KAFKA,
    LATEST,
    PARSED_FORMATS,
    SCHEMA,
    STARTING_OFFSETS,
    SourceOptions,
    with_headers,
)
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.state.sql.compute.selection import parse_selection, tells_time
from bucketline.state.sql.dialect import as_spark_reads
from bucketline.state.types.columns_text import in_backticks
from bucketline.state.types.fit import map_types
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.decode_step import METADATA, RECORD_TYPES, DecodeStep
from bucketline.streaming.decode.rejects import RECORD_COLUMNS
from bucketline.streaming.job.start.needs import no_kafka_source
from bucketline.streaming.tasks.kafka.kafka_feeds import PARTITION_COLUMN, TOPIC_COLUMN

_PATH = "path"
_OF_STREAMS = frozenset(
    (
        *("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "endingoffsets"),
        *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
        *("subscribe", "subscribepattern", "assign"),
    )
)
"""Options, in lower case, that say what a Kafka stream reads, where it begins, and how large a batch is."""
_SPARKS_FORMATS = (KAFKA, *PARSED_FORMATS, "text", "rate", "socket")
"""The known formats, for the error about a mistyped format. Spark may know more formats."""
_HEADERS = INCLUDE_HEADERS.lower()
_UNKNOWN = re.compile(r"find (?:the )?data source")
_SPARK_TYPES = {
    TypeRoot.BOOLEAN: "BOOLEAN",
    TypeRoot.TINYINT: "TINYINT",
    TypeRoot.SMALLINT: "SMALLINT",
    TypeRoot.INT: "INT",
    TypeRoot.BIGINT: "BIGINT",
    TypeRoot.FLOAT: "FLOAT",
    TypeRoot.DOUBLE: "DOUBLE",
    TypeRoot.CHAR: "STRING",
    TypeRoot.VARCHAR: "STRING",
    TypeRoot.BINARY: "BINARY",
    TypeRoot.VARBINARY: "BINARY",
    TypeRoot.DATE: "DATE",
    TypeRoot.TIMESTAMP: "TIMESTAMP_NTZ",
    TypeRoot.TIMESTAMP_LTZ: "TIMESTAMP",
}


def read_stream(
    spark: Any,
    source: SourceConfig,
    source_options: SourceOptions,
    fields: Sequence[DataField],
    decode: DecodeStep | None,
    *,
    tells_partitions: bool = False,
) -> Any:
    """Returns the stream that a job reads, with the columns that `decode` needs. Without `decode`, the stream has the
    columns of the table.

    If `tells_partitions` is true, rows of Kafka also have their topic and partition. Raises OptionError if Spark does
    not know the source, or the source lacks a needed column.
    """
    options = dict(source_options.options)
    reads_headers = _wants(fields, "headers") if decode is None else "headers" in decode.input_columns
    if source.format == KAFKA and reads_headers:
        options = with_headers(options)
    schema = options.pop(SCHEMA, None) if source.format in PARSED_FORMATS else None
    reader = spark.readStream
    if source.format in PARSED_FORMATS:
        reader = reader.schema(spark_columns(fields) if schema is None else schema)
    stream = _opened(reader, source.format, options, spark.version)
    if decode is not None:
        return _select(stream, [name for name in decode.input_columns if name == "value" or name in stream.columns])
    return _kafka_columns(stream, fields, tells_partitions) if source.format == KAFKA else stream


def read_records(spark: Any, source: SourceConfig, options: Mapping[str, str]) -> Any:
    """Returns the stream of a job of several tables, with all columns that records may have.

    Raises OptionError if Spark does not know the source, or the source has no column `value`.
    """
    stream = _opened(spark.readStream, source.format, dict(options), spark.version)
    return _select(stream, [name for name in RECORD_TYPES if name == "value" or name in stream.columns])


def records_between(spark: Any, options: Mapping[str, str], start: str, end: str) -> Any:
    """Returns the records of Kafka between two offsets, as a DataFrame with the columns of `read_records`.

    Both offsets have the form of Spark's `startingOffsets`.
    """
    kept = {key: value for key, value in options.items() if key.lower() not in _OF_STREAMS}
    partitions = {topic: sorted(map(int, of)) for topic, of in json.loads(end).items()}
    chosen = {**kept, "assign": json.dumps(partitions), "startingOffsets": start, "endingOffsets": end}
    found = _opened(spark.read, KAFKA, chosen, spark.version)
    return _select(found, [name for name in RECORD_TYPES if name == "value" or name in found.columns])


def read_topic(spark: Any, options: Mapping[str, str], topic: str) -> pa.Table:
    """Returns all records of a topic, with their headers. `options` say how to reach the cluster."""
    kept = {key: value for key, value in options.items() if key.lower() not in (*_OF_STREAMS, _HEADERS)}
    chosen = {**kept, "subscribe": topic, STARTING_OFFSETS: EARLIEST, "endingOffsets": LATEST}
    found = _opened(spark.read, KAFKA, with_headers(chosen), spark.version)
    return _records(_select(found, RECORD_COLUMNS).collect(), RECORD_COLUMNS)


def read_first(spark: Any, source: SourceConfig, options: Mapping[str, str], most: int) -> pa.Table:
    """Returns at most `most` records of a source, with a column `value` that the caller will decode. If the source has
    other columns of Kafka's source, they are returned too.

    Raises OptionError if Spark does not know the source, or the source has no column `value`.
    """
    found = _opened(spark.read, source.format, dict(options), spark.version)
    names = [name for name in RECORD_TYPES if name == "value" or name in found.columns]
    return _records(_select(found, names).limit(most).collect(), names)


def read_sample(spark: Any, source: SourceConfig, options: Mapping[str, str], each: int) -> pa.Table:
    """Returns at most `each` records of each partition of Kafka, or of each split of another source. Otherwise it works
    like `read_first`.
    """
    found = _opened(spark.read, source.format, dict(options), spark.version)
    names = [name for name in RECORD_TYPES if name == "value" or name in found.columns]
    return _records(_select(found, names).rdd.mapPartitions(_FirstOf(each)).collect(), names)


class _FirstOf:
    """A function that returns at most the first `most` items of a partition; the other items are not read."""

    def __init__(self, most: int) -> None:
        self._most = most

    def __call__(self, items: Iterator[Any]) -> Iterator[Any]:
        return islice(items, self._most)


def _records(rows: Sequence[Any], names: Sequence[str]) -> pa.Table:
    plain = [row.asDict(recursive=True) for row in rows]
    columns = {name: [_plain(row[name]) for row in plain] for name in names}
    return pa.table({name: pa.array(values, RECORD_TYPES[name]) for name, values in columns.items()})


def _plain(value: object) -> object:
    """Takes a value from a row that Spark returned, and returns the same value in a form that Arrow takes: bytes
    instead of a bytearray, and dicts instead of Spark's rows in a list.
    """
    if isinstance(value, list):
        return [{name: _plain(part) for name, part in entry.items()} for entry in value]
    return bytes(value) if isinstance(value, bytearray) else value


def _opened(reader: Any, name: str, options: dict[str, str], version: str) -> Any:
    """Opens the source with this name as a DataFrame. `version` is Spark's version, for messages. Raises OptionError if
    Spark does not know the source.
    """
    path = options.pop(_PATH, None)
    reader = reader.format(name).options(**options)
    try:
        return reader.load() if path is None else reader.load(path)
    except AnalysisException as e:
        raise OptionError(_explained(name, str(e), version), key=SOURCE_FORMAT.key) from e
    except Py4JJavaError as e:
        message = str(e.java_exception.getMessage())
        raise OptionError(_explained(name, message, version), key=SOURCE_FORMAT.key) from e


def choose_rows(stream: Any, columns: ColumnOptions, source_format: str, keys: Sequence[str] = ()) -> Any:
    """Returns the stream with the job's column settings applied by Spark. The stream's records are rows already
    (`source.decode` is none).

    `keys` are columns that must not use the current time. Raises OptionError for an expression that Spark does not
    take, and for a condition on rows that have row kinds.
    """
    if columns == NO_COLUMN_OPTIONS:
        return stream
    key = WHERE.key if columns.select is None else SELECT.key
    if source_format == KAFKA:
        raise OptionError(
            f"{key} works only with records that are decoded, but source.decode is none; set source.decode", key=key
        )
    if columns.where is not None and ROW_KIND_COLUMN in stream.columns:
        raise OptionError(
            f"{WHERE.key} is not supported for rows that have kinds ({ROW_KIND_COLUMN}), because a row that no longer "
            f"meets the condition would have to be deleted; remove {WHERE.key}",
            key=WHERE.key,
        )
    _refuse_time(columns, keys)
    try:
        if columns.where is not None:
            stream = stream.where(as_spark_reads(columns.where))
        return stream if columns.select is None else stream.selectExpr(*_listed(columns.select, stream.columns))
    except AnalysisException as e:
        raise OptionError(f"{key}: {str(e).splitlines()[0]}", key=key) from e


def _refuse_time(columns: ColumnOptions, keys: Sequence[str]) -> None:
    """Raises OptionError if a condition, or a key column, uses the current time, because the condition or column would
    have another value when the row changes later.
    """
    named = [] if columns.where is None else [(WHERE.key, SqlExpression(columns.where))]
    if columns.select is not None:
        own = {name.lower() for name in keys}
        items = parse_selection(columns.select).items
        named += [(f"{SELECT.key}: column {name}", value) for name, value in items if name.lower() in own]
    for what, expression in named:
        if (now := tells_time(expression)) is not None:
            raise OptionError(
                f"{what} uses {now}, whose value differs when the row changes later; remove {now}", key=what
            )


def _listed(text: str, columns: Sequence[str]) -> list[str]:
    """Returns the columns of `text`, a SELECT over `columns`, as Spark's SQL texts. A computed column replaces the
    column of the same name.
    """
    selection = parse_selection(text)
    gone = {name.lower() for name in (*selection.left_out, *(name for name, _ in selection.items))}
    kept = [in_backticks(name) for name in columns if name.lower() not in gone] if selection.has_star else []
    return [*kept, *(f"{as_spark_reads(value.text)} AS {in_backticks(name)}" for name, value in selection.items)]


def spark_columns(fields: Sequence[DataField]) -> str:
    """Returns the columns as Spark's DDL, for sources that need a schema. Raises OptionError for a type that Spark does
    not have.
    """
    return ", ".join(f"{in_backticks(f.name)} {_spark_type(f.type, f.name)}" for f in fields)


def _spark_type(data_type: DataType, column: str) -> str:
    root = data_type.root
    if root in _SPARK_TYPES:
        return _SPARK_TYPES[root]
    if root is TypeRoot.DECIMAL:
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if root in (TypeRoot.ARRAY, TypeRoot.VECTOR):
        assert data_type.element is not None
        return f"ARRAY<{_spark_type(data_type.element, column)}>"
    if root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key, value = map_types(data_type)
        return f"MAP<{_spark_type(key, column)}, {_spark_type(value, column)}>"
    if root is TypeRoot.ROW:
        inner = ", ".join(f"{in_backticks(f.name)}: {_spark_type(f.type, column)}" for f in data_type.fields)
        return f"STRUCT<{inner}>"
    raise OptionError(
        f"column {column!r} is of type {data_type}, which Spark's file sources cannot read; use format text with "
        "source.decode = json",
        key=SOURCE_FORMAT.key,
        column=column,
    )


def _wants(fields: Sequence[DataField], column: str) -> bool:
    return any(METADATA.get(f.name) == column for f in fields)


def _select(stream: Any, names: Sequence[str]) -> Any:
    if "value" not in stream.columns:
        raise OptionError(
            f"source.decode needs a column 'value', but the source has the columns {', '.join(stream.columns)}; remove "
            "source.decode",
            key=SOURCE_DECODE.key,
        )
    value_type = stream.schema["value"].dataType
    if not isinstance(value_type, StringType | BinaryType):
        raise OptionError(
            f"source.decode reads texts or bytes, but the source's column 'value' is of type {value_type}; remove "
            "source.decode",
            key=SOURCE_DECODE.key,
        )
    return stream.select(*(in_backticks(name) for name in names))


def _kafka_columns(stream: Any, fields: Sequence[DataField], tells_partitions: bool) -> Any:
    """Returns the stream with only the columns of Kafka's source that the table has. The table may have a column under
    Kafka's name, or under a name of its own; the stream has the column under the table's name. If `tells_partitions` is
    true, the columns with the topic and the partition are added. If the table has no column of Kafka's source, the
    stream is returned unchanged.
    """
    wanted = []
    for f in fields:
        if f.name in stream.columns:
            wanted.append(stream[f.name])
        elif METADATA.get(f.name) in stream.columns:
            wanted.append(stream[METADATA[f.name]].alias(f.name))
    if wanted and tells_partitions:
        known = {f.name for f in fields}
        others = (name for name in (TOPIC_COLUMN, PARTITION_COLUMN) if name not in known)
        wanted += [stream[METADATA[name]].alias(name) for name in others]
    return stream.select(*wanted) if wanted else stream


def _explained(name: str, message: str, version: str) -> str:
    first = message.splitlines()[0]
    unknown = _UNKNOWN.search(message) is not None
    if name == KAFKA and unknown:
        return no_kafka_source(version)
    hint = did_you_mean(name, _SPARKS_FORMATS) if unknown else ""
    return f"Spark cannot open source.format = {name!r}{hint}: {first}"
