"""A job's source as a streaming DataFrame: any source of Spark, with the columns that the table needs."""

import re
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql.types import BinaryType, StringType

from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_DECODE, SOURCE_FORMAT, SourceConfig
from bucketline.conf.source_options import KAFKA, PARSED_FORMATS, SCHEMA, SourceOptions, with_headers
from bucketline.state.types.columns_text import in_backticks
from bucketline.state.types.fit import map_types
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from bucketline.streaming.decode.decode_step import METADATA, DecodeStep
from bucketline.streaming.tasks.kafka_feeds import PARTITION_COLUMN, TOPIC_COLUMN

_PATH = "path"
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
    """The stream that a job reads, with the columns that `decode` needs, or those of the table; with
    `tells_partitions`, rows of Kafka say their topic and partition as well.

    Raises OptionError when Spark does not know the source, or the source lacks what is needed.
    """
    options = dict(source_options.options)
    if source.format == KAFKA and _wants(fields, "headers"):
        options = with_headers(options)
    path = options.pop(_PATH, None)
    schema = options.pop(SCHEMA, None) if source.format in PARSED_FORMATS else None
    reader = spark.readStream.format(source.format).options(**options)
    if source.format in PARSED_FORMATS:
        reader = reader.schema(spark_columns(fields) if schema is None else schema)
    try:
        stream = reader.load() if path is None else reader.load(path)
    except AnalysisException as e:
        raise OptionError(_explained(source.format, str(e), spark.version), key=SOURCE_FORMAT.key) from e
    except Py4JJavaError as e:
        message = str(e.java_exception.getMessage())
        raise OptionError(_explained(source.format, message, spark.version), key=SOURCE_FORMAT.key) from e
    if decode is not None:
        return _select(stream, [name for name in decode.input_columns if name == "value" or name in stream.columns])
    return _kafka_columns(stream, fields, tells_partitions) if source.format == KAFKA else stream


def spark_columns(fields: Sequence[DataField]) -> str:
    """The columns as Spark's DDL, for sources that need a schema. Raises OptionError for a type Spark does not have."""
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
            f"source.decode reads a column 'value', and the source has {', '.join(stream.columns)}; drop source.decode",
            key=SOURCE_DECODE.key,
        )
    value_type = stream.schema["value"].dataType
    if not isinstance(value_type, StringType | BinaryType):
        raise OptionError(
            f"source.decode reads texts or bytes, and the source's column 'value' is {value_type}; drop source.decode",
            key=SOURCE_DECODE.key,
        )
    return stream.select(*(in_backticks(name) for name in names))


def _kafka_columns(stream: Any, fields: Sequence[DataField], tells_partitions: bool) -> Any:
    """The columns of Kafka's source that the table has, under Kafka's or the table's name."""
    wanted = []
    for f in fields:
        if f.name in stream.columns:
            wanted.append(stream[f.name])
        elif METADATA.get(f.name) in stream.columns:
            wanted.append(stream[METADATA[f.name]].alias(f.name))
    if wanted and tells_partitions:
        known = {f.name for f in fields}
        beside = (name for name in (TOPIC_COLUMN, PARTITION_COLUMN) if name not in known)
        wanted += [stream[METADATA[name]].alias(name) for name in beside]
    return stream.select(*wanted) if wanted else stream


def _explained(name: str, message: str, version: str) -> str:
    first = message.splitlines()[0]
    if name == KAFKA and _UNKNOWN.search(message):
        return (
            f"Spark {version} has no Kafka source here: start the job with "
            f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{_series(version)}.0 (without spark-submit: in "
            "PYSPARK_SUBMIT_ARGS, before pyspark-shell); docs/kafka.md names the jars"
        )
    return f"Spark cannot open source.format = {name!r}: {first}"


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])
