"""Does what the picker decided: reads a unit's runs, merges them, writes the result, and says what replaced what.

Source: Paimon 2.0 MergeTreeCompactTask, MergeTreeCompactRewriter.
"""

from dataclasses import dataclass

from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.lsm.compact_options import CompactOptions
from bucketline.state.lsm.fold import drop_deletes, fold_for
from bucketline.state.lsm.levels import Levels
from bucketline.state.lsm.pick import CompactUnit
from bucketline.state.lsm.run import SortedRun
from bucketline.state.lsm.upgrade import Rewrite, Upgrade, plan_rewrite
from bucketline.state.store.bucket_access import BucketAccess
from bucketline.state.store.read import merge_columns, merge_section
from bucketline.state.store.scan import BucketFiles
from bucketline.state.store.table_view import BucketId

SMALLEST_BATCH_ROWS = 1024
LARGEST_BATCH_ROWS = 65536


@dataclass(frozen=True, slots=True)
class CompactResult:
    """Files that leave and files that come, each file once; an upgraded file is in both with its two levels."""

    before: tuple[DataFileMeta, ...] = ()
    after: tuple[DataFileMeta, ...] = ()

    @property
    def rewritten(self) -> tuple[DataFileMeta, ...]:
        """The files this compaction has made; upgrades are not among them."""
        names = {f.file_name for f in self.before}
        return tuple(f for f in self.after if f.file_name not in names)


def compact_unit(
    access: BucketAccess,
    bucket_id: BucketId,
    levels: Levels,
    unit: CompactUnit,
    options: CompactOptions,
    *,
    memory_bytes: int,
) -> CompactResult:
    """Compacts a unit of one bucket. Holds about `memory_bytes` of Arrow data, whatever the size of the bucket.

    An error leaves none of the new files behind; the files of the unit are never touched.
    """
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    made: list[DataFileMeta] = []
    try:
        for step in plan_rewrite(unit, options, levels.max_level, levels.key_order):
            if isinstance(step, Upgrade):
                before.append(step.file)
                after.append(step.after)
                continue
            written = _rewrite(access, bucket_id, step, unit, memory_bytes=memory_bytes)
            made += written
            before += step.files
            after += written
    except BaseException:
        access.delete_own(made, bucket_id)
        raise
    return CompactResult(tuple(before), tuple(after))


def _rewrite(
    access: BucketAccess, bucket_id: BucketId, step: Rewrite, unit: CompactUnit, *, memory_bytes: int
) -> list[DataFileMeta]:
    fold = fold_for(access.schema)
    columns = merge_columns(access.schema, [f.name for f in access.schema.fields])
    bucket = BucketFiles(*bucket_id, total_buckets=0, files=step.files)
    with access.writer(bucket_id, level=unit.output_level, source=FileSource.COMPACT) as writer:
        for section in step.sections:
            rows = merge_section(
                access.files, bucket, section, columns, fold=fold, batch_rows=batch_rows_for(section, memory_bytes)
            )
            for batch in drop_deletes(rows) if unit.drop_deletes else rows:
                writer.write(batch)
        return writer.close()


def batch_rows_for(section: tuple[SortedRun, ...], memory_bytes: int) -> int:
    """Rows in a record batch of each run, so that all runs of a section fit into the budget together.

    A merge holds about four batches a run: one being decoded, one buffered, its share of the merged rows and of the
    output. Rows are taken to be four times their compressed size in memory.
    """
    row_bytes = max(
        (4 * f.file_size // max(1, f.row_count) for run in section for f in run.files if f.row_count > 1000),
        default=1024,
    )
    fitting = memory_bytes // (4 * max(1, len(section)) * max(64, row_bytes))
    return max(SMALLEST_BATCH_ROWS, min(LARGEST_BATCH_ROWS, fitting))
