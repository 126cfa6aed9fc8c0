"""INSERT INTO ... SELECT in Spark's tasks: the rows of a DataFrame are written where Spark computes them."""

from typing import Any

from pyspark.sql import functions as F

from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.engine import Engine, Outcome
from bucketline.state.store.sql.queries import Columns
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.store.table.write import write_source
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_session import WriteSession
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.batch.preflight import check_session
from bucketline.streaming.reader.spark_rows import spark_schema
from bucketline.streaming.tasks.read_task import Frame
from bucketline.streaming.tasks.spark_engine import SparkEngine


def write_frame(spark: Any, engine: Engine, table: Table, frame: Any, columns: Columns) -> WriteResult | None:
    """Writes the rows as one commit; the newest snapshot's id. None for a table whose keys are in an index of the
    writer's own: one process must see all of them.

    Raises SchemaMismatchError for a number of columns that does not fit and for a row that cannot be stored, and as
    `Table.write`; SparkFailedError.
    """
    handle = handle_of(table)
    if bucket_mode(handle.table_schema).moves_keys:
        return None
    check_session(spark)
    fitting = _fitted(table, frame, columns)

    def write() -> WriteResult:
        handle.io.require_publish()
        session = WriteSession(handle.uri, {}, table=handle)
        session.refresh()
        return write_source(session, Frame(fitting, reject_limit=None), run, engine)

    def run(stages: Stages[Frame]) -> Outcome:
        with explained_in_one_line():
            return SparkEngine(spark).run(stages)

    return repeat_if_gone(write)


def _fitted(table: Table, frame: Any, columns: Columns) -> Any:
    """The frame with the table's columns, cast to their types as Spark casts what it stores."""
    names = frame.columns if columns.names is None else list(columns.names)
    if len(names) != len(frame.columns):
        raise SchemaMismatchError(
            f"INSERT: {len(frame.columns)} values for {len(names)} columns ({', '.join(names)})",
            expected=len(names),
            found=len(frame.columns),
        )
    renamed = frame.toDF(*names)
    own = spark_schema(table.schema)
    found = []
    for field in own.fields:
        if field.name in names:
            value = F.col(f"`{field.name.replace('`', '``')}`")
        else:
            constant = columns.constants.get(field.name)
            value = F.lit(None if constant is None else constant.as_py())
        found.append(value.cast(field.dataType).alias(field.name))
    unknown = [name for name in names if name not in table.schema.names]
    if unknown:
        raise SchemaMismatchError(
            f"INSERT: unknown column {unknown[0]!r}; there are {', '.join(table.schema.names)}", column=unknown[0]
        )
    return renamed.select(*found)
