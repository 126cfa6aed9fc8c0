"""INSERT ... SELECT in Spark's tasks: the rows of a DataFrame are written by the tasks that compute them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, NullType, StructField, StructType
from pyspark.sql.types import DataType as SparkType

from bucketline.state.bucket.defaults import left_out_value
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.engine import ShapedFrame, SpreadEngine
from bucketline.state.store.sql.queries import QueryTarget
from bucketline.state.store.sql.spelling import spelled
from bucketline.state.store.table.changed_write import open_change
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.table.write import write_source
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.buffers import repeated
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import DataType
from bucketline.state.types.struct_fields import FieldRule, by_position, by_spelling
from bucketline.streaming.reader.spark_rows import spark_type

_ANSI = "spark.sql.ansi.enabled"
_WITH_PARTS = (ArrayType, MapType, StructType)


def write_frame(engine: SpreadEngine, frame: Any, target: QueryTarget) -> WriteResult:
    """Writes the rows as one commit, and returns the id of the newest snapshot.

    Raises SchemaMismatchError if the number of columns does not fit or a row cannot be stored, SparkFailedError if
    Spark fails, and the errors of `Table.write` and `Table.overwrite`.
    """
    fitting = _fitted(frame, target)
    if target.overwrites:
        return target.table.overwrite(fitting, partition=target.partition, engine=engine)
    handle = handle_of(target.table)
    with engine.rows(fitting) as rows:
        return repeat_if_gone(lambda: write_source(open_change(handle), rows.source, engine))


@dataclass(frozen=True, slots=True)
class _Completed:
    """A function that adds columns to the rows of a task: `constants` has one value for each added column, the same for
    all rows.

    `left` has the types of columns that Spark has not converted; this function converts them. `rule` says how the
    fields of structs in these columns are matched.
    """

    constants: Mapping[str, pa.Scalar]
    left: Mapping[str, DataType]
    rule: FieldRule

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = [self._fitted(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        added = [repeated(value, batch.num_rows) for value in self.constants.values()]
        names = [*batch.schema.names, *self.constants]
        return pa.RecordBatch.from_arrays([*given, *added], names=names)

    def _fitted(self, name: str, column: pa.Array) -> pa.Array:
        wanted = self.left.get(name)
        if wanted is None or wanted.is_atomic:
            return column
        return fit_array(column, wanted.as_nullable(), arrow_type(wanted), name, self.rule)


def _fitted(frame: Any, target: QueryTarget) -> ShapedFrame:
    """Returns the DataFrame with the table's columns. Values are cast to the types of the columns, as Spark casts them
    when it stores rows.
    """
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
            f"INSERT: unknown column {unknown!r}; the table has {', '.join(schema.names)}", column=unknown
        )
    plain = frame.toDF(*(f"c{i}" for i in range(len(names))))
    rule, own = by_spelling if target.names is None else by_position, handle_of(target.table).table_schema
    wanted = {name: _spark_type(schema.field(name).type) for name in names}
    stored = [_stored(plain, f"c{i}", name, wanted[name], rule) for i, name in enumerate(names)]
    columns = [value.alias(name) for value, name in zip(stored, names, strict=True)]
    missing = {f.name: left_out_value(f) for f in own.fields if f.name not in {*names, *target.constants}}
    left = {name: own.field(name).type for name in names if wanted[name] is None}
    try:
        fitting = plain.select(*columns)
    except AnalysisException as e:
        raise SchemaMismatchError(f"INSERT: {str(e).splitlines()[0]}") from e
    return ShapedFrame(fitting, _Completed({**target.constants, **missing}, left, rule))


def _spark_type(arrow: pa.DataType) -> SparkType | None:
    """Returns Spark's type of a column; None if Spark has no type for it."""
    try:
        return spark_type(arrow)
    except UnsupportedTableError:
        return None


