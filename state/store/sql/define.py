"""Carries out definitions: CREATE, DROP, ALTER, USE, SHOW, DESCRIBE, SET and RESET. Each function returns the result of
its statement as a table.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.catalog_options import MetastoreKind
from bucketline.conf.statement_options import split_comment, without_type
from bucketline.conf.table.other_options import CATALOG_OF_TABLE
from bucketline.conf.table.read_options import BRANCH, SCAN_SNAPSHOT_ID, VERSIONS
from bucketline.state.commit.schema_change import AddColumn, DropColumn
from bucketline.state.errors import TableNotFoundError
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.statement import (
    AlterTable,
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    Describe,
    Drop,
    DropPartitions,
    Kind,
    Query,
    Refresh,
    RenameTable,
    Reset,
    Set,
    Show,
    TableReference,
    Use,
)
from bucketline.state.sql.words import database_name, table_name
from bucketline.state.store.sql.newest_partition import NewestPartitions
from bucketline.state.store.sql.partitions import shown_partitions
from bucketline.state.store.sql.queries import Queries, QueryTarget
from bucketline.state.store.sql.results import DONE, snapshot_result, texts
from bucketline.state.store.sql.session import SqlSession, is_path, refuse_system_table
from bucketline.state.store.sql.spelling import finds, spelled_change, spelled_keys
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.store.warehouse.catalog import catalog
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import columns_text, quoted_name, quoted_text, type_text

_OF_ONE_TABLE = (
    BRANCH.key,
    CATALOG_OF_TABLE,
    "path",
    "provider",
    "location",
    "owner",
    "external",
    "is_managed_location",
)


def create_table(session: SqlSession, statement: CreateTable, queries: Queries) -> pa.Table:
    """Creates a table. With AS SELECT the rows of the query are written too; if this fails, the table is
    removed again.
    """
    catalog, name = session.place(statement.name)
    schema: str | pa.Schema | None = statement.columns
    keys, partitions = statement.primary_key, statement.partition_by
    options, own_comment = split_comment(statement.options)
    comment = statement.comment or own_comment
    if statement.exist_ok and catalog.has_table(name):
        return DONE
    if statement.like is not None:
        source = handle_of(session.table(statement.like)).table_schema
        schema, keys = columns_text(source.fields), keys or source.primary_keys
        partitions, comment = partitions or source.partition_keys, comment or source.comment
        options = {**(_without_place(source.options) if statement.like_options else {}), **options}
    rows, is_there = None, statement.replaces and catalog.has_table(name)
    if statement.replaces and not is_there and not statement.created:
        raise refused(f"REPLACE TABLE: there is no table {name}; use CREATE OR REPLACE TABLE to create it")
    query = statement.query
    if query is not None:
        query = NewestPartitions(session).in_query(query)
        query = _as_it_was(session, query, name) if is_there else query
        rows = queries.spread(session, query) or queries.rows(session, query)
        schema = pa.schema([_nullable(f) for f in rows.schema])
    assert schema is not None, "parsing makes sure of columns"
    if is_there:
        table = catalog.replace_table(name, schema, keys, partitions, options, comment)
    else:
        table = catalog.create_table(name, schema, keys, partitions, options, comment, exist_ok=statement.exist_ok)
    if rows is None or query is None:
        return DONE
    try:
        if isinstance(rows, pa.RecordBatchReader):
            return snapshot_result(table.write(rows))
        return snapshot_result(queries.write(session, query, QueryTarget(table, table.schema.names, {})))
    except BaseException:
        if not is_there and handle_of(table).snapshot_store.latest_id() is None:
            catalog.drop_table(name)
        raise


def _as_it_was(session: SqlSession, query: Query, name: str) -> Query:
    """Returns the query, changed so that it reads the table `name` at its present snapshot. The query is run after the
    table was replaced by an empty table.
    """
    relations = []
    for relation in query.relations:
        own = not is_path(relation.name) and session.place(relation.name)[1] == name and relation.name.system is None
        newest = handle_of(session.table(relation.name)).snapshot_store.latest_id() if own else None
        if newest is not None and not any(option.key in relation.options for option in VERSIONS):
            relation = replace(relation, options={**relation.options, SCAN_SNAPSHOT_ID.key: str(newest)})
        relations.append(relation)
    return replace(query, relations=tuple(relations))


def _nullable(field: pa.Field) -> pa.Field:
    """Returns the field as nullable. All fields and elements inside it become nullable, too, except keys of maps. Spark
    makes the columns of a table from a query in the same way.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(f) for f in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _nullable(kind.item_field))
    return field.with_type(kind).with_nullable(True)


