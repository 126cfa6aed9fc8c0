"""Tags in ALTER TABLE."""

from datetime import timedelta

import pyarrow as pa

from bucketline.conf.durations import parse_given_duration
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.statement import CreateTag, DeleteTags
from bucketline.state.store.sql.results import DONE
from bucketline.state.store.sql.session import SqlSession


def create_tag(session: SqlSession, found: CreateTag) -> pa.Table:
    table = session.table(found.name, writes=True)
    if found.exist_ok and found.tag in table.tags()["tag_name"].to_pylist():
        return DONE
    retained = None if found.retained is None else timedelta(milliseconds=parse_given_duration(found.retained))
    table.create_tag(found.tag, found.snapshot, retained)
    return DONE


def delete_tags(session: SqlSession, found: DeleteTags) -> pa.Table:
    """Deletes all of them, or none. Raises OptionError for one that is not there, without IF EXISTS."""
    table = session.table(found.name, writes=True)
    known = table.tags()["tag_name"].to_pylist()
    for tag in found.tags:
        if tag not in known and not found.missing_ok:
            raise refused(f"Tag '{tag}' doesn't exist.", tag=tag)
    for tag in found.tags:
        table.delete_tag(tag)
    return DONE
