"""Runs statements one after the other. The session holds the state that lasts from one statement to the next."""

from typing import assert_never

import pyarrow as pa

from bucketline.state.sql.statement import (
    AlterTable,
    Call,
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    CreateTag,
    Delete,
    DeleteTags,
    Describe,
    Drop,
    DropPartitions,
    Insert,
    Merge,
    Query,
    Refresh,
    RenameTable,
    RenameTag,
    Reset,
    Set,
    Show,
    Statement,
    TruncateTable,
    Update,
    Use,
)
from bucketline.state.store.sql import change, define, tags
from bucketline.state.store.sql.call import call
from bucketline.state.store.sql.merge import merge
from bucketline.state.store.sql.queries import LOCAL_QUERIES, Queries
from bucketline.state.store.sql.session import SqlSession


def run_statement(session: SqlSession, statement: Statement, queries: Queries = LOCAL_QUERIES) -> pa.Table:
    """Runs a statement. Returns the rows of a query, or the result of any other statement.

    Raises OptionError for a statement that is not supported, and the errors of the operations of `Table` and `Catalog`.
    """
    match statement:
        case Query():
            return queries.rows(session, statement).read_all()
        case CreateTable():
            return define.create_table(session, statement, queries)
        case CreateDatabase():
            return define.create_database(session, statement)
        case CreateCatalog():
            return define.create_catalog(session, statement)
        case Drop():
            return define.drop(session, statement)
        case Use():
            return define.use(session, statement)
        case Show():
            return define.show(session, statement)
        case Describe():
            return define.describe(session, statement)
        case Refresh():
            return define.refresh(session, statement)
        case AlterTable():
            return define.alter(session, statement)
        case RenameTable():
            return define.rename(session, statement)
        case CreateTag():
            return tags.create_tag(session, statement)
        case RenameTag():
            return tags.rename(session, statement)
        case DeleteTags():
            return tags.delete_tags(session, statement)
        case DropPartitions():
            return define.drop_partitions(session, statement)
        case Set():
            return define.set_option(session, statement, queries)
        case Reset():
            return define.reset(session, statement)
        case Call():
            return call(session, statement, queries)
        case Insert():
            return change.insert(session, statement, queries)
        case Update():
            return change.update(session, statement, queries)
        case Delete():
            return change.delete(session, statement, queries)
        case TruncateTable():
            return change.truncate(session, statement)
        case Merge():
            return merge(session, statement, queries)
        case _:
            assert_never(statement)
