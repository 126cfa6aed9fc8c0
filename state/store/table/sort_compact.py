"""Rewrites the files of an append table without buckets so that its rows are sorted by columns, or along a
space-filling curve.

Paimon's procedure overwrites partitions. Here the result is a COMPACT commit, so rows that other writers append
during the compaction stay, and readers of changes see no changes. Source: Paimon 2.0
CompactProcedure.sortCompactUnAwareBucketTable, TableSorter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from bucketline.conf.errors import OptionError
from bucketline.conf.table.read_options import ROW_TRACKING_ENABLED
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import tracks_rows
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.compact.append_compact import index_change
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.compactor import CompactResult
from bucketline.state.store.datafile.rolling_writer import write_data_files
from bucketline.state.store.engine.engine import Engine, Parts
from bucketline.state.store.engine.local_engine import LocalEngine
from bucketline.state.store.engine.sorted_ranges import (
    AppendedFile,
    KeyBounds,
    SampledKeys,
    SortedFiles,
    SortRanges,
    in_range_order,
    read_bounds,
)
from bucketline.state.store.engine.sorted_rows import RowSort
from bucketline.state.store.read.bucket_deletions import VectorFiles, load_deletions, vectors_by_file
from bucketline.state.store.table.partition_choice import PartitionTest
from bucketline.state.store.write.bucket_writer import BucketWrite, CompactTrigger
from bucketline.state.store.write.grouping import OneBucket
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.write_plan import WritePlan
from bucketline.state.types.curves import OrderStrategy

_MOST_FILES_A_RANGE = 4
_SAMPLED_ROWS_A_RANGE = 200

ORDER_STRATEGIES = tuple(s.value for s in OrderStrategy)


def check_order(
    schema: TableSchema, order_by: Sequence[str] | None, order_strategy: str | None, *, strategy: str, path: str
) -> OrderStrategy:
    """Checks the arguments of a compaction that sorts rows, and returns how the rows are sorted.

    Raises OptionError for arguments that contradict each other and for columns by which rows cannot be sorted,
    SchemaMismatchError for unknown columns, UnsupportedTableError for tables other than append tables without buckets.
    """
    if not order_by or order_strategy is None:
        named, missing = ("order_by", "order_strategy") if order_by else ("order_strategy", "order_by")
        raise OptionError(f"{named!r} also needs {missing!r}: give the columns, and one of {_listed()}", key=missing)
    if order_strategy not in ORDER_STRATEGIES:
        raise OptionError(f"order strategy {order_strategy!r} is none of {_listed()}", key="order_strategy")
    if strategy != "full":
        raise OptionError(
            f"rows are sorted by rewriting all files, which strategy {strategy!r} does not do; use 'full'",
            key="strategy",
        )
    if bucket_mode(schema).has_buckets:
        kind = (
            "its rows are in key order" if schema.primary_keys else "the rows of a bucket are in the order of writing"
        )
        raise UnsupportedTableError(
            f"{path}: only append tables without buckets can be sorted ('bucket' = '-1' and no primary key), but here "
            f"{kind}",
            path=path,
        )
    if tracks_rows(schema):
        raise UnsupportedTableError(
            f"{path}: rows of tables with '{ROW_TRACKING_ENABLED.key}' are not sorted; compact without an order",
            path=path,
        )
    _check_columns(schema, order_by)
    if order_strategy == OrderStrategy.HILBERT.value and len(order_by) < 2:
        raise OptionError(
            "a Hilbert curve needs at least two columns; to sort by one column use 'order'", key="order_by"
        )
    return OrderStrategy(order_strategy)


def sort_partitions(
    at: TableAt,
    chosen: PartitionTest,
    order_by: Sequence[str],
    strategy: OrderStrategy,
    *,
    engine: Engine,
) -> tuple[CommitMessage, ...]:
    """Rewrites all files of the chosen partitions with sorted rows, and returns the commit messages. Nothing is
    committed.
    """
    plan, view, vectors = at.plan, at.view, at.deletion_entries()
    by = RowSort(tuple(order_by), strategy, plan.sink.compact_memory_bytes, plan.sink.local_directory)
    write = plan.bucket_write(CompactTrigger.NONE)
    places = [
        _Place(b, view.total_of_bucket(b), view.files(b), vectors.get(b, ()))
        for b in view.buckets()
        if chosen(b[0]) and view.files(b)
    ]
    with discarded_on_error(write.access) as messages:
        if not isinstance(engine, LocalEngine):
            messages += _sort_ranges(plan, write, places, by, engine)
            return _joined(write.access, places, messages)
        for done, place in enumerate(places):
            engine.watch(done, len(places))
            messages.append(_sort(write.access, place, by))
        engine.watch(len(places), len(places))
    return tuple(messages)


@dataclass(frozen=True, slots=True)
class _Place:
    """A partition to sort: its bucket, all its files, and the index files that hold its deletion vectors."""

    bucket_id: BucketId
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    vector_files: VectorFiles

    @property
    def first(self) -> int:
        """Returns the smallest sequence number of the partition's files."""
        return min(f.min_sequence_number for f in self.files)


