"""Divides the changes of snapshots into splits, which other processes read. A split has one or more units.

A unit is one file with changes of one snapshot. The units of a snapshot always have the same order, so a position in
this order says which units were read before.

Source: Paimon 2.0 DataTableStreamScan, IncrementalDeltaStartingScanner.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.read.changes import change_entries, change_files
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import read_stored_rows
from bucketline.state.store.read.postponed import written
from bucketline.state.store.read.projection import Projection
from bucketline.state.store.read.prune import BucketFiles, group_by_bucket, prune_stored
from bucketline.state.store.read.splits import SplitSizes, TablePlace


@dataclass(frozen=True, slots=True)
class ChangeUnit:
    """A file with changes of a snapshot. `time_ms` is the time at which the snapshot was committed. `bucket` describes
    the bucket of the file, and lists only this file.
    """

    snapshot_id: int
    time_ms: int
    bucket: BucketFiles

    @property
    def file(self) -> DataFileMeta:
        return self.bucket.files[0]


@dataclass(frozen=True, slots=True)
class ChangeSplit:
    """The work of one task: the files with changes that it reads, in the order in which they were committed."""

    units: tuple[ChangeUnit, ...]


def change_units(table: TableHandle, snapshot: Snapshot, *, postponed: bool = False) -> list[ChangeUnit]:
    """Returns the files with a snapshot's changes, bucket after bucket. The files of one bucket are in the order in
    which their rows were written. With `postponed`, files in the postpone bucket are included.
    """
    entries = change_entries(table, snapshot, change_files(table.table_schema), postponed=postponed)
    units = []
    for bucket in group_by_bucket(entries):
        if bucket.bucket < 0:
            files = sorted(bucket.files, key=written)
        else:
            files = sorted(bucket.files, key=lambda f: (f.min_sequence_number, f.file_name))
        units += [
            ChangeUnit(
                snapshot.id,
                snapshot.time_ms,
                BucketFiles(bucket.partition, bucket.bucket, bucket.total_buckets, (file,)),
            )
            for file in files
        ]
    return units


def possible_units(table: TableHandle, units: Sequence[ChangeUnit], projection: Projection) -> list[ChangeUnit]:
    """Returns those units (files with changes of a snapshot) that may hold rows that meet the filter. The other units
    need not be read.
    """
    if projection.expression is None:
        return list(units)
    schema = table.table_schema
    buckets = [u.bucket for u in units]
    kept = prune_stored(schema, buckets, projection.expression, table.schema_store.read_under(schema))
    names = {(b.partition, b.bucket, f.file_name) for b in kept for f in b.files}
    return [u for u in units if (u.bucket.partition, u.bucket.bucket, u.file.file_name) in names]


def pack_changes(schema: TableSchema, units: Sequence[ChangeUnit], sizes: SplitSizes) -> list[ChangeSplit]:
    """Packs the units (each is one file with changes of a snapshot) into splits of about the given sizes, and returns
    the splits. All files of a bucket are in one split, in order. Append tables without buckets are an exception: their
    files may be in any split.
    """
    is_ordered = bool(schema.primary_keys) or bucket_mode(schema).has_buckets
    # If the bucket count of a partition has changed between the snapshots, its keys have moved between buckets.
    counts: dict[bytes, set[int]] = {}
    for unit in units:
        counts.setdefault(unit.bucket.partition, set()).add(unit.bucket.total_buckets)
    groups: dict[object, list[int]] = {}
    for number, unit in enumerate(units):
        partition = unit.bucket.partition
        place = (partition, unit.bucket.bucket if len(counts[partition]) == 1 else None)
        groups.setdefault(place if is_ordered else number, []).append(number)
    weights = {key: sum(sizes.weight([units[n].file]) for n in numbers) for key, numbers in groups.items()}
    limit = sizes.limit(list(weights.values()))
    packed: list[list[int]] = []
    filled = 0
    for key, numbers in groups.items():
        if packed and filled + weights[key] <= limit:
            packed[-1] += numbers
            filled += weights[key]
        else:
            packed.append(list(numbers))
            filled = weights[key]
    return [ChangeSplit(tuple(units[n] for n in sorted(numbers))) for numbers in packed]


def read_change_split(
    place: TablePlace, projection: Projection, split: ChangeSplit
) -> Iterator[tuple[ChangeUnit, pa.RecordBatch]]:
    """Yields the stored rows of a split in batches. Each batch comes with its unit: the file with changes from which
    the rows were read. The last column of a batch is the row kind (int8; 0 to 3 for +I, -U, +U and -D).
    """
    table = place.open()
    access = FileAccess(table.io, table.path, place.schema, table.schema_store.read_under(place.schema))
    for unit in split.units:
        for batch in read_stored_rows(access, [unit.bucket], projection):
            yield unit, batch
