"""The system tables of a table, by name: `files`, `snapshots`, `audit_log`, ...

Source: Paimon 2.0 SystemTableLoader.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.read.table_read import ReadRows, live_files
from bucketline.state.store.read.views import snapshots_table
from bucketline.state.store.system import contents, history
from bucketline.state.store.system.changes import audit_log, binlog, read_optimized

_TABLES: Mapping[str, Callable[[TableHandle], pa.Table]] = {
    "snapshots": lambda table: snapshots_table(table.snapshot_store),
    "files": live_files,
    "schemas": history.schemas,
    "options": history.options,
    "tags": history.tags,
    "branches": history.branches,
    "consumers": history.consumers,
    "manifests": contents.manifests,
    "partitions": contents.partitions,
    "buckets": contents.buckets,
    "aggregation_fields": history.aggregation_fields,
    "table_indexes": contents.table_indexes,
    "statistics": history.statistics,
}
_ROWS: Mapping[str, Callable[[TableHandle], ReadRows]] = {
    "ro": read_optimized,
    "audit_log": audit_log,
    "binlog": binlog,
}
SYSTEM_TABLES = (*_TABLES, *_ROWS)
_TRAVELLING = frozenset(
    {"files", "manifests", "partitions", "buckets", "table_indexes", "statistics", "ro", "audit_log", "binlog"}
)


def shows_snapshot(name: str) -> bool:
    """Returns True if a system table shows the state of one snapshot, so that time travel changes what it shows."""
    return name.lower() in _TRAVELLING


def keeps_rows(name: str) -> bool:
    """Returns True if the rows of a system table can be kept in memory, because they only describe the table. Returns
    False if the system table holds the table's own rows.
    """
    return name.lower() in _TABLES


def system_table(table: TableHandle, name: str) -> ReadRows:
    """Returns the columns and rows of a system table. Raises OptionError for an unknown name, and for time travel in a
    system table that does not show the state of one snapshot.
    """
    known = name.lower()
    if known not in SYSTEM_TABLES:
        near = did_you_mean(known, SYSTEM_TABLES) or f"; there are {', '.join(SYSTEM_TABLES)}"
        raise OptionError(f"there is no system table '{name}'{near}", key="system", value=name)
    named = table.table_schema.settings.reading.named_versions
    if not shows_snapshot(known) and any(key in table.read_options for key in named):
        raise OptionError(
            f"${known} describes the whole table and not one snapshot; read it without time travel", key=known
        )
    if known in _ROWS:
        return _ROWS[known](table)
    rows = _TABLES[known](table)
    return rows.schema, iter(rows.to_batches())
