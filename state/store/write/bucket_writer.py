"""Writes one bucket in one batch: merges sealed runs (sorted, packed rows) into level-0 files, and compacts the
bucket if a compaction is due. Returns the commit message, which lists the new and the removed files.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.wording import counted
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.change_rows import split_marked
from bucketline.state.lsm.merge.changelog_folds import LogEverything
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.feeds import FeedCheck, FeedSpans, MixedKey, joined_spans
from bucketline.state.lsm.merge.fold import Fold, KeepAll
from bucketline.state.lsm.merge.fold_choice import early_fold, strict_fold
from bucketline.state.lsm.merge.left_out import NewestValues
from bucketline.state.lsm.merge.merge_runs import fold_sorted, merge_rows, merge_runs
from bucketline.state.lsm.tree.pick import CompactUnit, pick_compaction, pick_full
from bucketline.state.store.compact.append_compact import compact_append
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.compactor import CompactResult, compact_unit
from bucketline.state.store.compact.watch import Watch, unwatched, watched
from bucketline.state.store.read.bucket_deletions import VectorFiles, masked_files
from bucketline.state.store.write.owned.sorted_windows import Runs, SortedRows
from bucketline.state.store.write.run_buffer import Blob, again
from bucketline.state.store.write.run_passes import few_runs, runs_at_once, small_runs
from bucketline.state.store.write.sealed_runs import SealedRun, sequence_offsets, unseal
from bucketline.state.store.write.stored_values import WITHOUT_VALUES, Refuse, StoredRows, with_stored_values
from bucketline.state.types.arrow import SEQUENCE, UNAVAILABLE

FLUSH_BATCH_ROWS = 65536
FLUSH_BATCH_BYTES = 16 << 20

SORTS_PART = 8
"""The memory for merging is divided by this number to get the most bytes of rows that are sorted together. Rows that
are sorted take about three times their size, because their keys and their sorted copy are in memory too.
"""


class CompactTrigger(Enum):
    """The compaction that a writer does after it has written new files: none, only what is due, or a full
    compaction.
    """

    NONE = "none"
    MINOR = "minor"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class BucketState:
    """The state of a bucket in the table before this batch. A bucket that does not exist yet is empty.

    - `complete` is False if the bucket will not be compacted.
    - `files` are all live files of the bucket; empty if `complete` is False.
    - `vector_files` are the index files with the bucket's deletion vectors.
    - `stored` are all live files if `complete` is False and new rows may need values of stored rows; otherwise empty.
    - `stored_vectors` are the index files with the deletion vectors of the files in `stored`.
    """

    next_sequence_number: int = 0
    files: tuple[DataFileMeta, ...] = ()
    complete: bool = True
    vector_files: VectorFiles = ()
    stored: tuple[DataFileMeta, ...] = ()
    stored_vectors: VectorFiles = ()

    def rows(self, access: BucketAccess, bucket_id: BucketId) -> StoredRows:
        """Returns a reader of the rows that the bucket held before this batch."""
        if self.complete:
            return StoredRows(access, bucket_id, self.files, self.vector_files)
        return StoredRows(access, bucket_id, self.stored, self.stored_vectors)


BucketWork = Sequence[tuple[BucketId, BucketState]]
"""The buckets to compact, each with its state in the table."""


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """The numbers of buckets of partitions. `others` has the number for some partitions, and `count` is the number for
    every partition that is not in `others`. A negative number says that the partition has no fixed number of buckets.
    """

    count: int
    others: Mapping[bytes, int] = field(default_factory=dict)

    def of(self, partition: bytes) -> int:
        """Returns the bucket count of a partition, as it is stored with the partition's files."""
        return self.others.get(partition, self.count)


def _ignored(key: MixedKey) -> None:
    del key


def _raised(rows: pa.Table) -> None:
    raise SchemaMismatchError(f"{counted(rows.num_rows, 'row')}: {WITHOUT_VALUES}")


@dataclass(frozen=True, slots=True)
class BucketWrite:
    """Says how buckets are written. All fields are plain values, so the object can be sent to tasks. Memory limits are
    in bytes of Arrow data.

    `parallelism` is how many buckets one process may write at the same time; None if no option says it.
    `moves_rows` is True for rows that are in the table already and only move to another bucket; merging never refuses
    these rows.
    `mixed` is called with a key of a bucket if the rows of the key came from several feeds (topic partitions).
    `refuse` is called with rows that lack values which the source has left out.

    The attributes are together because a task gets everything about writing buckets as one value.
    """

    access: BucketAccess
    counts: BucketCounts
    trigger: CompactTrigger
    merge_memory_bytes: int
    compact_memory_bytes: int
    local_directory: str | None = None
    watch: Watch = unwatched
    parallelism: int | None = None
    moves_rows: bool = False
    mixed: Callable[[MixedKey], None] = _ignored
    refuse: Refuse = _raised


