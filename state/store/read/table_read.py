"""Plans and runs a read of a table: one snapshot as rows, or the changes between two snapshots with their row kinds.

Plans are made from metadata alone. Rows are read when the caller asks for them.

Source: Paimon 2.0 AbstractDataTableScan, IncrementalDeltaStartingScanner, DataTableStreamScan.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from numbers import Integral

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.option import check_names
from bucketline.conf.table.choices import ChangeFiles
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.entries import IndexManifestEntry, Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import POSTPONE_BUCKET, SCHEMA_DIR, schema_name
from bucketline.state.format.row_places import PLACES, place_fields, read_fields
from bucketline.state.format.row_ranges import TRACKED_NAMES, kept_schema, tracks_rows, with_tracked
from bucketline.state.sql.compute.condition import Condition
from bucketline.state.sql.compute.plan_condition import Filter, plan_condition
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Version, Versions
from bucketline.state.store.index.deletion_vectors import find_deletions
from bucketline.state.store.read.changes import change_entries, change_files
from bucketline.state.store.read.counted_rows import counted_apart, rows_without_columns
from bucketline.state.store.read.fallback import BranchView, branch_views, own_view
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.filtered_partitions import wanted_entries
from bucketline.state.store.read.merge_read import parts_of, paths_of, read_buckets, read_stored_rows
from bucketline.state.store.read.postponed import read_with_postponed
from bucketline.state.store.read.projection import Projection, plan_projection, refuse_unreadable
from bucketline.state.store.read.prune import (
    BucketFiles,
    group_by_bucket,
    prune_in_partitions,
    prune_stored,
    visible_files,
)
from bucketline.state.store.read.row_places import refuse_places
from bucketline.state.store.read.views import files_table
from bucketline.state.store.storage.open_ahead import open_ahead
from bucketline.state.store.storage.parallel import all_items, answers_late, core_count
from bucketline.state.types.arrow import arrow_schema

_SMALL_BYTES = 4 << 20
"""The size of data files, in bytes, up to which one thread reads as fast as several threads."""

_MOST_READERS = 8

ReadRows = tuple[pa.Schema, Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The arguments of `Table.to_batches`."""

    columns: Iterable[str] | None = None
    filter: Filter | None = None
    version: Version | None = None
    read_optimized: bool = False
    changes_since: Version | None = None
    limit: int | None = None


def read_table(table: TableHandle, request: ReadRequest, *, seen: Sequence[BranchView] = ()) -> ReadRows:
    """Returns the schema of the requested rows, and the rows, batch by batch. If `seen` is not empty, the snapshots in
    `seen` are read instead of the snapshot that the request asks for. Raises the errors of `Table.to_batches`.
    """
    if request.limit is not None and (isinstance(request.limit, bool) or not isinstance(request.limit, Integral)):
        raise OptionError(
            f"the limit of a read must be a whole number of rows, but is {request.limit!r}; give None for all rows",
            key="limit",
            value=request.limit,
        )
    if request.limit is not None and request.limit < 0:
        raise OptionError(
            f"the limit of a read cannot be negative, but is {request.limit}; give the largest number of rows, or "
            "None for all rows",
            key="limit",
            value=request.limit,
        )
    if request.changes_since is not None:
        schema, rows = _changes_of(table, request, request.changes_since)
    else:
        schema, rows = _rows_at(table, request, seen)
    return schema, rows if request.limit is None else _first(rows, request.limit)


def read_whole(table: TableHandle, request: ReadRequest, *, seen: Sequence[BranchView] = ()) -> pa.Table:
    """Returns the same rows as `read_table`, as one table. Up to `_MOST_READERS` parts of buckets are read at the same
    time, one on each core. In memory are the rows, and what each reader holds.
    """
    if request.limit is not None or request.changes_since is not None:
        schema, rows = read_table(table, request, seen=seen)
        return pa.Table.from_batches(rows, schema=schema)
    plan = plan_rows(table, request, seen=seen)
    with ExitStack() as opened:
        sources = [source for planned in plan.planned for source in _sources(planned, plan.projection, opened)]
        batches = all_items(sources, min(core_count(), _MOST_READERS))
    if len(plan.planned) > 1 and len(plan.out):
        batches = [pa.RecordBatch.from_arrays(b.columns, schema=plan.out) for b in batches]
    return pa.Table.from_batches(batches, schema=plan.out)


