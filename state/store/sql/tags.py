"""Creates, replaces, renames and deletes tags by ALTER TABLE."""

import pyarrow as pa

from bucketline.conf.durations import timedelta_of
from bucketline.conf.option import parse_given_duration
from bucketline.state.commit.not_there import no_tag
from bucketline.state.sql.statement import CreateTag, DeleteTags, RenameTag
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.sql.results import DONE
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.maintenance import move_tag, rename_tag
from bucketline.state.store.table.table import Table, handle_of


def create_tag(session: SqlSession, statement: CreateTag) -> pa.Table:
    """Creates or replaces a tag. Returns one row, `OK`."""
    table = session.table(statement.name, writes=True)
    exists = (statement.exist_ok or statement.replaces) and statement.tag in _names(table)
    if exists and statement.exist_ok:
        return DONE
    retained = None if statement.retained is None else timedelta_of(parse_given_duration(statement.retained))
    if statement.replaces and (exists or not statement.created):
        move_tag(handle_of(table), statement.tag, statement.snapshot, retained)
        return DONE
    table.create_tag(statement.tag, statement.snapshot, retained)
    return DONE


def rename(session: SqlSession, statement: RenameTag) -> pa.Table:
    """Renames a tag. Returns one row, `OK`."""
    rename_tag(handle_of(session.table(statement.name, writes=True)), statement.tag, statement.to)
    return DONE


def delete_tags(session: SqlSession, statement: DeleteTags) -> pa.Table:
    """Deletes all tags that the statement names, or no tag. Raises VersionNotFoundError for a tag that does not exist,
    unless the statement has IF EXISTS.
    """
    table = session.table(statement.name, writes=True)
    known = _names(table)
    for tag in statement.tags:
        if tag not in known and not statement.missing_ok:
            raise no_tag(tag, known)
    for tag in statement.tags:
        table.delete_tag(tag)
    return DONE


def _names(table: Table) -> list[str]:
    handle = handle_of(table)
    return Tags(handle.io, handle.metadata_path).names()