def range_counts(sizes: Mapping[bytes, int], *, target_bytes: int, parallelism: int) -> dict[bytes, int]:
    """Returns the number of ranges into which each partition is divided. `sizes` maps partitions to bytes.

    There are enough ranges to keep all parallel tasks busy. But each range is between one and four times as large as a
    target file, so that few files are small and no task sorts too much.
    """
    share = -(-sum(sizes.values()) // max(1, parallelism))
    each = min(max(target_bytes, share), _MOST_FILES_A_RANGE * target_bytes)
    return {partition: max(1, -(-size // each)) for partition, size in sizes.items()}


def _sort_ranges(
    plan: WritePlan, write: BucketWrite, places: Sequence[_Place], by: RowSort, engine: Engine
) -> Sequence[CommitMessage]:
    """Sorts the rows of the partitions `places` in tasks. Each partition is divided into ranges of the sort key, and
    one task sorts a range. Returns the commit messages with the files that the tasks have written.
    """
    sizes = {p.bucket_id[0]: sum(f.file_size for f in p.files) for p in places}
    target_bytes = plan.schema.settings.files.target_bytes(has_primary_key=False)
    counts = range_counts(sizes, target_bytes=target_bytes, parallelism=engine.workers.parallelism)
    parts = [_parts(write.access, p) for p in places]
    drawn = [s for p, files in zip(places, parts, strict=True) for s in _samples(files, counts[p.bucket_id[0]], by)]
    seal = replace(plan.seal_plan(OneBucket()), keep_order=True, fold=None)
    bounds = {}
    if drawn:
        drawing = WriteStage(write, groups=KeyBounds(counts))
        everybody = TaskCounts(engine.workers.tasks(None))
        bounds = read_bounds(engine.run(Stages(Parts(drawn), seal, drawing, tasks=everybody)).notes)
    stages = Stages(
        source=Parts([part for files in parts for part in files]),
        seal=replace(seal, grouping=SortRanges(by, bounds)),
        write=WriteStage(write, groups=SortedFiles(write.access, by)),
        tasks=TaskCounts(engine.workers.tasks(sum(counts.values()))),
    )
    return engine.run(stages).messages


def _parts(access: BucketAccess, place: _Place) -> list[AppendedFile]:
    vectors = vectors_by_file(place.vector_files)
    return [
        AppendedFile(access, place.bucket_id, file, origin, vectors.get(file.file_name, ()))
        for origin, file in enumerate(place.files)
    ]


def _samples(parts: Sequence[AppendedFile], ranges: int, by: RowSort) -> list[SampledKeys]:
    """Returns sources that read the sort keys of every n-th row of a partition, where rows are counted over all files
    of the partition. Returns an empty list if the partition is a single range, which needs no samples.
    """
    if ranges < 2:
        return []
    rows = [part.file.row_count for part in parts]
    step = max(1, sum(rows) // (ranges * _SAMPLED_ROWS_A_RANGE))
    starts = accumulate(rows, initial=0)
    return [SampledKeys(part, by, -start % step, step) for part, start in zip(parts, starts, strict=False)]


def _joined(access: BucketAccess, places: Sequence[_Place], made: Sequence[CommitMessage]) -> tuple[CommitMessage, ...]:
    """Returns one commit message for each partition, made from the results of the tasks for its ranges."""
    files: dict[bytes, list[DataFileMeta]] = {}
    for m in made:
        files.setdefault(m.partition, []).extend(m.compact_after)
    return tuple(_replaced(access, p, in_range_order(files.get(p.bucket_id[0], ()), p.first)) for p in places)


def _replaced(access: BucketAccess, place: _Place, made: Sequence[DataFileMeta]) -> CommitMessage:
    """Returns the message that replaces all files of a partition by the files `made`, in which no row is deleted."""
    if not place.vector_files:
        return CompactResult(place.files, tuple(made)).message(place.bucket_id, place.total_buckets)
    left = load_deletions(access.files, place.vector_files)
    for file in place.files:
        left.forget(file.file_name)
    index = index_change(access, place.bucket_id, place.vector_files, left)
    return CompactResult(place.files, tuple(made), (), *index).message(place.bucket_id, place.total_buckets)


def _sort(access: BucketAccess, place: _Place, by: RowSort) -> CommitMessage:
    """Writes the rows of all files of a partition again, sorted, without the rows that deletion vectors mark as
    deleted. Returns the commit message.
    """
    columns = [f.name for f in access.schema.fields]
    with access.removed_on_error(place.bucket_id) as made:
        writer = access.writer(place.bucket_id, level=0, source=FileSource.COMPACT, first_sequence_number=place.first)
        rows = (batch for part in _parts(access, place) for batch in part.batches(columns))
        made += write_data_files(writer, by.sorted(rows))
        return _replaced(access, place, made)


def _check_columns(schema: TableSchema, order_by: Iterable[str]) -> None:
    known = {f.name: f for f in schema.fields}
    seen: set[str] = set()
    for name in order_by:
        if name not in known:
            raise SchemaMismatchError(
                f"column {name!r} is not in the table; the columns are {', '.join(known)}", column=name
            )
        if name in schema.partition_keys:
            raise OptionError(
                f"{name!r} is a partition column, which has one value in a whole partition; sort by other columns",
                key="order_by",
            )
        if name in seen:
            raise OptionError(f"column {name!r} is named twice; name each column once", key="order_by")
        if not known[name].type.is_atomic:
            raise OptionError(
                f"rows cannot be sorted by {name!r}: its type is nested; sort by other columns", key="order_by"
            )
        seen.add(name)


def _listed() -> str:
    return ", ".join(repr(s) for s in ORDER_STRATEGIES)
