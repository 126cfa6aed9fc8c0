"""Queries over a Spark session: each table that a query names becomes a temporary view, and Spark runs the rest."""

from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from bucketline.conf.errors import OptionError
from bucketline.conf.option import parse_bool
from bucketline.conf.reader_options import (
    CHANGE_COLUMNS,
    CHANGES_SINCE,
    CHANGES_UNTIL,
    COLUMNS,
    FILTER,
    READ_CHANGELOG,
    READ_OPTIMIZED,
)
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_places import HIDDEN_NAMES, hidden_fields
from bucketline.state.sql.dialect import as_spark_reads, refused
from bucketline.state.sql.narrowing import needed_columns, needed_rows, star_beside, with_listed_columns
from bucketline.state.sql.statement import Query, Relation
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.engine.engine import SpreadEngine
from bucketline.state.store.read.fallback import own_view
from bucketline.state.store.sql.between import Between, Differing
from bucketline.state.store.sql.newest_partition import NewestPartitions
from bucketline.state.store.sql.queries import QueryTarget, SpreadRows
from bucketline.state.store.sql.session import SqlSession, is_path
from bucketline.state.store.system.changes import ROW_KIND, changes_between
from bucketline.state.store.system.tables import system_table
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.types.columns_text import in_backticks
from bucketline.state.types.row_kind import SHORT_NAMES
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.batch.procedures import spark_engine
from bucketline.streaming.reader.spark_rows import spark_type
from bucketline.streaming.sql.difference_frame import difference_frame
from bucketline.streaming.sql.table_frame import from_arrow, make_known, read_frame, to_arrow
from bucketline.streaming.sql.write_frame import write_frame
from bucketline.streaming.tasks.frame_schema import frame_schema

_OWN_OPTIONS = "spark."
_PAIMON_OPTIONS = "spark.paimon."
_READ_OPTIMIZED = "ro"
_REGEX_NAMES = "spark.sql.parser.quotedRegexColumnNames"
"""The name in backticks that can stand for any column."""


