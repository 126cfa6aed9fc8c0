"""Converts rows for Spark: the types of a schema, and record batches in the Arrow types that Spark reads.

Spark knows only microseconds, and neither TIME nor lists of a fixed size.
Source: Spark 4.0 ArrowUtils.fromArrowType, ArrowColumnVector.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from bucketline.conf.option import did_you_mean
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.storable import holds_nanoseconds
from bucketline.state.types.buffers import own_copy
from bucketline.state.types.logical import DataType

_SIMPLE = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
}


_CHAR_NOTE = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's mark for a STRING column that is a CHAR. Spark then also pads a literal that is compared with the column."""


def spark_schema(rows: pa.Schema, chars: Mapping[str, DataType]) -> spark.StructType:
    """Returns the columns as Spark's types; nested values are always nullable. `chars` are the columns of type CHAR.

    Raises UnsupportedTableError with the name of the column if Spark has no type for a column.
    """
    schema = spark.StructType()
    for field in rows:
        try:
            note = {_CHAR_NOTE: f"char({chars[field.name].length})"} if field.name in chars else None
            schema.add(field.name, spark_type(field.type), nullable=field.nullable, metadata=note)
        except UnsupportedTableError as e:
            others = ",".join(f.name for f in rows if not pa.types.is_time(f.type))
            raise UnsupportedTableError(
                f"column {field.name}: {e.message}; list the other columns in the option 'columns', for example "
                f"{others!r}",
                column=field.name,
            ) from e
    return schema


def spark_arrow(rows: pa.Schema) -> pa.Schema:
    """Returns the columns in the Arrow types that Spark reads."""
    return pa.schema([pa.field(f.name, _arrow_type(f.type), nullable=f.nullable) for f in rows])


def fit(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of a record batch in the types of `target`, which `spark_arrow` made. Digits below a microsecond
    are cut off.
    """
    columns = [_fit(column, field.type) for column, field in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def check_given(user_schema: spark.StructType, own: spark.StructType) -> None:
    """Checks a schema that the user gave. `own` is the schema of the read without it. Raises SchemaMismatchError, which
    names the column, if a column of the given schema is not in `own`, or has another type there.
    """
    for field in user_schema.fields:
        if field.name not in own.names:
            raise SchemaMismatchError(
                f"the given schema has a column {field.name!r}, which the read does not have; it has "
                f"{', '.join(own.names)}{did_you_mean(field.name, own.names)}",
                column=field.name,
            )
        mine = own[field.name]
        types = [field.dataType.simpleString(), mine.dataType.simpleString()]
        if types[0] != types[1]:
            raise SchemaMismatchError(
                f"column {field.name}: the given schema has the type {types[0]}, but the table has {types[1]}; read "
                "the column with the table's type, and cast it after the read",
                column=field.name,
                expected=types[1],
                found=types[0],
            )
        if mine.nullable and not field.nullable:
            raise SchemaMismatchError(
                f"column {field.name}: the given schema says NOT NULL, but the table may have nulls; make the column "
                "nullable in the schema",
                column=field.name,
            )


def names_of(schema: spark.StructType) -> tuple[str, ...]:
    return tuple(f.name for f in schema.fields)


def spark_type(arrow: pa.DataType) -> spark.DataType:
    if arrow in _SIMPLE:
        return _SIMPLE[arrow]
    if pa.types.is_decimal(arrow):
        return spark.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return spark.TimestampNTZType() if arrow.tz is None else spark.TimestampType()
    if pa.types.is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return spark.ArrayType(spark_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return spark.MapType(spark_type(arrow.key_type), spark_type(arrow.item_type))
    if pa.types.is_struct(arrow):
        return spark.StructType([spark.StructField(f.name, spark_type(f.type)) for f in arrow])
    raise UnsupportedTableError(f"Spark has no type for {'TIME' if pa.types.is_time(arrow) else arrow}")


def _arrow_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", arrow.tz)
    if pa.types.is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return pa.list_(pa.field("element", _arrow_type(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(_arrow_type(arrow.key_type), pa.field("value", _arrow_type(arrow.item_type)))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(f.name, _arrow_type(f.type)) for f in arrow])
    return arrow


def _fit(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    if pa.types.is_timestamp(target):
        if column.type.unit == "ns":
            column = pc.floor_temporal(column, unit="microsecond")
        return column.cast(target, safe=False)
    if pa.types.is_struct(target):
        parts = [_fit(part, f.type) for part, f in zip(column.flatten(), target, strict=True)]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)
    if (pa.types.is_list(column.type) or pa.types.is_map(column.type)) and holds_nanoseconds(column.type):
        return _fit_each(column, target)
    return column.cast(target, safe=False)


def _fit_each(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns lists or maps with elements that are converted one by one. A cast of the whole list or map would round
    nanoseconds before 1970 up.
    """
    compact = own_copy(column)
    mask = compact.is_null() if compact.null_count else None
    if pa.types.is_map(target):
        keys, items = _fit(compact.keys, target.key_type), _fit(compact.items, target.item_type)
        return pa.MapArray.from_arrays(compact.offsets, keys, items, type=target, mask=mask)
    values = _fit(compact.values, target.value_type)
    return pa.ListArray.from_arrays(compact.offsets, values, type=target, mask=mask)