def filter_condition(filter: Filter | None, schema: TableSchema) -> Condition:
    """Returns the condition of a filter on the columns of the table. Raises OptionError for a string that is no
    condition.
    """
    return plan_condition(filter, kept_schema(schema).fields, place_fields(schema))


def _projection_of(view: BranchView, request: ReadRequest) -> Projection:
    """Checks the requested columns and the filter, and returns the projection: the columns to read, and the condition
    for rows. If the request does not fit the schema, the error also names the schema's file.
    """
    check_names(request.columns, "columns")
    try:
        return plan_projection(view.schema, request.columns, filter_condition(request.filter, view.schema))
    except (SchemaMismatchError, OptionError) as e:
        if isinstance(e, OptionError) and e.column is None:
            raise
        path = f"{view.table.path}/{SCHEMA_DIR}/{schema_name(view.schema.id)}"
        raise e.reworded(f"{e.message} ({path})", path=e.path or path) from e


def _first(rows: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    while left > 0 and (batch := next(rows, None)) is not None:
        yield batch.slice(0, left)
        left -= batch.num_rows


def _rows_at(table: TableHandle, request: ReadRequest, seen: Sequence[BranchView]) -> ReadRows:
    plan = plan_rows(table, request, seen=seen)
    rows = [_rows_of(p, plan.projection) for p in plan.planned]
    if len(rows) == 1:
        return plan.out, rows[0]
    out = plan.out
    return out, (
        pa.RecordBatch.from_arrays(b.columns, schema=out) if len(out) else b for b in chain.from_iterable(rows)
    )


def rows_projection(table: TableHandle, request: ReadRequest) -> Projection:
    """Returns which columns a request reads, and with which filter. Both are checked against the schema of the open
    table. Raises the errors of `Table.to_batches`.
    """
    return _projection_of(BranchView(table, table.table_schema, None), request)


def rows_schema(table: TableHandle, request: ReadRequest) -> pa.Schema:
    """Returns the schema that the rows of a read of a snapshot have. Raises the errors of `Table.to_batches`."""
    own = own_view(table, request.version)
    refuse_unreadable(own.schema, is_named=request.version is not None)
    projection = _projection_of(own, request)
    return arrow_schema(read_fields(own.schema, projection.columns))


def plan_rows(table: TableHandle, request: ReadRequest, *, seen: Sequence[BranchView] = ()) -> "RowsPlan":
    """Plans the read of the snapshot that the request asks for, and returns the plan. If `seen` is not empty, its
    snapshots are read instead. Raises the errors of `Table.to_batches`.
    """
    asked = list(seen) or branch_views(table, request.version)
    for view in asked:
        refuse_unreadable(view.schema, is_named=bool(seen) or request.version is not None)
    own = next(s for s in asked if s.table is table)
    projection = _projection_of(own, request)
    asked = [_with_asked(s, projection) for s in asked]
    out = arrow_schema(read_fields(own.schema, projection.columns))
    planned = plan_views(asked, projection.expression, read_optimized=request.read_optimized)
    if any(p.waiting for p in planned):
        refuse_places(own.schema, projection.needed, PLACES)
    return RowsPlan(out, projection, planned)


def _with_asked(view: BranchView, projection: Projection) -> BranchView:
    """Returns the view with the row tracking columns (`_ROW_ID` and others) in its schema if the read needs them;
    otherwise the same view.
    """
    if not tracks_rows(view.schema) or not any(name in TRACKED_NAMES for name in projection.needed):
        return view
    return replace(view, schema=with_tracked(view.schema))


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What a read opens of one branch: `buckets`, and, if readers see postponed rows, the postpone buckets (`waiting`).
    `files` are the live files of the snapshot, whether readers see them or not. All three leave out partitions in which
    no row can meet the filter.
    """

    view: BranchView
    buckets: Sequence[BucketFiles]
    waiting: Sequence[BucketFiles] = ()
    files: Sequence[BucketFiles] = ()

    @property
    def partitions(self) -> set[bytes]:
        return {b.partition for b in (*self.buckets, *self.waiting)}


@dataclass(frozen=True, slots=True)
class RowsPlan:
    """The plan of a read of a snapshot: the schema of its rows, its columns and filter, and the buckets of
    each branch.
    """

    out: pa.Schema
    projection: Projection
    planned: Sequence[PlannedRead]


def plan_views(
    asked: Sequence[BranchView], expression: pc.Expression | None, *, read_optimized: bool
) -> list[PlannedRead]:
    """Returns the plan for reading each branch in `asked`. From the second branch, only those partitions are read that
    have no visible files in the first branch. If a filter (`expression`) is given, partitions in which no row can meet
    the filter are left out.
    """
    plans: list[PlannedRead] = []
    shown: set[bytes] = set()
    for view in asked:
        planned = _plan(view, expression, read_optimized=read_optimized)
        if shown:
            planned = replace(
                planned,
                buckets=[b for b in planned.buckets if b.partition not in shown],
                waiting=[b for b in planned.waiting if b.partition not in shown],
            )
        shown |= planned.partitions
        plans.append(planned)
    return plans


def live_files(table: TableHandle) -> pa.Table:
    """Returns the live data files, with the columns of Paimon's $files: the files of the snapshot that the options
    name, or else of the newest snapshot.

    The files of a partition come from the branch from which the partition is read (see `plan_views`). Partitions in
    which the branch of `table` has no files are left out.

    Source: Paimon 2.0 FilesTable.
    """
    planned = plan_views(branch_views(table, None), None, read_optimized=False)
    own = next(p for p in planned if p.view.table is table)
    listed = {b.partition for b in own.files}
    tables = []
    for branch in planned:
        hidden = set() if branch is planned[0] else planned[0].partitions
        buckets = [b for b in branch.files if b.partition in listed and b.partition not in hidden]
        tables.append(
            files_table(
                table.path,
                branch.view.schema,
                buckets,
                branch.view.table.schema_store.read_under(branch.view.schema),
            )
        )
    return pa.concat_tables(tables)


def _plan(view: BranchView, expression: pc.Expression | None, *, read_optimized: bool) -> PlannedRead:
    if view.snapshot is None:
        return PlannedRead(view, ())
    wanted = wanted_entries(view.schema, expression)
    files = group_by_bucket(view.table.manifests.live_entries(view.snapshot, wanted))
    waiting: Sequence[BucketFiles] = ()
    if view.schema.settings.reading.sees_postponed and not read_optimized:
        waiting = [b for b in files if b.bucket == POSTPONE_BUCKET]
    return PlannedRead(view, visible_files(view.schema, files, read_optimized=read_optimized), waiting, files)


def _rows_of(planned: PlannedRead, projection: Projection) -> Iterator[pa.RecordBatch]:
    if not planned.partitions:
        return iter(())
    access = file_access(planned.view.table, planned.view.schema, index_entries(planned.view))
    if planned.waiting:
        return read_with_postponed(access, [*planned.buckets, *planned.waiting], projection)
    buckets = prune_in_partitions(access.schema, planned.buckets, projection.expression, access.schema_of)
    count, left = counted_apart(access, buckets, projection)
    return chain(rows_without_columns(count), read_buckets(access, left, projection))


def _sources(
    planned: PlannedRead, projection: Projection, opened: ExitStack
) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
    """Divides the read of a branch into parts, and returns a function for each part, which reads the part's rows. The
    functions can be called at the same time, until `opened` is closed. A small read is a single part.
    """
    size_bytes = sum(f.file_size for b in planned.buckets for f in b.files)
    if planned.waiting or size_bytes < _SMALL_BYTES:
        return [partial(_rows_of, planned, projection)]
    access = file_access(planned.view.table, planned.view.schema, index_entries(planned.view))
    buckets = prune_in_partitions(access.schema, planned.buckets, projection.expression, access.schema_of)
    count, left = counted_apart(access, buckets, projection)
    parts = [part for bucket in left for part in parts_of(access.schema, bucket)]
    if answers_late(access.io):
        paths = [path for part in parts for path in paths_of(access, part)]
        access = replace(access, io=opened.enter_context(open_ahead(access.io, paths)))
    return [
        partial(rows_without_columns, count),
        *(partial(read_buckets, access, [part], projection) for part in parts),
    ]


def index_entries(view: BranchView) -> Sequence[IndexManifestEntry]:
    """Returns the entries of the snapshot's index manifest; no entries if the table has no deletion vectors."""
    if view.snapshot is None or not view.schema.settings.changelog.deletion_vectors:
        return ()
    return view.table.manifests.read_index(view.snapshot.index_manifest)


def file_access(table: TableHandle, schema: TableSchema, index: Sequence[IndexManifestEntry]) -> FileAccess:
    """Returns the access to a table's files with a schema. Rows are left out if deletion vectors in the entries `index`
    delete them.
    """
    access = FileAccess(table.io, table.path, schema, table.schema_store.read_under(schema))
    if not schema.settings.changelog.deletion_vectors:
        return access
    return replace(access, deletions=find_deletions(table.io, table.path, schema, index))


@dataclass(frozen=True, slots=True)
class ChangesPlan:
    """The plan of a read of the changes between two snapshots."""

    view: BranchView
    projection: Projection
    snapshots: Sequence[Snapshot]


def plan_changes(table: TableHandle, request: ReadRequest, changes_since: Version) -> ChangesPlan:
    """Plans a read of the changes after `changes_since`, and returns the plan. Only snapshots of the branch that was
    opened are read, and no fallback branch.
    """
    if request.read_optimized:
        raise OptionError(
            "a read of changes needs files of all levels, so it cannot be read_optimized; leave out read_optimized",
            key="changes_since",
        )
    own = own_view(table, request.version)
    refuse_unreadable(own.schema, is_named=True)
    projection = _projection_of(own, request)
    own = _with_asked(own, projection)
    versions = Versions(table.io, table.metadata_path)
    since = _position(versions, changes_since)
    until = 0 if own.snapshot is None else own.snapshot.id
    # After its snapshot has expired, a changelog still keeps data files only if the table writes no changelog files.
    no_log = not own.schema.settings.changelog.producer.writes_files
    is_logged = no_log or change_files(own.schema) is ChangeFiles.CHANGELOG
    return ChangesPlan(own, projection, versions.between(since, until, with_changelogs=is_logged))


def _changes_of(table: TableHandle, request: ReadRequest, changes_since: Version) -> ReadRows:
    plan = plan_changes(table, request, changes_since)
    schema = plan.view.schema
    out = arrow_schema(read_fields(schema, plan.projection.columns))
    out = out.append(pa.field(ROW_KIND_COLUMN, pa.int8(), nullable=False))
    access = FileAccess(table.io, table.path, schema, table.schema_store.read_under(schema))
    return out, _changes(table, access, plan.snapshots, change_files(schema), plan.projection, out)


def _changes(
    table: TableHandle,
    access: FileAccess,
    snapshots: Sequence[Snapshot],
    mode: ChangeFiles,
    projection: Projection,
    out: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yields the changes of each snapshot in turn: the rows as they were stored, in file order, with `_row_kind` as the
    last column.
    """
    for snapshot in snapshots:
        buckets = group_by_bucket(change_entries(table, snapshot, mode))
        buckets = prune_stored(access.schema, buckets, projection.expression, access.schema_of)
        for batch in read_stored_rows(access, buckets, projection):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=out)


def _position(versions: Versions, since: Version) -> int:
    """Returns the id of the snapshot that `since` (an id or the name of a tag) stands for; changes are read from the
    next snapshot on. 0 stands for all changes from the beginning. Raises OptionError for a negative id, and for a tag
    that does not exist.
    """
    if isinstance(since, str):
        return versions.named(since, "changes_since").id
    if since < 0:
        raise OptionError(
            f"changes_since must be a snapshot id, the name of a tag, or 0 for all changes, not {since}",
            key="changes_since",
            value=since,
        )
    return since