def _stored(frame: Any, given: str, name: str, wanted: SparkType | None, rule: FieldRule) -> Any:
    """Returns the column `given` of the DataFrame, cast to the type `wanted` of the table's column `name`. If Spark has
    no such type (`wanted` is None), returns the column unchanged.

    `rule` says how the fields of a struct are matched. Without ANSI mode a cast silently changes values that the type
    cannot hold, or makes nulls of them, so the returned expression looks for such values and raises an error.
    """
    value = F.col(given)
    if wanted is None:
        return value
    casts = frame.sparkSession.conf.get(_ANSI, "true") == "true"
    shape = _Shape(rule, _cast if casts else partial(_exact, place=f"column {name}"))
    return shape.fitted(value, frame.schema[given].dataType, wanted, name)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How values are converted to a type. `rule` says how the fields of structs are matched; `convert` converts a value
    that is neither a struct, a list nor a map.

    Structs, lists and maps are converted element by element, because a cast of the whole value matches fields by
    position and makes nulls.
    """

    rule: FieldRule
    convert: Callable[[Any, SparkType, SparkType], Any]

    def fitted(self, value: Any, stored: SparkType, wanted: SparkType, path: str) -> Any:
        """Returns the value, which has the type `stored`, in the type `wanted`. `path` is the path of the column, for
        messages. Raises SchemaMismatchError if the types do not fit.
        """
        if stored == wanted:
            return value
        if isinstance(stored, ArrayType) and isinstance(wanted, ArrayType):
            inner = f"{path}.element"
            return F.transform(value, lambda v: self.fitted(v, stored.elementType, wanted.elementType, inner))
        if isinstance(stored, MapType) and isinstance(wanted, MapType):
            at_key, at_value = f"{path}.key", f"{path}.value"
            keyed = F.transform_keys(value, lambda k, v: self.fitted(k, stored.keyType, wanted.keyType, at_key))
            return F.transform_values(keyed, lambda k, v: self.fitted(v, stored.valueType, wanted.valueType, at_value))
        if isinstance(stored, StructType) and isinstance(wanted, StructType):
            positions = self.rule(stored.names, wanted.names, path)
            # Spark ignores case in the names of fields, and finds no field whose name occurs twice.
            numbered = value.cast(StructType([StructField(f"f{i}", f.dataType) for i, f in enumerate(stored)]))
            parts = [
                self.fitted(numbered[f"f{p}"], stored[p].dataType, w.dataType, f"{path}.{w.name}").alias(w.name)
                for p, w in zip(positions, wanted, strict=True)
            ]
            return F.when(value.isNotNull(), F.struct(*parts))
        if isinstance(stored, _WITH_PARTS) or (isinstance(wanted, _WITH_PARTS) and not isinstance(stored, NullType)):
            expected, found = wanted.simpleString(), stored.simpleString()
            raise SchemaMismatchError(
                f"column {path}: expected {expected}, found {found}", column=path, expected=expected, found=found
            )
        return self.convert(value, stored, wanted)


def _cast(value: Any, stored: SparkType, wanted: SparkType) -> Any:
    del stored
    return value.cast(wanted)


def _exact(value: Any, stored: SparkType, wanted: SparkType, *, place: str) -> Any:
    """Returns a Spark expression for the value in another type. The expression raises an error that names `place` if
    the type cannot hold the value.
    """
    tried = _try_cast(value, wanted)
    text = F.concat(F.lit(f"{place} {wanted.simpleString()} cannot hold "), value.cast("string"))
    return F.when(value.isNotNull() & tried.isNull(), F.raise_error(text)).otherwise(tried)


def _try_cast(value: Any, wanted: SparkType) -> Any:
    """Returns the value in another type; it is null if the type cannot hold the value. PySpark 3.5 has this cast only
    in SQL text, so this function uses Spark's class for the cast.

    Source: Spark 3.5 Cast, EvalMode.TRY.
    """
    if hasattr(Column, "try_cast"):
        return value.try_cast(wanted)
    spark = SparkSession.getActiveSession()
    assert spark is not None, "columns are made in a session"
    jvm = spark.sparkContext._jvm
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    to = spark._jsparkSession.parseDataType(wanted.json())
    cast = expressions.Cast(value._jc.expr(), to, jvm.scala.Option.empty(), expressions.EvalMode.TRY())
    return Column(jvm.org.apache.spark.sql.Column(cast))
