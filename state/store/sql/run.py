"""One statement after the other, over a session's state."""

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
    RenameTable,
    RenameTag,
    Reset,
    Set,
    Show,
    Statement,
    Truncate,
    Update,
    Use,
)
from bucketline.state.store.sql import change, define, tags
from bucketline.state.store.sql.call import call
from bucketline.state.store.sql.merge import merge
from bucketline.state.store.sql.queries import LOCAL_QUERIES, Queries
from bucketline.state.store.sql.session import SqlSession


def run_statement(session: SqlSession, found: Statement, queries: Queries = LOCAL_QUERIES) -> pa.Table:
    """What a statement gives: the rows of a query, or the result of anything else.

    Raises OptionError for what is not supported, and as the operations of `Table` and `Catalog`.
    """
    match found:
        case Query():
            return queries.rows(session, found).read_all()
        case CreateTable():
            return define.create_table(session, found, queries)
        case CreateDatabase():
            return define.create_database(session, found)
        case CreateCatalog():
            return define.create_catalog(session, found)
        case Drop():
            return define.drop(session, found)
        case Use():
            return define.use(session, found)
        case Show():
            return define.show(session, found)
        case Describe():
            return define.describe(session, found)
        case AlterTable():
            return define.alter(session, found)
        case RenameTable():
            return define.rename(session, found)
        case CreateTag():
            return tags.create_tag(session, found)
        case RenameTag():
            return tags.rename(session, found)
        case DeleteTags():
            return tags.delete_tags(session, found)
        case DropPartitions():
            return define.drop_partitions(session, found)
        case Set():
            return define.set_option(session, found, queries)
        case Reset():
            return define.reset(session, found)
        case Call():
            return call(session, found, queries)
        case Insert():
            return change.insert(session, found, queries)
        case Update():
            return change.update(session, found, queries)
        case Delete():
            return change.delete(session, found, queries)
        case Truncate():
            return change.truncate(session, found)
        case Merge():
            return merge(session, found, queries)
        case _:
            assert_never(found)
