"""Files of an append table without buckets, rewritten so that rows are in the order of columns, or along a curve.

Unlike Paimon's procedure, which overwrites partitions, it is a COMPACT commit: rows that others append meanwhile stay,
and readers of changes see nothing. Source: Paimon 2.0 CompactProcedure.sortCompactUnAwareBucketTable, TableSorter.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS, Clock, IdSource
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.compact.append_compact import index_change
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.compactor import CompactResult
from bucketline.state.store.datafile.rolling_writer import write_data_files
from bucketline.state.store.read.bucket_deletions import VectorFiles, load_deletions
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.table.partition_choice import PartitionTest
from bucketline.state.store.table.sorted_rows import RowSort
from bucketline.state.store.write.write_session import WriteSession
from bucketline.state.types.curves import OrderStrategy

ORDER_STRATEGIES = tuple(s.value for s in OrderStrategy)


def check_order(
    schema: TableSchema, order_by: Sequence[str] | None, order_strategy: str | None, *, strategy: str, path: str
) -> OrderStrategy:
    """How a compaction sorts rows.

    Raises OptionError for arguments that do not go together or columns that rows are not sorted by,
    SchemaMismatchError for unknown columns, UnsupportedTableError for other tables than append tables without buckets.
    """
    if not order_by or order_strategy is None:
        given, missing = ("order_by", "order_strategy") if order_by else ("order_strategy", "order_by")
        raise OptionError(f"{given!r} goes with {missing!r}: name the columns, and one of {_listed()}", key=missing)
    if order_strategy not in ORDER_STRATEGIES:
        raise OptionError(f"order strategy {order_strategy!r} is none of {_listed()}", key="order_strategy")
    if strategy != "full":
        raise OptionError(f"rows are sorted by rewriting all files; strategy {strategy!r} does not", key="strategy")
    if bucket_mode(schema).has_buckets:
        kind = "its rows are in key order" if schema.primary_keys else "a bucket's rows are in the order they came"
        raise UnsupportedTableError(
            f"{path}: only append tables without buckets can be sorted ('bucket' = '-1' and no primary key): {kind}",
            path=path,
        )
    _check_columns(schema, order_by)
    if order_strategy == OrderStrategy.HILBERT.value and len(order_by) < 2:
        raise OptionError("a Hilbert curve needs at least two columns; for one use 'order'", key="order_by")
    return OrderStrategy(order_strategy)


def sort_partitions(
    session: WriteSession,
    chosen: PartitionTest,
    order_by: Sequence[str],
    strategy: OrderStrategy,
    *,
    watch: Callable[[int, int], None] = lambda done, total: None,
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
) -> tuple[CommitMessage, ...]:
    """The messages of the chosen partitions, all files of which are rewritten; nothing is committed."""
    sink = session.plan.sink
    by = RowSort(tuple(order_by), strategy, sink.compact_memory_bytes, sink.local_directory)
    access, vectors = BucketAccess(session.table.uri, session.plan.schema, clock, ids), session.deletion_entries()
    places = [b for b in session.view.buckets() if chosen(b[0]) and session.view.files(b)]
    with discarded_on_error(access) as messages:
        for done, place in enumerate(places):
            watch(done, len(places))
            result = _sort(access, place, session.view.files(place), by, vectors.get(place, ()))
            messages.append(result.message(place, session.view.total_of_bucket(place)))
        watch(len(places), len(places))
    return tuple(messages)


def _sort(
    access: BucketAccess, place: BucketId, files: Sequence[DataFileMeta], by: RowSort, vector_files: VectorFiles
) -> CompactResult:
    """All files of a partition as sorted ones; rows that deletion vectors mark are gone."""
    columns = [f.name for f in access.schema.fields]
    bucket = BucketFiles(*place, total_buckets=0, files=tuple(files))
    deletions = load_deletions(access.files, vector_files)
    reading = replace(access.files, deletions=deletions) if vector_files else access.files
    first = min(f.min_sequence_number for f in files)
    with access.removed_on_error(place) as made:
        writer = access.writer(place, level=0, source=FileSource.COMPACT, first_sequence_number=first)
        rows = (batch for file in files for batch in reading.rows(bucket, file, columns))
        made += write_data_files(writer, by.sorted(rows))
        if not vector_files:
            return CompactResult(tuple(files), tuple(made))
        for file in files:
            deletions.forget(file.file_name)
        return CompactResult(tuple(files), tuple(made), (), *index_change(access, place, vector_files, deletions))


def _check_columns(schema: TableSchema, order_by: Iterable[str]) -> None:
    known = {f.name: f for f in schema.fields}
    seen: set[str] = set()
    for name in order_by:
        if name not in known:
            raise SchemaMismatchError(f"column {name!r} is not in the table ({', '.join(known)})", column=name)
        if name in schema.partition_keys:
            raise OptionError(f"{name!r} is a partition column: all rows of a partition have one value", key="order_by")
        if name in seen:
            raise OptionError(f"column {name!r} is named twice", key="order_by")
        if not known[name].type.is_atomic:
            raise OptionError(f"rows cannot be sorted by {name!r}: its type is nested", key="order_by")
        seen.add(name)


def _listed() -> str:
    return ", ".join(repr(s) for s in ORDER_STRATEGIES)
