"""Divides the read of one snapshot into splits, which other processes read. A split has one or more units; the files of
a unit must be read together.

A unit is the input of one merge: the files of a section of a bucket (files whose key ranges overlap), or a single file
if it needs no merging. Units do not depend on sizes, so a unit has the same position in every plan of a snapshot. A
single Parquet file that is larger than a split is shared by several splits, which read different row groups.

Source: Paimon 2.0 MergeTreeSplitGenerator, AppendOnlySplitGenerator, BinPacking.packForOrdered.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from bucketline.conf.table.choices import FileFormat
from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import IndexManifestEntry, Snapshot
from bucketline.state.format.index.deletion_vector import DELETION_VECTORS
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import extension_of
from bucketline.state.format.row_places import ROW_INDEX
from bucketline.state.format.row_ranges import row_ranges, tracks_rows
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.store.catalog.table_handle import TableHandle, remote_location
from bucketline.state.store.read.fallback import BranchView
from bucketline.state.store.read.file_index import narrowed_by_index
from bucketline.state.store.read.merge_read import read_buckets
from bucketline.state.store.read.postponed import read_with_postponed
from bucketline.state.store.read.projection import Projection
from bucketline.state.store.read.prune import BucketFiles, prune_in_partitions
from bucketline.state.store.read.row_groups import FileShare
from bucketline.state.store.read.table_read import ReadRequest, file_access, index_entries, plan_rows
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.types.order import key_order

VectorsByBucket = Mapping[BucketId, Sequence[IndexManifestEntry]]
"""The entries of an index manifest that describe deletion vectors, by bucket."""

LEAST_SPLITS = 16
"""The smallest number of splits in a plan, if its files are large enough. If only the target size counted, cores could
be idle.
"""


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """The sizes of splits, in bytes of files. A file counts at least `open_cost_bytes`."""

    target_bytes: int = 128 << 20
    open_cost_bytes: int = 4 << 20
    least_share_bytes: int = 32 << 20
    """The smallest size, in bytes, of a part of a shared file, because a Spark task takes 0.2 CPU seconds whatever it
    reads.
    """

    def weight(self, files: Iterable[DataFileMeta]) -> int:
        return max(self.open_cost_bytes, sum(f.file_size for f in files))

    def limit(self, weights: Sequence[int]) -> int:
        """Returns the largest size of a split, in bytes. `weights` are the sizes of the units (files that must be read
        together) that are packed into splits. A split of a single unit may be larger.
        """
        return min(self.target_bytes, max(self.open_cost_bytes, sum(weights) // LEAST_SPLITS))

    def shares(self, file: DataFileMeta, limit: int) -> int:
        """Returns the number of splits that read parts of a file; 1 if the file is not divided. `limit` is the largest
        size of a split.
        """
        return max(
            1, min(-(-file.file_size // max(1, limit)), file.file_size // self.least_share_bytes, file.row_count)
        )


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The address of a table or branch, and the schema with which it is read. The value can be sent to other
    processes.
    """

    uri: str
    schema: TableSchema
    read_options: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(table: TableHandle, schema: TableSchema | None = None) -> "TablePlace":
        return TablePlace(table.uri, table.table_schema if schema is None else schema, dict(table.read_options))

    def open(self) -> TableHandle:
        storage = self.schema.storage
        io, root = file_io_for(self.uri, storage)
        location = remote_location(io, self.uri)
        return TableHandle(io, root, self.schema, read_options=self.read_options, location=location, storage=storage)


