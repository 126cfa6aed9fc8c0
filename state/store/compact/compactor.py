"""Compacts the files that the picker chose: reads their sorted runs, merges them, writes the result, and returns which
files replace which.

Source: Paimon 2.0 MergeTreeCompactTask, MergeTreeCompactRewriter, ChangelogMergeTreeRewriter.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pyarrow as pa

from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.lsm.merge.change_rows import PART, ChangeRule, split_marked
from bucketline.state.lsm.merge.changelog_folds import FullChangelog
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.fold import Fold, drop_deletes
from bucketline.state.lsm.merge.fold_choice import reading_fold
from bucketline.state.lsm.merge.lookup_fold import FirstRowLookup, LookupFold
from bucketline.state.lsm.merge.overflow_risk import shortened_decimals
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.pick import CompactUnit
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.lsm.tree.upgrade import Rewrite, Upgrade, plan_rewrite
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.older_values import Above, OlderValues
from bucketline.state.store.compact.watch import Watch, unwatched
from bucketline.state.store.read.bucket_deletions import BucketDeletions, VectorFiles, load_deletions
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import merge_columns, merge_section, run_batch_bytes
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.types.long_decimals import without_long

BATCH_ROWS = 65536


@dataclass(frozen=True, slots=True)
class CompactResult:
    """The result of a compaction: the replaced files (`before`) and the new files (`after`). A file that was only moved
    to another level is in `before` with its old level, and in `after` with its new level. `changelog` are the files
    that log the changes. `index` is the bucket's new index file with deletion vectors, if the vectors have changed.
    `replaced_index` are the old index files, if a bucket may have more than one.
    """

    before: tuple[DataFileMeta, ...] = ()
    after: tuple[DataFileMeta, ...] = ()
    changelog: tuple[DataFileMeta, ...] = ()
    index: IndexManifestEntry | None = None
    replaced_index: tuple[IndexManifestEntry, ...] = ()

    @property
    def rewritten(self) -> tuple[DataFileMeta, ...]:
        """Returns the files that this compaction has written, without files that were only moved to another level."""
        names = {f.file_name for f in self.before}
        return tuple(f for f in self.after if f.file_name not in names)

    def message(self, bucket_id: BucketId, total_buckets: int) -> CommitMessage:
        """Returns the commit message of this compaction. `total_buckets` is the bucket count that the bucket's files
        record.
        """
        partition, bucket = bucket_id
        return CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=total_buckets,
            compact_before=self.before,
            compact_after=self.after,
            compact_changelog=self.changelog,
            compact_index_files=() if self.index is None else (self.index,),
            deleted_compact_index_files=self.replaced_index,
        )


def compact_unit(
    access: BucketAccess,
    bucket_id: BucketId,
    live: Sequence[DataFileMeta],
    unit: CompactUnit,
    *,
    memory_bytes: int,
    vector_files: VectorFiles = (),
    watch: Watch = unwatched,
) -> CompactResult:
    """Compacts a unit (the chosen files) of one bucket, whose live files are `live`, and returns the result.

    Takes about `memory_bytes` of Arrow data, whatever the size of the bucket. `vector_files` are the files with the
    bucket's deletion vectors, if the table has deletion vectors. After an error all new files are removed; the files of
    the unit are never changed.
    """
    levels, options = access.levels(live), access.compact_options
    deletions = load_deletions(access.files, vector_files) if options.deletion_vectors else None
    if deletions is not None:
        deletions.keep({f.file_name for f in live})
    files = replace(access.files, deletions=deletions, age=access.age())
    work = _Compaction(access, files, bucket_id, levels, unit, options, memory_bytes, deletions, watch)
    try:
        for step in plan_rewrite(unit, options, levels.max_level, levels.key_order, access.expired(unit.files)):
            if isinstance(step, Upgrade):
                work.move_up(step)
            else:
                work.rewrite(step)
        index = None
        if deletions is not None and deletions.is_modified:
            index = deletions.write(
                files.io,
                files.table_path,
                bucket_id,
                schema=access.schema,
                world=access.world,
            )
    except BaseException:
        access.delete_own([*work.made, *work.changelog], bucket_id)
        raise
    return CompactResult(tuple(work.before), tuple(work.after), tuple(work.changelog), index)


@dataclass(slots=True)
class _Compaction:
    """A compaction while it runs: the files to compact (`unit`), how they are read and written, and the results so far.

    The attributes belong together because every step of the compaction reads the same bucket with the same access and
    options, and adds its files to the same lists. After an error all new files are removed.
    """

    access: BucketAccess
    files: FileAccess
    bucket_id: BucketId
    levels: Levels
    unit: CompactUnit
    options: CompactOptions
    memory_bytes: int
    deletions: BucketDeletions | None
    watch: Watch
    before: list[DataFileMeta] = field(default_factory=list)
    after: list[DataFileMeta] = field(default_factory=list)
    made: list[DataFileMeta] = field(default_factory=list)
    changelog: list[DataFileMeta] = field(default_factory=list)
    _older: OlderValues | None = None

    def move_up(self, step: Upgrade) -> None:
        """Moves a file to another level without rewriting it. If the step says so (`compares`), the keys of the file
        are also looked up on higher levels: changes of rows are written to the changelog, and older rows are marked as
        deleted.
        """
        above = any(run.files for _, run in self._runs_above)
        if step.compares and (self.options.logs_changes or (self.deletions is not None and above)):
            run = SortedRun((step.file,))
            self.changelog += self._write(Rewrite(((run,),)), stores=False)[1]
        self.before.append(step.file)
        self.after.append(step.after)

    def rewrite(self, step: Rewrite) -> None:
        written, logged = self._write(step, stores=True)
        self.made += written
        self.changelog += logged
        self.before += step.files
        self.after += written
        if self.deletions is not None:
            for file in step.files:
                self.deletions.forget(file.file_name)

    def _write(self, step: Rewrite, *, stores: bool) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
        """Merges the files of a step of the compaction, and writes the rows. Returns the data files and the changelog
        files that were written. Without `stores`, only changelog files are written.
        """
        schema = self.access.schema
        fold = self._fold(step, stores=stores)
        names = [f.name for f in schema.fields] if stores or self.options.logs_changes else []
        columns, long = merge_columns(schema, names), shortened_decimals(schema)
        bucket = BucketFiles(*self.bucket_id, total_buckets=0, files=step.files)
        level = self.unit.output_level
        with ExitStack() as stack:
            data = log = None
            if stores:
                data = stack.enter_context(self.access.writer(self.bucket_id, level=level, source=FileSource.COMPACT))
            if self.options.logs_changes:
                log = stack.enter_context(self.access.changelog_writer(self.bucket_id, level=level))
            for section in step.sections:
                rows = merge_section(
                    self.files,
                    bucket,
                    section,
                    columns,
                    fold=fold,
                    batch_rows=BATCH_ROWS,
                    memory_bytes=self._memory_for(section),
                )
                for stored, logged in _parts(rows):
                    self.watch()
                    if data is not None:
                        for batch in drop_deletes([stored]) if step.drop_deletes else [stored]:
                            data.write(batch)
                    if log is not None:
                        log.write(without_long(logged, long))
            return [] if data is None else data.close(), [] if log is None else log.close()

    def _fold(self, step: Rewrite, *, stores: bool) -> Fold:
        """Returns the fold (a function that merges the rows of each key) for one step of a compaction. If `stores` is
        false, the step only writes the changelog, and stores no rows.
        """
        schema, options = self.access.schema, self.options
        inner = fold_for(schema)
        rule = ChangeRule(schema.settings.changelog.row_deduplicate, schema.settings.changelog.ignored_columns)
        if options.changelog_producer.logs_full_compactions:
            is_last = self.unit.output_level == self.levels.max_level
            return FullChangelog(inner, self.levels.max_level, rule, stores) if is_last else inner
        if options.lookup_cause is None or all(f.level > 0 for f in step.files):
            return reading_fold(schema)
        keys = schema.trimmed_primary_key
        if options.merge_engine.keeps_first:
            ignores = schema.settings.merge.ignore_delete
            return FirstRowLookup(keys, self._older_values(()), options.logs_changes, ignores, stores)
        completes = options.has_sequence_field or isinstance(inner, ComputedFold)
        if not completes and not options.logs_changes and self.deletions is None:
            return inner
        names = [f.name for f in schema.fields] if completes or options.logs_changes else []
        return LookupFold(
            inner=inner,
            sequence_fields=schema.settings.merge.sequence_fields,
            descending=schema.settings.merge.newest_is_smallest,
            keys=keys,
            older=self._older_values(merge_columns(schema, names) if names else ()),
            rule=rule if options.logs_changes else None,
            stores=stores,
        )

    def _older_values(self, columns: tuple[str, ...]) -> OlderValues | None:
        """Returns the reader of the older values of keys, on the levels above the level of the result; None if these
        levels are empty. Keys are compacted in ascending order, so one reader serves the whole compaction.
        """
        runs = self._runs_above
        if self._older is None and runs:
            open_count = len(self.levels.runs())
            self._older = OlderValues(
                Above(
                    access=replace(
                        self.files, deletions=None, batch_bytes=run_batch_bytes(self.memory_bytes, open_count)
                    ),
                    bucket=BucketFiles(*self.bucket_id, total_buckets=0, files=()),
                    runs=runs,
                    batch_rows=BATCH_ROWS,
                    marks=self.deletions,
                ),
                columns,
            )
        return self._older

    @property
    def _runs_above(self) -> tuple[tuple[int, SortedRun], ...]:
        levels = range(self.unit.output_level + 1, self.levels.max_level + 1)
        return tuple((n, run) for n in levels if (run := self.levels.run_of(n)).files)

    def _memory_for(self, section: tuple[SortedRun, ...]) -> int:
        """Returns the memory for merging the sorted runs of a section (a set of sorted runs whose key ranges overlap).
        The sorted runs get all of the compaction's memory, unless older rows are looked up on higher levels: then each
        of these levels takes as much memory as a run.
        """
        above = 0 if self.options.lookup_cause is None else len(self._runs_above)
        return self.memory_bytes * len(section) // (len(section) + above)


def _parts(rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yields for each batch of a merge two batches: the rows to store and the changelog rows. If the merge makes no
    changelog, all rows are stored, and the second batch is empty.
    """
    for batch in rows:
        yield split_marked(batch) if PART in batch.schema.names else (batch, batch.slice(0, 0))