def _without_place(options: Mapping[str, str]) -> dict[str, str]:
    """Returns a table's options without the options that say where the table's files are, because another table has its
    files elsewhere.
    """
    return {key: value for key, value in options.items() if key not in _OF_ONE_TABLE}


def create_database(session: SqlSession, statement: CreateDatabase) -> pa.Table:
    """Creates a database. Returns one row, `OK`."""
    session.catalog_of(statement.catalog).create_database(statement.name, exist_ok=statement.exist_ok)
    return DONE


def create_catalog(session: SqlSession, statement: CreateCatalog) -> pa.Table:
    """Creates a catalog for this session only. The options of the statement are those of `bl.catalog`.
    Returns one row, `OK`.
    """
    if statement.name in session.catalogs:
        if statement.exist_ok:
            return DONE
        raise refused(f"Catalog {statement.name} already exists.", catalog=statement.name)
    session.catalogs[statement.name] = catalog(without_type(statement.options))
    return DONE


def drop(session: SqlSession, statement: Drop) -> pa.Table:
    """Drops a table, a database or a catalog. Returns one row, `OK`."""
    if statement.kind is Kind.CATALOG:
        (name,) = statement.path
        if name == session.catalog:
            raise refused(f"catalog '{name}' is in use; change to another catalog with USE CATALOG first", catalog=name)
        if session.catalogs.pop(name, None) is None and not statement.missing_ok:
            raise refused(f"there is no catalog '{name}'", catalog=name)
        return DONE
    if statement.kind is Kind.DATABASE:
        catalog, database = database_name(statement.path)
        session.catalog_of(catalog).drop_database(database, missing_ok=statement.missing_ok, cascade=statement.cascade)
        return DONE
    table = table_name(statement.path)
    if table.system is not None or table.branch is not None:
        raise refused(f"DROP TABLE {table}: a branch cannot be dropped by DROP TABLE; use CALL sys.delete_branch")
    home, full_name = session.place(table)
    home.drop_table(full_name, missing_ok=statement.missing_ok)
    return DONE


def use(session: SqlSession, statement: Use) -> pa.Table:
    """Changes the current catalog or the current database of the session. Returns one row, `OK`."""
    if statement.kind is Kind.CATALOG:
        session.use_catalog(statement.path[0])
        return DONE
    catalog, database = database_name(statement.path)
    if catalog is None and database in session.catalogs and database not in session.catalog_of(None).list_databases():
        session.use_catalog(database)
        return DONE
    if database != "default":
        session.catalog_of(catalog).list_tables(database)
    if catalog is not None:
        session.use_catalog(catalog)
    session.database = database
    return DONE


def show(session: SqlSession, statement: Show) -> pa.Table:
    """Returns the result of SHOW: names of databases, tables or catalogs, or properties of one table."""
    if statement.subject in _SHOWN_OF_TABLE or statement.subject == "CREATE TABLE":
        name = table_name(statement.path)
        table = session.table(name)
        if statement.subject == "CREATE TABLE":
            shown = [name.table] if is_path(name) else session.place(name)[1].split(".", 1)
            return texts("create_statement", [create_statement(table, ".".join(map(quoted_name, shown)))])
        return _SHOWN_OF_TABLE[statement.subject](table, statement)
    if statement.subject == "VIEWS":
        return _show_views(session, statement)
    if statement.subject == "TABLES":
        catalog, database = database_name(statement.path or (session.database,))
        names = _like(session.catalog_of(catalog).list_tables(database), statement.like)
        return pa.table(
            {"database": pa.array([database] * len(names), pa.string()), "table": pa.array(names, pa.string())}
        )
    if statement.subject == "CURRENT CATALOG":
        return texts("catalog", [session.catalog] if session.catalog else [])
    if statement.subject == "CURRENT DATABASE":
        return texts("database", [session.database])
    if statement.subject == "CATALOGS":
        return texts("catalog", _like(sorted(session.catalogs), statement.like))
    databases = session.catalog_of(statement.path[0] if statement.path else None).list_databases()
    return texts("database", _like(databases, statement.like))


