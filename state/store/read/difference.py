"""Reads the rows in which two snapshots of a table with a primary key differ. Unlike a read of changes, this read
compares the rows that readers see at the two snapshots, and does not look at what was committed between them.

The rows of a key stay in one bucket, so each bucket is compared without the others. Buckets with the same files at both
snapshots are not read.

Source: Paimon 2.0 IncrementalDiffStartingScanner, SnapshotReaderImpl.readIncrementalDiff.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from bucketline.conf.table.read_options import POSTPONE_MERGE_ON_READ, TAG_TO_SNAPSHOT
from bucketline.conf.wording import counted
from bucketline.state.commit.live_files import BucketId
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import partition_path
from bucketline.state.lsm.merge.difference import difference
from bucketline.state.lsm.merge.fold import KeepAll, drop_deletes
from bucketline.state.lsm.merge.fold_choice import reading_fold
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.versions import Version
from bucketline.state.store.datafile.data_files import BATCH_ROWS
from bucketline.state.store.read.fallback import BranchView, own_view
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import MERGE_BYTES, is_merged, merge_columns, merge_section
from bucketline.state.store.read.projection import as_shown, refuse_unreadable
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.read.splits import TablePlace, vectors_by_bucket
from bucketline.state.store.read.table_read import file_access, index_entries, plan_views
from bucketline.state.types.arrow import VALUE_KIND
from bucketline.state.types.order import key_order

_MEMORY_BYTES = MERGE_BYTES // 3
"""A third of the memory of a read, in bytes: the rows of the earlier snapshot are merged in one third, those of the
later snapshot in another, and the merged rows are compared in the last.
"""


@dataclass(frozen=True, slots=True)
class BucketSide:
    """What readers see of a bucket at one snapshot: its files, and the entries of the index files that hold their
    deletion vectors.
    """

    bucket: BucketFiles
    vectors: tuple[IndexManifestEntry, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Returns the names of all data files and index files. A file never changes, so a bucket whose files have the
        same names at two snapshots has the same rows at both.
        """
        return frozenset((*(f.file_name for f in self.bucket.files), *(e.file_name for e in self.vectors)))


@dataclass(frozen=True, slots=True)
class BucketPair:
    """A bucket at the earlier and at the later snapshot. The pair is a plain value, so it can be sent to tasks."""

    before: BucketSide
    after: BucketSide


@dataclass(frozen=True, slots=True)
class DifferencePlan:
    """The buckets in which two snapshots may differ. `place` is the table with the schema of the later snapshot, with
    which the rows of both snapshots are read.
    """

    place: TablePlace
    pairs: Sequence[BucketPair]


def plan_difference(table: TableHandle, since: Version, until: Version) -> DifferencePlan:
    """Plans to compare the rows of the snapshots `since` and `until`, and returns the plan.

    Raises OptionError for a snapshot or tag that does not exist. Raises UnsupportedTableError for a table without a
    primary key, for a table whose readers see postponed rows, and for a partition that was rescaled in between.
    """
    after = own_view(table, until)
    schema = after.schema
    refuse_unreadable(schema, is_named=True)
    if not schema.primary_keys:
        raise UnsupportedTableError(
            f"{table.path} has no primary key, so the rows of two tags cannot be compared; for the rows that were "
            f"committed between them set '{TAG_TO_SNAPSHOT.key}' = 'true' as well",
            option=TAG_TO_SNAPSHOT.key,
        )
    if schema.settings.reading.sees_postponed:
        raise UnsupportedTableError(
            f"{table.path} is read with '{POSTPONE_MERGE_ON_READ.key}', and postponed rows cannot be compared; unset "
            "the option",
            option=POSTPONE_MERGE_ON_READ.key,
        )
    before = BranchView(after.table, schema, own_view(table, since).snapshot)
    old, new = _sides(before), _sides(after)
    _refuse_rescaled(table, schema, old, new)
    pairs = []
    for bucket_id in sorted(old.keys() | new.keys()):
        empty = BucketSide(BucketFiles(*bucket_id, total_buckets=-1, files=()))
        pair = BucketPair(old.get(bucket_id, empty), new.get(bucket_id, empty))
        if pair.before.names != pair.after.names:
            pairs.append(pair)
    return DifferencePlan(TablePlace.of(table, schema), pairs)


def read_difference(place: TablePlace, pair: BucketPair) -> Iterator[pa.RecordBatch]:
    """Yields one row for each key of a bucket whose row differs at the two snapshots. The rows have the table's
    columns, and the row kind (int8) as the last column: +I for a new key, +U for a key with other values, and -D for a
    removed key. A row of the kind -D has the last values of its key.
    """
    table, schema = place.open(), place.schema
    columns = [*(f.name for f in schema.fields), VALUE_KIND]
    before, after = (
        _in_key_order(file_access(table, schema, side.vectors), side.bucket, columns)
        for side in (pair.before, pair.after)
    )
    rows = difference(before, after, schema.trimmed_primary_key, BATCH_ROWS, _MEMORY_BYTES // 4)
    yield from as_shown(schema, rows)


def _sides(view: BranchView) -> dict[BucketId, BucketSide]:
    (planned,) = plan_views([view], None, read_optimized=False)
    vectors = vectors_by_bucket(index_entries(view))
    return {
        (b.partition, b.bucket): BucketSide(b, tuple(vectors.get((b.partition, b.bucket), ())))
        for b in planned.buckets
        if b.files
    }


def _refuse_rescaled(
    table: TableHandle, schema: TableSchema, old: dict[BucketId, BucketSide], new: dict[BucketId, BucketSide]
) -> None:
    """Raises UnsupportedTableError if a partition has different numbers of buckets at the two snapshots, because a key
    may then be in different buckets.
    """
    counts = {partition: side.bucket.total_buckets for (partition, _), side in old.items()}
    for (partition, _), side in new.items():
        found, count = counts.get(partition), side.bucket.total_buckets
        if found is not None and found != count:
            place = f"{table.path}/{partition_path(schema, partition)}"
            raise UnsupportedTableError(
                f"{place} had {counted(found, 'bucket')} at the first tag and has {count} at the second, so the rows "
                "cannot be compared; choose two tags that are both before or both after the rescale"
            )


def _in_key_order(access: FileAccess, bucket: BucketFiles, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields the rows that readers see of a bucket, in key order."""
    schema = access.schema
    order = key_order([f.type for f in schema.select(schema.trimmed_primary_key)])
    for runs in sections(bucket.files, order):
        if len(runs) == 1:
            rows: Iterator[pa.RecordBatch] = chain.from_iterable(
                access.rows(bucket, file, columns, batch_rows=BATCH_ROWS) for file in runs[0].files
            )
        else:
            # In a table with deletion vectors each key has one row, so the rows only need to be brought into key order.
            fold = reading_fold(schema) if is_merged(schema, runs) else KeepAll()
            needed = merge_columns(schema, columns[:-1])
            rows = merge_section(access, bucket, runs, needed, fold=fold, memory_bytes=_MEMORY_BYTES)
        for batch in drop_deletes(rows):
            yield batch.select(list(columns))
