"""INSERT ... SELECT in Spark's tasks: the rows of a DataFrame are written where Spark computes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.engine import ShapedFrame, SpreadEngine
from bucketline.state.store.sql.queries import Target
from bucketline.state.store.sql.spelling import spelled
from bucketline.state.store.table.changed_write import open_change
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.table.write import write_source
from bucketline.state.store.table.write_result import WriteResult
from bucketline.streaming.reader.spark_rows import spark_type

_ANSI = "spark.sql.ansi.enabled"


def write_frame(engine: SpreadEngine, frame: Any, target: Target) -> WriteResult:
    """Writes the rows as one commit; the newest snapshot's id.

    Raises SchemaMismatchError for a number of columns that does not fit and for a row that cannot be stored, and as
    `Table.write` and `Table.overwrite`; SparkFailedError.
    """
    fitting = _fitted(frame, target)
    if target.overwrites:
        return target.table.overwrite(fitting, partition=target.partition, engine=engine)
    handle = handle_of(target.table)
    with engine.rows(fitting) as rows:
        return repeat_if_gone(lambda: write_source(open_change(handle), rows.source, engine))


@dataclass(frozen=True, slots=True)
class _Completed:
    """The rows with columns that have one value each."""

    constants: Mapping[str, pa.Scalar]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        added = [pa.repeat(value, batch.num_rows) for value in self.constants.values()]
        names = [*batch.schema.names, *self.constants]
        return pa.RecordBatch.from_arrays([*batch.columns, *added], names=names)


def _fitted(frame: Any, target: Target) -> ShapedFrame:
    """The frame with the table's columns, cast to their types as Spark casts what it stores."""
    schema = target.table.schema
    names = spelled(frame.columns, schema.names) if target.names is None else list(target.names)
    if len(names) != len(frame.columns):
        raise SchemaMismatchError(
            f"INSERT: {len(frame.columns)} values for {len(names)} columns ({', '.join(names)})",
            expected=len(names),
            found=len(frame.columns),
        )
    unknown = next((name for name in names if name not in schema.names), None)
    if unknown is not None:
        raise SchemaMismatchError(
            f"INSERT: unknown column {unknown!r}; there are {', '.join(schema.names)}", column=unknown
        )
    plain = frame.toDF(*(f"c{i}" for i in range(len(names))))
    stored = [_stored(plain, f"c{i}", schema.field(name)) for i, name in enumerate(names)]
    columns = [value.alias(name) for value, name in zip(stored, names, strict=True)]
    missing = {f.name: pa.scalar(None, f.type) for f in schema if f.name not in {*names, *target.constants}}
    return ShapedFrame(plain.select(*columns), _Completed({**target.constants, **missing}))


def _stored(frame: Any, name: str, field: pa.Field) -> Any:
    """A column in the type that it is stored in; where Spark has none for it, as it is.

    Without ANSI a cast makes other numbers, or nulls, of values that the type cannot hold: there they are looked for.
    """
    value = F.col(name)
    try:
        wanted = spark_type(field.type)
    except UnsupportedTableError:
        return value
    if frame.sparkSession.conf.get(_ANSI, "true") == "true":
        return value.cast(wanted)
    return _exact(value, frame.schema[name].dataType, wanted, f"column {field.name}").cast(wanted)


def _exact(value: Any, stored: DataType, wanted: DataType, place: str) -> Any:
    """The value in another type, or an error that names the place; what is inside of a value is looked at by itself,
    for a cast of the whole makes nulls of it."""
    if stored == wanted:
        return value
    if isinstance(stored, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(value, lambda v: _exact(v, stored.elementType, wanted.elementType, place))
    if isinstance(stored, MapType) and isinstance(wanted, MapType):
        keyed = F.transform_keys(value, lambda k, v: _exact(k, stored.keyType, wanted.keyType, place))
        return F.transform_values(keyed, lambda k, v: _exact(v, stored.valueType, wanted.valueType, place))
    if isinstance(stored, StructType) and isinstance(wanted, StructType) and len(stored) == len(wanted):
        pairs = zip(stored, wanted, strict=True)
        parts = [_exact(value[s.name], s.dataType, w.dataType, place).alias(w.name) for s, w in pairs]
        return F.when(value.isNotNull(), F.struct(*parts))
    tried = value.try_cast(wanted)
    text = F.concat(F.lit(f"{place} {wanted.simpleString()} cannot hold "), value.cast("string"))
    return F.when(value.isNotNull() & tried.isNull(), F.raise_error(text)).otherwise(tried)