def _show_views(session: SqlSession, statement: Show) -> pa.Table:
    """Returns no rows, in the columns of Spark's SHOW VIEWS, because folders and JDBC catalogs hold no views."""
    catalog_name, database = database_name(statement.path or (session.database,))
    catalog = session.catalog_of(catalog_name)
    if catalog.settings.metastore is MetastoreKind.REST:
        raise refused(
            "SHOW VIEWS is not supported in a REST catalog, because bucketline does not read views",
            statement="SHOW VIEWS",
        )
    catalog.list_tables(database)
    columns = [("namespace", pa.string()), ("viewName", pa.string()), ("isTemporary", pa.bool_())]
    return pa.schema(columns).empty_table()


def refresh(session: SqlSession, statement: Refresh) -> pa.Table:
    """Checks that the table exists. Nothing has to be refreshed, because each statement reads the table anew.
    Returns one row, `OK`.
    """
    session.table(statement.name)
    return DONE


def _like(names: list[str], pattern: str | None) -> list[str]:
    """Returns the names that match the pattern: `*` and `%` stand for any characters, `_` for one character, and `|`
    separates alternatives.
    """
    if pattern is None:
        return names
    signs = {"*": ".*", "%": ".*", "_": ".", "|": "|"}
    expression = re.compile("".join(signs.get(sign, re.escape(sign)) for sign in pattern), re.IGNORECASE)
    return [name for name in names if expression.fullmatch(name)]


def describe(session: SqlSession, statement: Describe) -> pa.Table:
    """Returns a row for each column of a table or of a system table, with its name, its type and whether it may be
    null. For a table, a row also has the column's role (such as primary key) and its comment.
    """
    name = statement.name
    table = session.table(name)
    if name.system is not None:
        schema = table.system(name.system).schema
        types = [type_text(f.type.as_nullable()) for f in logical_fields(schema)]
        return _columns(schema.names, types, [f.nullable for f in schema])
    fields = handle_of(table).table_schema.fields
    return _columns(
        [f.name for f in fields],
        [type_text(f.type.as_nullable()) for f in fields],
        [f.type.nullable for f in fields],
        [_role(table, f.name) for f in fields],
        [f.description for f in fields],
    )


def _role(table: Table, column: str) -> str | None:
    roles = [
        r for r, names in (("primary key", table.primary_key), ("partition", table.partition_by)) if column in names
    ]
    return ", ".join(roles) or None


def _columns(
    names: list[str],
    types: list[str],
    nullable: list[bool],
    keys: list[str | None] | None = None,
    comments: list[str | None] | None = None,
) -> pa.Table:
    nothing = [None] * len(names)
    return pa.table(
        {
            "col_name": pa.array(names, pa.string()),
            "data_type": pa.array(types, pa.string()),
            "nullable": pa.array(nullable, pa.bool_()),
            "key": pa.array(keys or nothing, pa.string()),
            "comment": pa.array(comments or nothing, pa.string()),
        }
    )


def create_statement(table: Table, name: str) -> str:
    """Returns a CREATE TABLE statement that creates a table like this one."""
    handle = handle_of(table)
    schema = handle.table_schema
    columns = [f"  {columns_text([f])}" for f in schema.fields]
    if schema.primary_keys:
        columns.append(f"  PRIMARY KEY ({', '.join(map(quoted_name, schema.primary_keys))}) NOT ENFORCED")
    lines = [f"CREATE TABLE {name} (", ",\n".join(columns), ")"]
    if schema.comment:
        lines.append(f"COMMENT {quoted_text(schema.comment)}")
    if schema.partition_keys:
        lines.append(f"PARTITIONED BY ({', '.join(map(quoted_name, schema.partition_keys))})")
    own = {k: v for k, v in _without_place(schema.options).items() if k not in handle.read_options}
    options = [f"  {quoted_text(k)} = {quoted_text(v)}" for k, v in own.items()]
    if options:
        lines += ["WITH (", ",\n".join(options), ")"]
    return "\n".join(lines)


def _show_columns(table: Table, statement: Show) -> pa.Table:
    del statement
    return texts("col_name", table.schema.names)


