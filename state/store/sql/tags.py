"""Tags in ALTER TABLE."""

from datetime import timedelta

import pyarrow as pa

from bucketline.conf.durations import parse_given_duration
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.statement import CreateTag, DeleteTags, RenameTag
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.sql.results import DONE
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.maintenance import move_tag, rename_tag
from bucketline.state.store.table.table import Table, handle_of


def create_tag(session: SqlSession, found: CreateTag) -> pa.Table:
    table = session.table(found.name, writes=True)
    exists = (found.exist_ok or found.replaces) and found.tag in _names(table)
    if exists and found.exist_ok:
        return DONE
    retained = None if found.retained is None else timedelta(milliseconds=parse_given_duration(found.retained))
    if found.replaces and (exists or not found.created):
        move_tag(handle_of(table), found.tag, found.snapshot, retained)
        return DONE
    table.create_tag(found.tag, found.snapshot, retained)
    return DONE


def rename(session: SqlSession, found: RenameTag) -> pa.Table:
    rename_tag(handle_of(session.table(found.name, writes=True)), found.tag, found.to)
    return DONE


def delete_tags(session: SqlSession, found: DeleteTags) -> pa.Table:
    """Deletes all of them, or none. Raises OptionError for one that is not there, without IF EXISTS."""
    table = session.table(found.name, writes=True)
    known = _names(table)
    for tag in found.tags:
        if tag not in known and not found.missing_ok:
            raise refused(f"Tag '{tag}' doesn't exist.", tag=tag)
    for tag in found.tags:
        table.delete_tag(tag)
    return DONE


def _names(table: Table) -> list[str]:
    handle = handle_of(table)
    return Tags(handle.io, handle.metadata_path).names()
