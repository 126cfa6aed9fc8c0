"""Removes everything that a table has ever held. An empty table with its columns and options stays.

Source: Paimon 2.0 FileStoreTable.purgeFiles.
"""

from dataclasses import replace
from datetime import timedelta

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from bucketline.state.store.table.care.consumers import remove_consumers
from bucketline.state.store.table.maintenance import expire_table, unbranch_table, untag_table
from bucketline.state.store.table.overwrite import truncate_table

_KEPT = {
    "changelog.num-retained.min": "1",
    "changelog.num-retained.max": "1",
    "changelog.time-retained": "1 ms",
}


def purge_table(table: TableHandle) -> None:
    """Removes all rows, branches, tags, consumers, older snapshots and orphan files. No writer may be active during the
    call.

    If the call fails, some of the files may be left; the next call removes these files. Raises UnsupportedTableError
    for a branch.
    """
    if table.metadata_path != table.path:
        raise UnsupportedTableError(
            f"{table.metadata_path} is a branch, which shares files: delete the branch, or purge the table itself",
            path=table.metadata_path,
        )
    for name in Branches(table.io, table.path).known():
        unbranch_table(table, name)
    remove_consumers(table, ".*", None)
    truncate_table(table)
    schema = replace(table.table_schema, options={**table.table_schema.options, **_KEPT})
    expire_table(replace(table, table_schema=schema), retain_min=1, retain_max=1, older_than=timedelta(0), limit=None)
    # This step comes after the removal of snapshots, because the expiry of a stream's snapshots creates the stream's
    # marker tag if the tag is missing.
    for name in Tags(table.io, table.metadata_path).names():
        untag_table(table, name)
    remove_orphan_files(table, dry_run=False, older_than_ms=0, no_writers=True)