@dataclass(frozen=True, slots=True)
class Split:
    """The files that one task reads, by bucket. `branch` is the index, in `Scan.places`, of the table or branch to
    which these files belong.
    """

    branch: int
    buckets: tuple[BucketFiles, ...]
    is_postponed: bool = False
    """Whether rows of the postpone bucket are merged into the rows of real buckets."""
    index: tuple[IndexManifestEntry, ...] = ()
    """The entries of the index files with the deletion vectors of these files."""
    share: FileShare | None = None
    """The part of the only file that is read; None stands for the whole file."""

    is_divisible: bool = False
    """Whether the split is a single file whose row groups can be read separately."""

    @property
    def files(self) -> list[DataFileMeta]:
        return [f for b in self.buckets for f in b.files]

    @property
    def stands_alone(self) -> bool:
        """Returns True if a split may hold nothing beside this unit: the unit has postponed rows, or it is one part
        of a large file whose row groups several splits read.
        """
        return self.is_postponed or self.share is not None


@dataclass(frozen=True, slots=True)
class Scan:
    """A read of one snapshot by several tasks. `units` are the pieces of work (files of buckets) that are joined into
    splits, one for each task. All other attributes are the same for all splits.
    """

    places: tuple[TablePlace, ...]
    projection: Projection
    out: pa.Schema
    units: tuple[Split, ...] = ()
    snapshot_id: int | None = None
    time_ms: int = 0

    def without_units(self) -> "Scan":
        return replace(self, units=())


def plan_scan(
    table: TableHandle, request: ReadRequest, *, snapshot: Snapshot | None = None, least_level: int = 0
) -> Scan:
    """Plans the read of a snapshot, and returns the scan with all of its units (files that are read together). Files
    below `least_level` are left out. Raises the errors of `Table.to_batches`.

    If `snapshot` is given, this snapshot is read, with the schema of the handle, and no other branch is read. Otherwise
    the request says which snapshot is read.
    """
    seen = () if snapshot is None else (BranchView(table, table.table_schema, snapshot),)
    plan = plan_rows(table, request, seen=seen)
    places, units = [], []
    for number, planned in enumerate(plan.planned):
        view = planned.view
        places.append(TablePlace.of(view.table, view.schema))
        index = index_entries(view) if planned.partitions else ()
        access = file_access(view.table, view.schema, index)
        vectors = vectors_by_bucket(index)
        if planned.waiting:
            by_partition: dict[bytes, list[BucketFiles]] = {}
            for bucket in (*planned.buckets, *planned.waiting):
                by_partition.setdefault(bucket.partition, []).append(bucket)
            units += [
                Split(number, tuple(partition_buckets), True, _of(vectors, partition_buckets))
                for partition_buckets in by_partition.values()
            ]
            continue
        expression = plan.projection.expression
        for kept_bucket in prune_in_partitions(access.schema, planned.buckets, expression, access.schema_of):
            bucket = narrowed_by_index(access, kept_bucket, expression, opens_files=False)
            for files in _units(view.schema, bucket):
                kept = tuple(f for f in files if f.level >= least_level)
                if kept:
                    part = replace(bucket, files=kept)
                    divisible = _is_divisible(view.schema, kept) and ROW_INDEX not in plan.projection.needed
                    units.append(Split(number, (part,), index=_of(vectors, (part,)), is_divisible=divisible))
    read = next((p.view.snapshot for p in plan.planned if p.view.table is table), None)
    return Scan(
        tuple(places),
        plan.projection,
        plan.out,
        tuple(units),
        None if read is None else read.id,
        0 if read is None else read.time_ms,
    )


def pack(units: Sequence[Split], sizes: SplitSizes) -> list[Split]:
    """Packs units (files that must be read together) into splits, in order, and returns the splits. There are as few
    splits as the sizes in `sizes` allow. Neighbouring units of one bucket in the same split become one `BucketFiles`. A
    large unit that is divisible becomes several splits.
    """
    weights = [sizes.weight(u.files) for u in units]
    limit = sizes.limit(weights)
    groups: list[list[Split]] = []
    filled = 0
    for unit, weight in zip(units, weights, strict=True):
        count = sizes.shares(unit.files[0], limit) if unit.is_divisible else 1
        if count > 1:
            groups += [[replace(unit, share=FileShare(number, count))] for number in range(count)]
            continue
        before = groups[-1][-1] if groups else None
        fits = before is not None and before.branch == unit.branch and not (before.stands_alone or unit.is_postponed)
        if fits and filled + weight <= limit:
            groups[-1].append(unit)
            filled += weight
        else:
            groups.append([unit])
            filled = weight
    return [_joined(parts) for parts in groups]