def _show_options(table: Table, statement: Show) -> pa.Table:
    shown = table.system("options")
    return shown if statement.key is None else shown.filter(pc.field("key") == statement.key)


def _show_tags(table: Table, statement: Show) -> pa.Table:
    del statement
    return texts("tag", table.tags()["tag_name"].to_pylist())


def _show_partitions(table: Table, statement: Show) -> pa.Table:
    """Returns the partitions of a table; with PARTITION (...), only the partitions that have the values in the
    parentheses.
    """
    if not table.partition_by:
        raise refused(f"SHOW PARTITIONS: {table.path} has no partition columns")
    wanted = spelled_keys(statement.partition or {}, table.partition_by)
    for name in wanted:
        if name not in table.partition_by:
            raise refused(
                f"SHOW PARTITIONS: {name!r} is not a partition column of {table.path}; the table is partitioned by "
                f"({', '.join(table.partition_by)})",
                column=name,
            )
    return texts("partition", shown_partitions(table, wanted))


_SHOWN_OF_TABLE: Mapping[str, Callable[[Table, Show], pa.Table]] = {
    "TAGS": _show_tags,
    "COLUMNS": _show_columns,
    "OPTIONS": _show_options,
    "PARTITIONS": _show_partitions,
}


def alter(session: SqlSession, statement: AlterTable) -> pa.Table:
    """Changes the schema of a table. With IF EXISTS, does nothing for a table, or for a column to drop, that does not
    exist. Returns one row, `OK`.
    """
    refuse_system_table(statement.name)
    try:
        table = session.table(statement.name)
    except TableNotFoundError:
        if statement.missing_ok:
            return DONE
        raise
    fields = handle_of(table).table_schema.fields
    changes = [spelled_change(change, fields) for change in statement.changes]
    for change in changes:
        if isinstance(change, AddColumn) and finds(change.path, fields):
            raise refused(f"ALTER TABLE: column {'.'.join(change.path)} already exists", column=change.path[-1])
    if statement.column_missing_ok:
        changes = [change for change in changes if not isinstance(change, DropColumn) or finds(change.path, fields)]
    table.alter(*changes)
    return DONE


def rename(session: SqlSession, statement: RenameTable) -> pa.Table:
    """Renames a table. Returns one row, `OK`."""
    refuse_system_table(statement.name)
    refuse_system_table(statement.to)
    catalog, name = session.place(statement.name)
    to = statement.to
    if to.database is None:
        to = TableReference(to.table, name.partition(".")[0], statement.name.catalog)
    target, new = session.place(to)
    if target is not catalog:
        raise refused(
            f"ALTER TABLE: {statement.name} cannot be renamed into another catalog; give a name in the same catalog"
        )
    if statement.missing_ok and not catalog.has_table(name):
        return DONE
    catalog.rename_table(name, new)
    return DONE


def set_option(session: SqlSession, statement: Set, queries: Queries) -> pa.Table:
    """SET with a value: sets an option of the session, and returns one row, `OK`. SET without a value: returns the
    options that are set, or only the option that the statement names, as rows with the columns `key` and `value`.
    """
    if statement.key is not None and statement.value is not None:
        if not queries.set_option(statement.key, statement.value):
            session.set(statement.key, statement.value)
        return DONE
    shown = {k: v for k, v in session.options.items() if statement.key in (None, k)}
    return pa.table({"key": pa.array(list(shown), pa.string()), "value": pa.array(list(shown.values()), pa.string())})


def reset(session: SqlSession, statement: Reset) -> pa.Table:
    """Removes an option of the session, or all options. Returns one row, `OK`."""
    session.reset(statement.key)
    return DONE


def drop_partitions(session: SqlSession, statement: DropPartitions) -> pa.Table:
    """Drops partitions, and returns the id of the newest snapshot as a row."""
    table = session.table(statement.name, writes=True)
    partitions = [spelled_keys(values, table.partition_by) for values in statement.partitions]
    before = handle_of(table).snapshot_store.latest_id()
    newest = table.drop_partitions(partitions)
    if (newest or None) == before and not statement.missing_ok:
        raise refused(
            f"ALTER TABLE DROP PARTITION: no partition of {statement.name} matches; use DROP IF EXISTS PARTITION to "
            "ignore this",
            statement="ALTER TABLE",
        )
    return snapshot_result(newest)