class SparkQueries:
    """Runs queries, and shows the results of statements, with a Spark session."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._engine = spark_engine(spark)
        make_known(spark)

    @property
    def engine(self) -> SpreadEngine:
        return self._engine

    def set_option(self, key: str, value: str) -> bool:
        """Sets an option of Spark in the Spark session. Returns False if Spark has no option with this key."""
        if not key.startswith(_OWN_OPTIONS) or key.startswith(_PAIMON_OPTIONS):
            return False
        self._spark.conf.set(key, value)
        return True

    def option(self, key: str) -> str | None:
        found = self._spark.conf.get(key, None)
        return None if found is None else str(found)

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        """Returns the rows of a query, collected into this process."""
        frame = self.frame(session, query)
        with explained_in_one_line():
            return to_arrow(frame).to_reader()

    def check(self, session: SqlSession, query: Query) -> None:
        self.frame(session, query)

    def spread(self, session: SqlSession, query: Query) -> SpreadRows:
        frame = self.frame(session, query)
        with explained_in_one_line():
            return SpreadRows(frame_schema(frame), frame)

    def write(self, session: SqlSession, query: Query, target: QueryTarget) -> WriteResult:
        return write_frame(self._engine, self.frame(session, query), target)

    def frame(self, session: SqlSession, query: Query) -> Any:
        """Returns the query as a DataFrame. Each table is read with only the columns and rows that the query needs."""
        query = NewestPartitions(session).in_query(query)
        if parse_bool(self._spark.conf.get(_REGEX_NAMES, "false")):
            return self._frame(session, query, narrowed=False)
        try:
            return self._frame(session, self._listed(session, query), narrowed=True)
        except OptionError:
            # The tables may lack a column because a name is wrong, or means something else than expected. Over the
            # whole tables Spark runs the query, or reports the wrong name with all columns.
            return self._frame(session, query, narrowed=False)

    def _frame(self, session: SqlSession, query: Query, *, narrowed: bool) -> Any:
        text, views = query.text, []
        try:
            for relation in reversed(query.relations):
                if self._is_view(session, relation):
                    continue
                view = f"bucketline_{uuid4().hex}"
                self._read(session, relation, query if narrowed else None).createOrReplaceTempView(view)
                views.append(view)
                alias = "" if relation.has_alias else f" AS {in_backticks(_last_part(relation))}"
                text = f"{text[: relation.start]}`{view}`{alias}{text[relation.end :]}"
            return self._spark.sql(as_spark_reads(text))
        except AnalysisException as e:
            raise refused(f"Spark cannot run the query: {str(e).splitlines()[0]}") from e
        finally:
            for view in views:
                self._spark.catalog.dropTempView(view)

    def _listed(self, session: SqlSession, query: Query) -> Query:
        """Returns the query with the columns listed instead of `*`, if the query selects a hidden column next to `*`;
        otherwise returns it unchanged.
        """
        star = star_beside(query, HIDDEN_NAMES)
        if star is None or query.relations[0].name.system is not None or self._is_view(session, query.relations[0]):
            return query
        table, between = session.queried(query.relations[0])
        if between is not None:
            return query
        own = own_view(handle_of(table), None).schema
        return with_listed_columns(query, star, own.fields)

    def shown(self, result: pa.Table) -> Any:
        """Returns an Arrow result as a DataFrame. Times without a time zone stay times without a time zone."""
        if not result.num_rows:
            # Spark does not take columns without chunks.
            result = pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=result.schema)])
        columns = StructType([StructField(f.name, spark_type(f.type), f.nullable) for f in result.schema])
        return from_arrow(self._spark, result, columns)

    def _is_view(self, session: SqlSession, relation: Relation) -> bool:
        """Returns True if an unqualified name means a view of the Spark session. A table of the catalog with that name
        takes precedence over the view.
        """
        name = relation.name
        if name.database is not None or name.system is not None or is_path(name):
            return False
        if session.catalog is not None:
            catalog, full = session.place(name)
            if catalog.has_table(full):
                return False
        return bool(self._spark.catalog.tableExists(name.table))

    def _read(self, session: SqlSession, relation: Relation, query: Query | None) -> Any:
        """Returns a table as a DataFrame, limited to the columns and rows that the query needs; `query` None reads the
        whole table.
        """
        table, between = session.queried(relation)
        handle, system = handle_of(table), relation.name.system
        if between is not None:
            return self._changes(handle, between, as_log=system is not None)
        if system is None or system.lower() == _READ_OPTIMIZED:
            options = {**handle.read_options, **handle.storage, READ_OPTIMIZED.key: str(system is not None).lower()}
            if query is not None:
                options |= _needs(query, relation, own_view(handle, None).schema)
            return read_frame(self._spark, handle.uri, options)
        schema, rows = system_table(handle, system)
        return self.shown(pa.Table.from_batches(rows, schema=schema))

    def _changes(self, handle: TableHandle, between: Between | Differing, *, as_log: bool) -> Any:
        """Returns a DataFrame of the changes between two snapshots, or of the rows in which two tags differ. If
        `as_log` is true, the first column has the kind of each row.
        """
        if isinstance(between, Differing):
            return difference_frame(self._spark, handle, between, as_log=as_log)
        if between.since == between.until:
            schema, rows = changes_between(handle, between.since, between.until, as_log=as_log)
            return self.shown(pa.Table.from_batches(rows, schema=schema))
        options = {
            **handle.read_options,
            **handle.storage,
            CHANGES_SINCE.key: str(between.since),
            CHANGES_UNTIL.key: str(between.until),
            READ_CHANGELOG.key: str(as_log).lower(),
        }
        frame = read_frame(self._spark, handle.uri, options)
        if not as_log:
            return frame
        kind = F.element_at(F.array(*map(F.lit, SHORT_NAMES)), frame[ROW_KIND_COLUMN] + 1)
        own = [F.col(in_backticks(name)) for name in frame.columns if name not in CHANGE_COLUMNS]
        return frame.select(kind.alias(ROW_KIND), *own)


def _needs(query: Query, relation: Relation, schema: TableSchema) -> dict[str, str]:
    """Returns the reader's options that limit a table to the columns and rows that a query needs."""
    fields, hidden = schema.fields, hidden_fields(schema)
    columns = needed_columns(query, relation, fields, hidden)
    condition = needed_rows(query, relation, (*fields, *hidden))
    options = {} if columns is None else {COLUMNS.key: ",".join(columns)}
    return options if condition is None else {**options, FILTER.key: condition}


def _last_part(relation: Relation) -> str:
    system = "" if relation.name.system is None else f"${relation.name.system}"
    return f"{relation.name.table}{system}"