def read_split(scan: Scan, split: Split) -> Iterator[pa.RecordBatch]:
    """Returns the rows of a split, as batches with the scan's schema. Raises the errors of `read_data_file`."""
    place = scan.places[split.branch]
    access = replace(file_access(place.open(), place.schema, split.index), share=split.share)
    if split.is_postponed:
        rows = read_with_postponed(access, split.buckets, scan.projection)
    else:
        rows = read_buckets(access, split.buckets, scan.projection)
    if split.branch == 0 or not len(scan.out):
        return rows
    return (pa.RecordBatch.from_arrays(b.columns, schema=scan.out) for b in rows)


def _units(schema: TableSchema, bucket: BucketFiles) -> list[tuple[DataFileMeta, ...]]:
    """Divides the files of a bucket into units, and returns them. A unit is a group of files that must be read
    together, because their rows may have to be merged. Different units can be read by different processes.
    """
    if not schema.primary_keys:
        if schema.settings.reading.data_evolution:
            return [(*r.files, *r.parts) for r in row_ranges(bucket.files)]
        return [(f,) for f in sorted(bucket.files, key=lambda f: (f.min_sequence_number, f.file_name))]
    order = key_order([f.type for f in schema.select(schema.trimmed_primary_key)])
    units: list[tuple[DataFileMeta, ...]] = []
    for runs in sections(bucket.files, order):
        files = [f for run in runs for f in run.files]
        # With deletion vectors, each key has only one row above level 0, so no files have to be merged.
        is_looked_up = schema.settings.changelog.deletion_vectors and all(f.level > 0 for f in files)
        units += [(f,) for f in files] if is_looked_up or len(runs) == 1 else [tuple(files)]
    return units


def _is_divisible(schema: TableSchema, files: Sequence[DataFileMeta]) -> bool:
    """Returns True if a file may be divided among several tasks, each of which reads some of the row groups. This is
    the case for a single Parquet file, unless the table has row tracking or data evolution.
    """
    is_one = len(files) == 1 and extension_of(files[0].file_name) == FileFormat.PARQUET.value
    return is_one and not (tracks_rows(schema) or schema.settings.reading.data_evolution)


def vectors_by_bucket(index: Iterable[IndexManifestEntry]) -> VectorsByBucket:
    """Returns the entries of the index files that hold deletion vectors, by bucket."""
    vectors: dict[BucketId, list[IndexManifestEntry]] = {}
    for entry in index:
        if entry.index_type == DELETION_VECTORS:
            vectors.setdefault((entry.partition, entry.bucket), []).append(entry)
    return vectors


def _of(vectors: VectorsByBucket, buckets: Iterable[BucketFiles]) -> tuple[IndexManifestEntry, ...]:
    """Returns the index entries of these buckets. The entries list only the vectors of files in the buckets."""
    entries = []
    for bucket in buckets:
        files = {f.file_name for f in bucket.files}
        for entry in vectors.get((bucket.partition, bucket.bucket), ()):
            ranges = tuple(r for r in entry.deletion_vector_ranges or () if r.data_file_name in files)
            if ranges:
                entries.append(replace(entry, deletion_vector_ranges=ranges))
    return tuple(entries)


def _joined(parts: Sequence[Split]) -> Split:
    buckets: list[BucketFiles] = []
    for bucket in (b for part in parts for b in part.buckets):
        last = buckets[-1] if buckets else None
        if last is not None and (last.partition, last.bucket) == (bucket.partition, bucket.bucket):
            buckets[-1] = replace(last, files=(*last.files, *bucket.files))
        else:
            buckets.append(bucket)
    index = tuple(e for part in parts for e in part.index)
    return Split(parts[0].branch, tuple(buckets), parts[0].is_postponed, index, parts[0].share)
