"""Definitions: CREATE, DROP, ALTER, USE, SHOW, DESCRIBE, SET and RESET."""

import re
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.statement_options import split_comment, without_type
from bucketline.conf.table.other_options import CATALOG_OF_TABLE
from bucketline.state.errors import TableNotFoundError
from bucketline.state.format.paths import default_partition_name, parse_partition_path
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
    RenameTable,
    Reset,
    Set,
    Show,
    TableName,
    Use,
)
from bucketline.state.sql.words import database_name, table_name
from bucketline.state.store.sql.queries import Queries, Target
from bucketline.state.store.sql.results import DONE, snapshot_result, texts
from bucketline.state.store.sql.session import SqlSession, is_path, refuse_system_table
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.store.warehouse.catalog import catalog
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import columns_text, quoted_name, quoted_text, type_text

_OF_ONE_TABLE = (CATALOG_OF_TABLE, "path", "provider", "location", "owner", "external", "is_managed_location")


def create_table(session: SqlSession, found: CreateTable, queries: Queries) -> pa.Table:
    """Creates a table; with AS SELECT it gets the rows too, and does not stay when they cannot be written."""
    catalog, name = session.place(found.name)
    schema: str | pa.Schema | None = found.columns
    keys, partitions = found.primary_key, found.partition_by
    options, own_comment = split_comment(found.options)
    comment = found.comment or own_comment
    if found.exist_ok and catalog.has_table(name):
        return DONE
    if found.like is not None:
        source = handle_of(session.table(found.like)).table_schema
        schema, keys = columns_text(source.fields), keys or source.primary_keys
        partitions, comment = partitions or source.partition_keys, comment or source.comment
        options = {**(_without_place(source.options) if found.like_options else {}), **options}
    rows = None
    if found.query is not None:
        rows = queries.spread(session, found.query) or queries.rows(session, found.query)
        schema = pa.schema([f.with_nullable(True) for f in rows.schema])
    assert schema is not None, "parsing makes sure of columns"
    table = catalog.create_table(name, schema, keys, partitions, options, comment, exist_ok=found.exist_ok)
    if rows is None or found.query is None:
        return DONE
    try:
        if isinstance(rows, pa.RecordBatchReader):
            return snapshot_result(table.write(rows))
        return snapshot_result(queries.write(session, found.query, Target(table, table.schema.names, {})))
    except BaseException:
        if handle_of(table).snapshot_store.latest_id() is None:
            catalog.drop_table(name)
        raise


def _without_place(options: Mapping[str, str]) -> dict[str, str]:
    """A table's options without those that say where it is, which another table has for itself.

    Source: Paimon 2.0 SparkCatalog, CREATE TABLE LIKE.
    """
    return {key: value for key, value in options.items() if key not in _OF_ONE_TABLE}


def create_database(session: SqlSession, found: CreateDatabase) -> pa.Table:
    session.catalog_of(found.catalog).create_database(found.name, exist_ok=found.exist_ok)
    return DONE


def create_catalog(session: SqlSession, found: CreateCatalog) -> pa.Table:
    """A catalog for this session alone; other options are those of `bl.catalog`."""
    if found.name in session.catalogs:
        if found.exist_ok:
            return DONE
        raise refused(f"Catalog {found.name} already exists.", catalog=found.name)
    session.catalogs[found.name] = catalog(without_type(found.options))
    return DONE


def drop(session: SqlSession, found: Drop) -> pa.Table:
    if found.kind is Kind.CATALOG:
        (name,) = found.path
        if name == session.catalog:
            raise refused(f"catalog '{name}' is in use; USE CATALOG another one first", catalog=name)
        if session.catalogs.pop(name, None) is None and not found.missing_ok:
            raise refused(f"there is no catalog '{name}'", catalog=name)
        return DONE
    if found.kind is Kind.DATABASE:
        catalog, database = database_name(found.path)
        session.catalog_of(catalog).drop_database(database, missing_ok=found.missing_ok, cascade=found.cascade)
        return DONE
    table = table_name(found.path)
    if table.system is not None or table.branch is not None:
        raise refused(f"DROP TABLE {table}: drop the table itself; a branch goes with CALL sys.delete_branch")
    of, full = session.place(table)
    of.drop_table(full, missing_ok=found.missing_ok)
    return DONE


def use(session: SqlSession, found: Use) -> pa.Table:
    if found.kind is Kind.CATALOG:
        session.use_catalog(found.path[0])
        return DONE
    catalog, database = database_name(found.path)
    if catalog is None and database in session.catalogs and database not in session.catalog_of(None).list_databases():
        session.use_catalog(database)
        return DONE
    if database != "default":
        session.catalog_of(catalog).list_tables(database)
    if catalog is not None:
        session.use_catalog(catalog)
    session.database = database
    return DONE


