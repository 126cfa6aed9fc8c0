"""What a read of a table sees: one snapshot as rows, or the changes between two snapshots with their kinds.

Plans are made from metadata alone; rows are read when they are asked for.
Source: Paimon 2.0 AbstractDataTableScan, IncrementalDeltaStartingScanner, DataTableStreamScan.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.changelog_options import CHANGELOG_PRODUCER
from bucketline.conf.errors import OptionError
from bucketline.conf.read_options import (
    DELETION_VECTORS_ENABLED,
    INCREMENTAL_BETWEEN_SCAN_MODE,
    POSTPONE_MERGE_ON_READ,
    names_version,
)
from bucketline.state.bucket.intake import ROW_KIND_COLUMN
from bucketline.state.format.entries import CommitKind, FileKind, ManifestEntry, Snapshot
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.deletions import find_deletions
from bucketline.state.store.postponed import read_with_postponed
from bucketline.state.store.read import (
    FileAccess,
    Projection,
    plan_projection,
    read_buckets,
    read_stored_rows,
    refuse_unreadable,
)
from bucketline.state.store.scan import group_by_bucket, prune, prune_stored, visible_files
from bucketline.state.store.table_handle import TableHandle
from bucketline.state.store.versions import Version, Versions
from bucketline.state.types.arrow import arrow_schema

Rows = tuple[pa.Schema, Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a table; see `Table.to_batches`."""

    columns: Iterable[str] | None = None
    expression: pc.Expression | None = None
    version: Version | None = None
    read_optimized: bool = False
    changes_since: Version | None = None


def read_table(table: TableHandle, request: Request) -> Rows:
    """The schema of the rows asked for, and the rows, batch by batch. Errors are those of `Table.to_batches`."""
    versions = Versions(table.io, table.metadata_path)
    found = versions.find(request.version, table.table_schema.options)
    schema = table.table_schema
    if found is not None and (request.version is not None or names_version(schema.options)):
        # A snapshot of the past has the columns of its time; what the reader asked for stays.
        schema = table.with_read_options(table.schema_store.get(found.schema_id))
    refuse_unreadable(schema)
    projection = plan_projection(schema, request.columns, request.expression)
    access = FileAccess(table.io, table.path, schema, table.schema_store.get)
    out = arrow_schema(schema.select(projection.columns))
    if request.changes_since is None:
        return out, _rows_of(table, access, found, projection, read_optimized=request.read_optimized)
    if request.read_optimized:
        raise OptionError("changes are not in compacted files alone; leave out read_optimized", key="changes_since")
    since = _position(versions, request.changes_since)
    until = 0 if found is None else found.id
    mode = _change_mode(schema)
    snapshots = versions.between(since, until, with_changelogs=mode == "changelog")
    out = out.append(pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False))
    return out, _changes(table, access, snapshots, mode, projection, out)


def _rows_of(
    table: TableHandle, access: FileAccess, snapshot: Snapshot | None, projection: Projection, *, read_optimized: bool
) -> Iterator[pa.RecordBatch]:
    if snapshot is None:
        return iter(())
    schema = access.schema
    if DELETION_VECTORS_ENABLED.get(schema.options):
        entries = table.manifests.read_index(snapshot.index_manifest)
        access = replace(access, deletions=find_deletions(table.io, table.path, schema, entries))
    found = group_by_bucket(table.manifests.live_entries(snapshot))
    buckets = visible_files(schema, found, read_optimized=read_optimized)
    waiting = [b for b in found if b.bucket == POSTPONE_BUCKET]
    if waiting and POSTPONE_MERGE_ON_READ.get(schema.options) and not read_optimized:
        return read_with_postponed(access, [*buckets, *waiting], projection)
    if projection.expression is not None:
        buckets = prune(schema, buckets, projection.expression, access.schema_of)
    return read_buckets(access, buckets, projection)


def _changes(
    table: TableHandle,
    access: FileAccess,
    snapshots: Sequence[Snapshot],
    mode: str,
    projection: Projection,
    out: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The changes of each snapshot in turn: rows as they were stored, in file order, `_row_kind` last."""
    for snapshot in snapshots:
        buckets = group_by_bucket(_change_entries(table, snapshot, mode))
        if projection.expression is not None:
            buckets = prune_stored(access.schema, buckets, projection.expression, access.schema_of)
        for batch in read_stored_rows(access, buckets, projection):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=out)


def _change_entries(table: TableHandle, snapshot: Snapshot, mode: str) -> list[ManifestEntry]:
    """The files that hold a snapshot's changes: an overwrite has none, a compaction only where it logs them."""
    if mode == "changelog":
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            return []
        entries = table.manifests.changelog_entries(snapshot)
    else:
        if snapshot.commit_kind is not CommitKind.APPEND:
            return []
        entries = table.manifests.delta_entries(snapshot)
    return [e for e in entries if e.kind is FileKind.ADD]


def _change_mode(schema: TableSchema) -> str:
    mode = INCREMENTAL_BETWEEN_SCAN_MODE.get(schema.options)
    if mode != "auto":
        return mode
    return "delta" if CHANGELOG_PRODUCER.get(schema.options) == "none" else "changelog"


def _position(versions: Versions, since: Version) -> int:
    """The snapshot id after which changes are wanted; 0 for all there ever were."""
    if isinstance(since, str):
        return versions.named(since, "changes_since").id
    if since < 0:
        raise OptionError(f"changes_since is a snapshot id or a tag, not {since}", key="changes_since", value=since)
    return since