def write_bucket(write: BucketWrite, bucket_id: BucketId, state: BucketState, runs: Runs | SortedRows) -> CommitMessage:
    """Writes the new files of one bucket, compacts the bucket if a compaction is due, and returns the commit message.

    `runs` are the sealed runs in order of arrival, or the rows of all runs, already sorted. If there are no runs, the
    bucket is only compacted. After an error all new files are removed.
    """
    with write.access.removed_on_error(bucket_id) as made:
        if write.access.schema.primary_keys:
            flushed = _flush(write, bucket_id, state, runs)
            made += [*flushed.files, *flushed.changelog]
            compacted = compact_bucket(write, bucket_id, state, flushed.files)
        else:
            flushed = Flushed(_append(write, bucket_id, state, runs) if runs else [])
            made += flushed.files
            compacted = _compact_appended(write, bucket_id, state, flushed.files)
        message = compacted.message(bucket_id, write.counts.of(bucket_id[0]))
        return replace(message, new_files=tuple(flushed.files), changelog_files=tuple(flushed.changelog))


def _compact_appended(
    write: BucketWrite, bucket_id: BucketId, state: BucketState, new_files: Sequence[DataFileMeta]
) -> CompactResult:
    if write.trigger is CompactTrigger.NONE or not state.complete:
        return CompactResult()
    full = write.trigger is CompactTrigger.FULL
    files = (*state.files, *new_files)
    return compact_append(write.access, bucket_id, files, full=full, vector_files=state.vector_files, watch=write.watch)


def compact_bucket(
    write: BucketWrite, bucket_id: BucketId, state: BucketState, new_files: Sequence[DataFileMeta] = ()
) -> CompactResult:
    """Carries out the compaction that `write.trigger` asks for, and returns the result of the compaction. The result is
    empty if no compaction is due. `new_files` are files that this batch has added to the bucket.
    """
    if not state.complete:
        return CompactResult()
    files = (*state.files, *new_files)
    unit = pick_unit(write, files, masked_files(state.vector_files))
    if unit is None:
        return CompactResult()
    memory_bytes = write.compact_memory_bytes
    return compact_unit(
        write.access,
        bucket_id,
        files,
        unit,
        memory_bytes=memory_bytes,
        vector_files=state.vector_files,
        watch=write.watch,
    )


def pick_unit(write: BucketWrite, files: Sequence[DataFileMeta], masked: Collection[str] = ()) -> CompactUnit | None:
    """Returns the files and the level of the compaction that `write.trigger` asks for, in a bucket with these live
    files; None if no compaction is due.

    `masked` are the names of the files that have a deletion vector.
    """
    if write.trigger is CompactTrigger.NONE or not files:
        return None
    levels, options = write.access.levels(files), write.access.compact_options
    if write.trigger is CompactTrigger.FULL:
        expired = write.access.expired(files)
        return pick_full(levels, options, must_rewrite={*masked, *expired} if options.deletion_vectors else expired)
    return pick_compaction(levels, options, write.access.world.clock.local_ms())


@dataclass(frozen=True, slots=True)
class Flushed:
    """The files that a batch has written: data files, and changelog files if the table logs its input."""

    files: Sequence[DataFileMeta] = ()
    changelog: Sequence[DataFileMeta] = ()


def _flush(write: BucketWrite, bucket_id: BucketId, state: BucketState, runs: Runs | SortedRows) -> Flushed:
    """Merges the rows of the sealed runs of a bucket, and writes the merged rows to new files of level 0. If the table
    logs its input, also writes the unmerged rows to changelog files. Returns the new files. The table must have a
    primary key.
    """
    if not runs:
        return Flushed()
    access = write.access
    schema = access.schema
    if isinstance(runs, SortedRows):
        sealed, starts = runs.runs, runs.first_numbers
    else:
        sealed = [run for run, _ in runs]
        offsets = sequence_offsets(sealed)
        starts = [state.next_sequence_number + offsets[run.origin, run.group] for run in sealed]
    look = _feed_check(schema, sealed, starts)
    fold = fold_for(schema) if write.moves_rows else strict_fold(fold_for(schema))
    logs, early = schema.settings.changelog.producer.logs_input, early_fold(schema)
    leaves_out = UNAVAILABLE in _columns(runs) and UNAVAILABLE not in _names(schema)
    if leaves_out:
        assert not logs, "what is logged has all values"
        fold, early = NewestValues(_names(schema)), KeepAll()
    older = state.rows(access, bucket_id)
    with ExitStack() as stack:
        merged = _merged(write, runs, starts, LogEverything(fold) if logs else fold, early, look, stack)
        writer = stack.enter_context(access.writer(bucket_id, level=0, source=FileSource.APPEND))
        log = stack.enter_context(access.changelog_writer(bucket_id, level=0)) if logs else None
        for batch in merged:
            write.watch()
            if log is None:
                writer.write(with_stored_values(batch, older, write.refuse) if leaves_out else batch)
                continue
            stored, logged = split_marked(batch)
            log.write(logged)
            writer.write(stored)
        if look is not None and look.found is not None:
            write.mixed(look.found)
        return Flushed(writer.close(), [] if log is None else log.close())