def show(session: SqlSession, found: Show) -> pa.Table:
    """Names, or what a table is made of."""
    if found.what in _SHOWN_OF_TABLE or found.what == "CREATE TABLE":
        name = table_name(found.path)
        table = session.table(name)
        if found.what == "CREATE TABLE":
            shown = [name.table] if is_path(name) else session.place(name)[1].split(".", 1)
            return texts("create_statement", [create_statement(table, ".".join(map(quoted_name, shown)))])
        return _SHOWN_OF_TABLE[found.what](table, found)
    if found.what == "TABLES":
        catalog, database = database_name(found.path or (session.database,))
        names = _like(session.catalog_of(catalog).list_tables(database), found.like)
        return pa.table(
            {"database": pa.array([database] * len(names), pa.string()), "table": pa.array(names, pa.string())}
        )
    if found.what == "CURRENT CATALOG":
        return texts("catalog", [session.catalog] if session.catalog else [])
    if found.what == "CURRENT DATABASE":
        return texts("database", [session.database])
    if found.what == "CATALOGS":
        return texts("catalog", _like(sorted(session.catalogs), found.like))
    databases = session.catalog_of(found.path[0] if found.path else None).list_databases()
    return texts("database", _like(databases, found.like))


def _like(names: list[str], pattern: str | None) -> list[str]:
    """Those that match: `*` and `%` stand for any signs, `_` for one, `|` separates alternatives."""
    if pattern is None:
        return names
    signs = {"*": ".*", "%": ".*", "_": ".", "|": "|"}
    expression = re.compile("".join(signs.get(sign, re.escape(sign)) for sign in pattern), re.IGNORECASE)
    return [name for name in names if expression.fullmatch(name)]


def describe(session: SqlSession, found: Describe) -> pa.Table:
    """The columns of a table, or of a system table."""
    name = found.name
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
    """The CREATE TABLE statement that makes such a table."""
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


def _show_columns(table: Table, found: Show) -> pa.Table:
    del found
    return texts("col_name", table.schema.names)


def _show_options(table: Table, found: Show) -> pa.Table:
    shown = table.system("options")
    return shown if found.key is None else shown.filter(pc.field("key") == found.key)


def _show_tags(table: Table, found: Show) -> pa.Table:
    del found
    return texts("tag", table.tags()["tag_name"].to_pylist())


def _show_partitions(table: Table, found: Show) -> pa.Table:
    """The partitions; of those with the given values, if there are any."""
    if not table.partition_by:
        raise refused(f"SHOW PARTITIONS: {table.path} has no partitions")
    wanted = dict(found.partition or {})
    for name in wanted:
        if name not in table.partition_by:
            raise refused(f"SHOW PARTITIONS: {name!r} is no partition column of {table.path}", column=name)
    null = default_partition_name(handle_of(table).table_schema)
    pairs = {(name, null if value is None else value) for name, value in wanted.items()}
    names = table.system("partitions")["partition"].to_pylist()
    return texts("partition", [name for name in names if pairs <= set(parse_partition_path(name))])


_SHOWN_OF_TABLE: Mapping[str, Callable[[Table, Show], pa.Table]] = {
    "TAGS": _show_tags,
    "COLUMNS": _show_columns,
    "OPTIONS": _show_options,
    "PARTITIONS": _show_partitions,
}


def alter(session: SqlSession, found: AlterTable) -> pa.Table:
    refuse_system_table(found.name)
    try:
        table = session.table(found.name)
    except TableNotFoundError:
        if found.missing_ok:
            return DONE
        raise
    table.alter(*found.changes)
    return DONE


def rename(session: SqlSession, found: RenameTable) -> pa.Table:
    refuse_system_table(found.name)
    refuse_system_table(found.to)
    catalog, name = session.place(found.name)
    to = found.to
    if to.database is None:
        to = TableName(to.table, name.partition(".")[0], found.name.catalog)
    target, new = session.place(to)
    if target is not catalog:
        raise refused(f"ALTER TABLE: {found.name} cannot be renamed into another catalog")
    if found.missing_ok and not catalog.has_table(name):
        return DONE
    catalog.rename_table(name, new)
    return DONE


def set_option(session: SqlSession, found: Set, queries: Queries) -> pa.Table:
    if found.key is not None and found.value is not None:
        if not queries.set_option(found.key, found.value):
            session.set(found.key, found.value)
        return DONE
    shown = {k: v for k, v in session.options.items() if found.key in (None, k)}
    return pa.table({"key": pa.array(list(shown), pa.string()), "value": pa.array(list(shown.values()), pa.string())})


def reset(session: SqlSession, found: Reset) -> pa.Table:
    session.reset(found.key)
    return DONE


def drop_partitions(session: SqlSession, found: DropPartitions) -> pa.Table:
    table = session.table(found.name, writes=True)
    return snapshot_result(table.drop_partitions(found.partitions))
