"""Carries out INSERT, UPDATE, DELETE and TRUNCATE by operations of `Table`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.table.table_options import DYNAMIC_PARTITION_OVERWRITE, says_what_is_overwritten
from bucketline.state.bucket.defaults import left_out_value
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_places import hidden_fields
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.state.sql.dialect import DIALECT, refused, sql_text
from bucketline.state.sql.queries import read_query
from bucketline.state.sql.statement import Delete, Insert, TruncateTable, Update
from bucketline.state.store.sql.assigned import values_by_column, with_defaults
from bucketline.state.store.sql.merge import merge
from bucketline.state.store.sql.newest_partition import NewestPartitions
from bucketline.state.store.sql.queries import LOCAL_QUERIES, Queries, QueryTarget, engine_of
from bucketline.state.store.sql.relation import (
    bind_columns,
    is_literal,
    is_time_literal,
    literal_of,
)
from bucketline.state.store.sql.results import snapshot_result
from bucketline.state.store.sql.session import OVERWRITE_MODE, SqlSession
from bucketline.state.store.sql.spelling import spelled, spelled_keys
from bucketline.state.store.sql.stored_values import stored_column, stored_literal
from bucketline.state.store.sql.subqueries import computed_by_merge, has_query, with_literals
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.buffers import repeated
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.struct_fields import by_position, by_spelling
from bucketline.state.types.timestamp_text import cast_text, plain_value


def insert(session: SqlSession, statement: Insert, queries: Queries) -> pa.Table:
    """Writes the rows of an INSERT, and returns the id of the newest snapshot as a row. OVERWRITE replaces the
    partition that the statement names. If the statement names no partition, the options decide whether the whole table
    is replaced, or only the partitions that get rows.
    """
    table = session.table(statement.table.name, statement.table.options, writes=True)
    if statement.overwrite and not statement.partition:
        table = _overwritten(session, table, queries)
    statement = replace(
        statement,
        query=NewestPartitions(session).in_query(statement.query),
        partition=spelled_keys(statement.partition, table.partition_by),
        dynamic=tuple(spelled(statement.dynamic, table.partition_by)),
    )
    names = _target_columns(table, statement)
    fields = {f.name: f for f in handle_of(table).table_schema.fields}
    fixed = {name: _fixed_value(fields[name], text) for name, text in statement.partition.items()}
    statement = _without_default(statement, [fields[n] for n in names])
    literals = _literal_rows(statement, [fields[n] for n in names], queries)
    partition = dict(statement.partition) or None
    if literals is None:
        target = QueryTarget(table, None if statement.by_name else names, fixed, statement.overwrite, partition)
        written = queries.write(session, statement.query, target)
        if written is not None:
            return snapshot_result(written)
    rows = queries.rows(session, statement.query) if literals is None else literals.to_reader()
    if not statement.by_name:
        _check_width(statement, len(rows.schema), names)
    if statement.by_name:
        names = spelled(rows.schema.names, table.schema.names)
    completed = _completed(rows, names, fixed, handle_of(table).table_schema, statement.by_name)
    if not statement.overwrite:
        return snapshot_result(table.write(completed))
    return snapshot_result(table.overwrite(completed, partition=partition))


def _without_default(statement: Insert, fields: Sequence[DataField]) -> Insert:
    """Returns the statement with the defaults of the columns in place of the word DEFAULT."""
    tree = statement.query.tree
    rows = with_defaults(tree, fields) if isinstance(tree, exp.Values) and not statement.by_name else None
    return statement if rows is None else replace(statement, query=read_query(rows.sql(DIALECT)))


def _overwritten(session: SqlSession, table: Table, queries: Queries) -> Table:
    """Returns the table with the option that says what an INSERT OVERWRITE without a partition replaces. An option of
    the table, the session or the statement decides. If there is none, Spark's overwrite mode decides: all rows are
    replaced unless the mode is `dynamic`.
    """
    handle = handle_of(table)
    if says_what_is_overwritten({**handle.table_schema.options, **handle.write_options}):
        return table
    mode = queries.option(OVERWRITE_MODE) or session.options.get(OVERWRITE_MODE, "static")
    dynamic = str(mode.strip().lower() == "dynamic").lower()
    return Table(replace(handle, write_options={**handle.write_options, DYNAMIC_PARTITION_OVERWRITE.key: dynamic}))


def _target_columns(table: Table, statement: Insert) -> list[str]:
    """Returns the columns that get the query's values, in the order of the query. Raises OptionError for an unknown
    column.
    """
    for name in (*statement.partition, *statement.dynamic):
        if name not in table.partition_by:
            raise refused(
                f"INSERT: {name!r} is not a partition column of {statement.table.name}; the table is partitioned by "
                f"({', '.join(table.partition_by)})",
                column=name,
            )
    if statement.columns is None:
        return [n for n in table.schema.names if n not in statement.partition]
    names = []
    for column, name in zip(statement.columns, spelled(statement.columns, table.schema.names), strict=True):
        if name not in table.schema.names:
            raise refused(
                f"INSERT: unknown column '{column}'; the table has {', '.join(table.schema.names)}", column=column
            )
        if name in names or name in statement.partition:
            raise refused(f"INSERT: column '{name}' is given twice; name it once", column=name)
        names.append(name)
    return names


def _literal_rows(statement: Insert, fields: Sequence[DataField], queries: Queries) -> pa.Table | None:
    """Returns the rows of VALUES, with the types of the columns; None if the statement has a query instead, or if a
    value is no literal.

    Also returns None if Spark runs the queries, and a column with local time zone gets a time literal, because Spark
    must read this literal in the time zone of its session.
    """
    tree = statement.query.tree
    if not isinstance(tree, exp.Values) or statement.by_name:
        return None
    rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in tree.expressions]
    for row in rows:
        _check_width(statement, len(row), [f.name for f in fields])
    if queries is not LOCAL_QUERIES:
        for at, field in enumerate(fields):
            if field.type.root is TypeRoot.TIMESTAMP_LTZ and any(is_time_literal(row[at]) for row in rows):
                return None
    return _literal_table(rows, fields)


def _literal_table(rows: Sequence[Sequence[exp.Expression]], fields: Sequence[DataField]) -> pa.Table | None:
    """Returns the rows of VALUES as a table; None if a value is no literal. Raises OptionError for a literal that does
    not fit its column.
    """
    columns = []
    for at, field in enumerate(fields):
        nodes = [row[at] for row in rows]
        if not all(is_literal(node, field) for node in nodes):
            return None
        values = [stored_literal(node, field) for node in nodes]
        columns.append(pa.array([plain_value(v) for v in values], arrow_type(field.type)))
    return pa.table(columns, names=[f.name for f in fields])


def _completed(
    rows: pa.RecordBatchReader,
    names: Sequence[str],
    fixed: Mapping[str, pa.Scalar],
    table: TableSchema,
    by_name: bool,
) -> pa.RecordBatchReader:
    """Returns a reader of the rows under the table's column names. Constant columns (`fixed`) are added, and nulls for
    columns that get no value.

    Values are converted to the types of the columns (`stored_column`). The fields of structs are matched in the same
    way as the columns: by name or by position.
    """
    own, fields_rule = {f.name: f for f in table.fields}, by_spelling if by_name else by_position

    def stored(name: str, column: pa.Array) -> pa.Array:
        field = own.get(name)
        if field is None:
            return column
        return stored_column(column, field, fields_rule)

    def completed(batch: pa.RecordBatch) -> pa.RecordBatch:
        given = [stored(n, c) for n, c in zip(names, batch.columns, strict=True)]
        added = [repeated(value, batch.num_rows) for value in constants.values()]
        return pa.RecordBatch.from_arrays([*given, *added], names=[*names, *constants])

    missing = [f for f in table.fields if f.name not in names and f.name not in fixed]
    constants = {**fixed, **{f.name: left_out_value(f) for f in missing}}
    whole = completed(pa.RecordBatch.from_pylist([], schema=rows.schema)).schema
    return pa.RecordBatchReader.from_batches(whole, (completed(batch) for batch in rows))


def _fixed_value(field: DataField, text: str | None) -> pa.Scalar:
    """Returns the value of `PARTITION (column = value)`. For every type the value may be written as a string. Raises
    OptionError for a string that is no value of the column.
    """
    target = arrow_type(field.type)
    if text is None:
        return pa.scalar(None, target)
    try:
        return cast_text(text, target)
    except pa.ArrowInvalid as e:
        raise refused(f"INSERT: {text!r} is not a value of partition column '{field.name}' {field.type}") from e


def _check_width(statement: Insert, width: int, names: Sequence[str]) -> None:
    """Raises SchemaMismatchError if the number of values differs from the number of columns."""
    if width != len(names):
        raise SchemaMismatchError(
            f"INSERT INTO {statement.table.name}: {width} values for {len(names)} columns ({', '.join(names)})",
            expected=len(names),
            found=width,
        )


def delete(session: SqlSession, statement: Delete, queries: Queries) -> pa.Table:
    """Deletes the rows that meet the condition, and returns the id of the newest snapshot as a row. Without a
    condition, all rows are removed.
    """
    table = session.table(statement.table.name, statement.table.options, writes=True)
    if statement.where is None:
        return snapshot_result(table.truncate())
    statement = replace(statement, where=NewestPartitions(session).in_value(statement.where))
    if has_query(statement.where):
        if _joins(table, queries):
            return merge(session, computed_by_merge(statement, table.primary_key), queries)
        statement = replace(statement, where=with_literals(session, statement.where, statement, queries))
        assert statement.where is not None
    condition = _condition(table, statement.where, statement.alias)
    return snapshot_result(table.delete(condition, engine=engine_of(queries, table)))


def update(session: SqlSession, statement: Update, queries: Queries) -> pa.Table:
    """Updates the rows that meet the condition, and returns the id of the newest snapshot as a row."""
    table = session.table(statement.table.name, statement.table.options, writes=True)
    schema = handle_of(table).table_schema
    fields = schema.fields
    newest = NewestPartitions(session)
    where = None if statement.where is None else newest.in_value(statement.where)
    assignments = {path: newest.in_value(node) for path, node in statement.assignments.items()}
    statement = replace(statement, where=where, assignments=assignments)
    if any(map(has_query, (statement.where, *statement.assignments.values()))):
        if _joins(table, queries):
            return merge(session, computed_by_merge(statement, table.primary_key), queries)
        statement = _with_literals(session, statement, queries)
    values: dict[str, object] = {}
    for column, node in values_by_column(statement.assignments, fields, "UPDATE").items():
        field = schema.field(column)
        if is_literal(node, field):
            values[column] = plain_value(literal_of(node, field))
        else:
            values[column] = SqlExpression(sql_text(bind_columns(node, fields, statement.alias)))
    condition = pc.scalar(True) if statement.where is None else _condition(table, statement.where, statement.alias)
    return snapshot_result(table.update(condition, values, engine=engine_of(queries, table)))


def _joins(table: Table, queries: Queries) -> bool:
    """Returns True if Spark runs the subqueries of a change, and a MERGE then changes the rows that Spark has found
    (see `computed_by_merge`). In Spark, a subquery may refer to the changed row, and may return any number of rows.
    """
    return queries is not LOCAL_QUERIES and bool(table.primary_key)


def _with_literals(session: SqlSession, statement: Update, queries: Queries) -> Update:
    where = statement.where
    return replace(
        statement,
        where=with_literals(session, where, statement, queries) if where is not None and has_query(where) else where,
        assignments={
            path: with_literals(session, node, statement, queries) if has_query(node) else node
            for path, node in statement.assignments.items()
        },
    )


def _condition(table: Table, where: exp.Expression, alias: str) -> SqlExpression:
    """Returns the WHERE condition in the form that `Table.delete` and `Table.update` take."""
    schema = handle_of(table).table_schema
    return SqlExpression(sql_text(bind_columns(where, (*schema.fields, *hidden_fields(schema)), alias)))


def truncate(session: SqlSession, statement: TruncateTable) -> pa.Table:
    """Removes all rows of the table or of a partition, and returns the id of the newest snapshot as a row."""
    table = session.table(statement.name, writes=True)
    if statement.partition is None:
        return snapshot_result(table.truncate())
    return snapshot_result(table.drop_partitions([spelled_keys(statement.partition, table.partition_by)]))