def _names(schema: TableSchema) -> tuple[str, ...]:
    return tuple(f.name for f in schema.fields)


def _columns(runs: Runs | SortedRows) -> Sequence[str]:
    """Returns the names of the columns of the sealed runs (sorted, packed rows), which are the same in all runs. There
    must be at least one run.
    """
    if isinstance(runs, SortedRows):
        return list(runs.rows.column_names)
    return list(unseal(again(runs[0][1])).schema.names)


def _merged(
    write: BucketWrite,
    runs: Runs | SortedRows,
    starts: Sequence[int],
    fold: Fold,
    first: Fold,
    look: FeedCheck | None,
    stack: ExitStack,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a bucket in key order; `fold` turns the rows of each key into one row.

    Many small runs are sorted together. Larger runs are merged. If there are more runs than one merge can hold in
    memory, neighbouring runs are merged first, with the fold `first`, until few enough runs are left.

    A run numbers its rows in the order of arrival, from 0. `starts` has for each run the sequence number for the number
    0. `look` sees all rows before a fold, to find keys whose rows came from several feeds (topic partitions).
    """
    schema = write.access.schema
    if isinstance(runs, SortedRows):
        return fold_sorted(runs.rows, runs.starts, fold, FLUSH_BATCH_ROWS, look=look)
    rows = small_runs(runs, starts, write.merge_memory_bytes // SORTS_PART, write.watch)
    if rows is not None:
        merge = schema.settings.merge
        keys = schema.trimmed_primary_key, merge.sequence_fields, merge.newest_is_smallest
        return merge_rows(rows, *keys, fold, FLUSH_BATCH_ROWS, look=look)
    read = unseal if len(runs) > 1 else read_alone
    inputs = [_sequenced(read(blob), start) for (_, blob), start in zip(runs, starts, strict=True)]
    limit = runs_at_once(write.merge_memory_bytes)
    early = partial(_merge, schema, first, look=look)
    inputs = few_runs(inputs, limit, lambda runs: watched(early(runs), write.watch), write.local_directory, stack)
    return _merge(schema, fold, inputs, look=look)


def _feed_check(schema: TableSchema, runs: Sequence[SealedRun], starts: Sequence[int]) -> FeedCheck | None:
    """Returns a check that finds keys whose rows came from several feeds (topic partitions). Returns None if all rows
    came from one feed, or if the table's options make the order of feeds irrelevant.

    A sealed run numbers its rows in the order of arrival. `starts` has for each run the sequence number that stands for
    the number 0 of this run.
    """
    spans = joined_spans(
        FeedSpans.from_bytes(run.feeds).moved(start) for run, start in zip(runs, starts, strict=True) if run.feeds
    )
    return None if spans is None or spans.is_one_feed else FeedCheck(spans, schema.primary_keys)


def _merge(
    schema: TableSchema, fold: Fold, runs: Sequence[Iterator[pa.RecordBatch]], *, look: FeedCheck | None = None
) -> Iterator[pa.RecordBatch]:
    return merge_runs(
        runs,
        schema.trimmed_primary_key,
        schema.settings.merge.sequence_fields,
        schema.settings.merge.newest_is_smallest,
        fold,
        FLUSH_BATCH_ROWS,
        FLUSH_BATCH_BYTES,
        look=look,
    )


def _append(write: BucketWrite, bucket_id: BucketId, state: BucketState, runs: Runs | SortedRows) -> list[DataFileMeta]:
    """Writes the rows of a bucket of an append table in the order of arrival, and returns the files."""
    assert not isinstance(runs, SortedRows), "rows without a key are not sorted"
    with write.access.writer(
        bucket_id, level=0, source=FileSource.APPEND, first_sequence_number=state.next_sequence_number
    ) as writer:
        for _, blob in runs:
            for batch in watched(unseal(blob), write.watch):
                writer.write(batch)
        return writer.close()


def _sequenced(rows: pa.RecordBatchReader, start: int) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a sealed run. In the run, the column `_SEQUENCE_NUMBER` has arrival ranks; `start` is added
    to each rank, and the sum is the sequence number of the row.
    """
    for batch in rows:
        position = batch.schema.get_field_index(SEQUENCE)
        yield batch.set_column(position, SEQUENCE, pc.add(batch.column(position), pa.scalar(start, pa.int64())))


def read_alone(blob: Blob) -> pa.RecordBatchReader:
    """Returns a reader of the record batches of a sealed run (sorted rows) that is the only run of its bucket. If the
    run is an Arrow table, the batches are as large as those of a merge. Smaller batches would cost more time, because
    the writer of a file takes some time for each column of each batch.
    """
    if not isinstance(blob, pa.Table):
        return unseal(blob)
    fitting = FLUSH_BATCH_BYTES * blob.num_rows // max(1, blob.nbytes)
    return blob.to_reader(max_chunksize=max(1, min(FLUSH_BATCH_ROWS, fitting)))
