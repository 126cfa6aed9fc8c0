"""Chooses the data files that a read opens: the live files by partition and bucket, without the files in which no row
can meet the filter.

Skipping files never changes a result. In a table with a primary key, two files may have keys in common. Such a file is
skipped only if its keys do not meet the filter. If it were skipped by another column, an older version of a row in
another file could appear.

Source: Paimon 2.0 KeyValueFileStoreScan, AppendOnlyFileStoreScan, MergeTreeSplitGenerator, BucketSelectConverter.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.bucket.fixed import assign_fixed_buckets
from bucketline.state.bucket.mode import bucket_keys, bucket_mode
from bucketline.state.format.data_file import DataFileMeta, SimpleStats
from bucketline.state.format.entries import ManifestEntry
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_ranges import TRACKED, RowRange, row_ranges, stats_fields, written_fields
from bucketline.state.store.read.filtered_partitions import FilteredPartitions, partition_guarantee
from bucketline.state.store.read.predicate import (
    ALWAYS,
    Bounds,
    conjunction,
    guarantee,
    pinned_values,
    possible,
)
from bucketline.state.types.arrow import arrow_schema, representable
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataField, TypeRoot

SchemaOf = Callable[[int], TableSchema]
"""A function that returns the version of the table's schema with a schema id."""


@dataclass(frozen=True, slots=True)
class BucketFiles:
    """The files of one bucket that a read has to open, ordered by level and smallest sequence number."""

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]

    def with_files(self, files: Iterable[DataFileMeta]) -> "BucketFiles":
        """Returns the same bucket with other files."""
        return BucketFiles(self.partition, self.bucket, self.total_buckets, tuple(files))


def group_by_bucket(entries: Iterable[ManifestEntry]) -> list[BucketFiles]:
    """Groups the live files by bucket, and returns the buckets: partitions in byte order, buckets in
    ascending order.
    """
    files: dict[tuple[bytes, int], list[DataFileMeta]] = {}
    totals: dict[tuple[bytes, int], int] = {}
    for entry in entries:
        key = entry.partition, entry.bucket
        files.setdefault(key, []).append(entry.file)
        totals[key] = max(entry.total_buckets, totals.get(key, entry.total_buckets))
    return [
        BucketFiles(partition, bucket, totals[partition, bucket], _ordered(files[partition, bucket]))
        for partition, bucket in sorted(files)
    ]


def visible_files(schema: TableSchema, buckets: Sequence[BucketFiles], *, read_optimized: bool) -> list[BucketFiles]:
    """Returns the files that a batch read sees. Files in the postpone bucket are left out. With `read_optimized`, only
    the highest level is seen. In first-row tables and tables with deletion vectors, level 0 is not visible until a
    compaction has looked up the keys of level 0.
    """
    real = [b for b in buckets if b.bucket >= 0]
    if not schema.primary_keys:
        return real
    lowest = 1 if hides_level0(schema) else 0
    if read_optimized:
        lowest = schema.settings.compaction.top_level
    return _narrowed(real, lambda bucket, file: file.level >= lowest)


def hides_level0(schema: TableSchema) -> bool:
    """Returns True if batch reads of a table with a primary key skip level 0.

    Source: Paimon 2.0 CoreOptions.batchScanSkipLevel0, DataTableBatchScan.
    """
    if schema.settings.merge.engine.keeps_first:
        return True
    return schema.settings.changelog.deletion_vectors and not schema.settings.reading.sees_level0


def prune(
    schema: TableSchema, buckets: Sequence[BucketFiles], expression: pc.Expression | None, schema_of: SchemaOf
) -> list[BucketFiles]:
    """Returns the buckets and files that may hold rows that meet the filter; all buckets if the filter is None. The
    filter must fit the schema (see `filter_columns`).
    """
    if expression is None:
        return list(buckets)
    pruning = _Pruning(schema, expression, schema_of)
    return pruning.by_file(pruning.by_bucket(pruning.by_partition(buckets)))


def prune_in_partitions(
    schema: TableSchema, buckets: Sequence[BucketFiles], expression: pc.Expression | None, schema_of: SchemaOf
) -> list[BucketFiles]:
    """Returns the same as `prune`, for buckets whose partitions have been tested against the filter before."""
    if expression is None:
        return list(buckets)
    pruning = _Pruning(schema, expression, schema_of)
    return pruning.by_file(pruning.by_bucket(buckets))


def prune_stored(
    schema: TableSchema, buckets: Sequence[BucketFiles], expression: pc.Expression | None, schema_of: SchemaOf
) -> list[BucketFiles]:
    """Returns the buckets and files that may hold stored rows that meet the filter. In contrast to `prune`, every
    stored row counts, as in a changelog, and not only the newest row of a key.
    """
    if expression is None:
        return list(buckets)
    pruning = _Pruning(schema, expression, schema_of)
    return pruning.by_values(pruning.by_bucket(pruning.by_partition(buckets)))


def passing_whole(
    schema: TableSchema, buckets: Sequence[BucketFiles], expression: pc.Expression, schema_of: SchemaOf
) -> list[BucketFiles]:
    """Returns the buckets whose metadata shows that all their rows meet the filter. The rows of the buckets must not
    need merging.
    """
    pruning = _Pruning(schema, ~expression | expression.is_null(), schema_of)
    failing = {id(b) for b, fails in zip(buckets, pruning.any_passing(buckets), strict=True) if fails}
    return [b for b in buckets if id(b) not in failing]


def keeps_file(
    schema: TableSchema,
    files: Sequence[DataFileMeta],
    file: DataFileMeta,
    by_values: Collection[str],
    by_keys: Collection[str],
) -> bool:
    """Returns True if a read must open `file`, which is one of the `files` of a bucket. `by_values` and `by_keys` are
    names of files that may hold rows that meet the filter: `by_values` by the statistics of all columns, `by_keys` by
    the statistics of the key columns only.
    """
    if not schema.primary_keys:
        return file.file_name in by_values
    # In such a table every version of a row is a whole row. If no version can meet the filter, the newest version
    # cannot either. This is not true for merge engines that build rows out of several versions.
    whole_rows = not schema.settings.merge.engine.builds_rows
    if whole_rows and not any(f.file_name in by_values for f in files):
        return False
    has_one = _has_one_version_of_each_key(files, schema.settings.changelog.deletion_vectors)
    return file.file_name in (by_values if has_one else by_keys)


@dataclass(slots=True)
class _Pruning:
    schema: TableSchema
    expression: pc.Expression
    schema_of: SchemaOf
    arrow: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.arrow = arrow_schema(representable(self.schema.fields))

    def by_partition(self, buckets: Sequence[BucketFiles]) -> list[BucketFiles]:
        if not self.schema.partition_keys:
            return list(buckets)
        filtered = FilteredPartitions(self.schema.select(self.schema.partition_keys), self.arrow, self.expression)
        passing = filtered.passing({b.partition for b in buckets})
        return [b for b in buckets if b.partition in passing]

    def by_bucket(self, buckets: Sequence[BucketFiles]) -> list[BucketFiles]:
        """Returns the buckets that can have rows with the bucket key that the filter asks for. Which bucket of a
        partition this is depends on the partition's bucket count.
        """
        if not bucket_mode(self.schema).hashes_keys:
            return list(buckets)
        pinned = pinned_values(self.arrow, self.expression)
        keys = bucket_keys(self.schema)
        # A CHAR value without its blanks is in another bucket than the value with blanks that readers see.
        if not all(k in pinned and self.schema.field(k).type.root is not TypeRoot.CHAR for k in keys):
            return list(buckets)
        columns = [pa.array([pinned[k].as_py()], pinned[k].type) for k in keys]
        types = [f.type for f in self.schema.select(keys)]
        function = self.schema.settings.bucket.function
        wanted = {
            total: assign_fixed_buckets(columns, types, total, function)[0].as_py()
            for total in {b.total_buckets for b in buckets}
            if total > 0
        }
        return [b for b in buckets if b.bucket == wanted.get(b.total_buckets, b.bucket)]

    def by_values(self, buckets: Sequence[BucketFiles]) -> list[BucketFiles]:
        passing = self._passing(buckets, self._value_guarantee)
        return _narrowed(buckets, lambda bucket, file: file.file_name in passing)

    def any_passing(self, buckets: Sequence[BucketFiles]) -> list[bool]:
        """Returns for each bucket False if no row in the bucket's files can meet the filter, otherwise True."""
        kept = self._passing(buckets, self._value_guarantee)
        return [any(f.file_name in kept for f in b.files) for b in buckets]

    def by_file(self, buckets: Sequence[BucketFiles]) -> list[BucketFiles]:
        if self.schema.settings.reading.data_evolution:
            return self.by_row_range(buckets)
        by_values = self._passing(buckets, self._value_guarantee)
        by_keys = self._passing(buckets, self._key_guarantee) if self.schema.primary_keys else by_values
        return _narrowed(buckets, lambda bucket, file: keeps_file(self.schema, bucket.files, file, by_values, by_keys))

    def by_row_range(self, buckets: Sequence[BucketFiles]) -> list[BucketFiles]:
        """Returns the buckets without the files that need not be read: a file is left out if none of its rows can meet
        the filter. Each range of row ids is judged as a whole, with all of its files, because a single file may hold
        only some columns of its rows.
        """
        ranges = [(b, r) for b in buckets for r in row_ranges(b.files)]
        kept = possible(self.arrow, self.expression, [self._range_guarantee(b, r) for b, r in ranges])
        passing = {f.file_name for (_, r), keep in zip(ranges, kept, strict=True) if keep for f in (*r.files, *r.parts)}
        return _narrowed(buckets, lambda bucket, file: file.file_name in passing)

    def _range_guarantee(self, bucket: BucketFiles, rows: RowRange) -> pc.Expression:
        """Returns a guarantee for the rows of a range of row ids: an expression that is true for all of these rows,
        such as `age >= 18`. Each column of these rows comes from the newest file that holds the column, so the
        guarantee uses the statistics of that file.
        """
        parts: list[pc.Expression | None] = [self._partition_guarantee(bucket.partition)]
        claimed: set[int] = {f.id for f in TRACKED}
        for file in rows.files:
            stored = self.schema_of(file.schema_id)
            fresh = {f.id for f in written_fields(stored, file)} - claimed
            parts.append(self._ranges(file, file.value_stats, stats_fields(stored, file), of=fresh))
            claimed |= fresh
        claimed |= {f.id for part in rows.parts for f in written_fields(self.schema_of(part.schema_id), part)}
        keys = self.schema.partition_keys
        absent = [f for f in self.schema.fields if f.id not in claimed and f.name not in keys]
        return conjunction([*parts, *(pc.field(f.name).is_null() for f in representable(absent))])

    def _passing(
        self, buckets: Sequence[BucketFiles], describe: Callable[[BucketFiles, DataFileMeta], pc.Expression]
    ) -> set[str]:
        candidates = [(b, f) for b in buckets for f in b.files]
        kept = possible(self.arrow, self.expression, [describe(b, f) for b, f in candidates])
        return {f.file_name for (_, f), keep in zip(candidates, kept, strict=True) if keep}

    def _partition_guarantee(self, partition: bytes) -> pc.Expression:
        fields = self.schema.select(self.schema.partition_keys)
        return partition_guarantee(fields, decode_row(partition, [f.type for f in fields]))

    def _key_guarantee(self, bucket: BucketFiles, file: DataFileMeta) -> pc.Expression:
        stored = self.schema_of(file.schema_id)
        keys = stored.select(stored.trimmed_primary_key)
        return conjunction([self._partition_guarantee(bucket.partition), self._ranges(file, file.key_stats, keys)])

    def _value_guarantee(self, bucket: BucketFiles, file: DataFileMeta) -> pc.Expression:
        stored = self.schema_of(file.schema_id)
        fields = stats_fields(stored, file)
        known = {f.id for f in (*stored.fields, *TRACKED)}
        # A column that the file's schema did not have yet is null in all rows of the file.
        added = [pc.field(f.name).is_null() for f in self.schema.fields if f.id not in known]
        outer = (
            self._key_guarantee(bucket, file) if stored.primary_keys else self._partition_guarantee(bucket.partition)
        )
        return conjunction([outer, self._ranges(file, file.value_stats, fields), *added])

    def _ranges(
        self, file: DataFileMeta, stats: SimpleStats, stored: Sequence[DataField], *, of: Collection[int] | None = None
    ) -> pc.Expression:
        """Returns a guarantee for the rows of a file: an expression over the table's current columns that is true for
        all rows of the file, such as `age >= 18`. `stats` are the statistics from which the guarantee is made, and
        `stored` are their columns at the time when the file was written. Columns whose type has changed since then are
        left out. With `of`, only columns with these ids are used.
        """
        if stats.null_counts is None or len(stats.null_counts) != len(stored):
            return ALWAYS
        current = {f.id: f for f in self.schema.fields if f.name not in self.schema.partition_keys}
        types = [f.type.as_nullable() for f in stored]
        lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
        parts = []
        for old, low, high, nulls in zip(stored, lows, highs, stats.null_counts, strict=True):
            current_field = current.get(old.id) if of is None or old.id in of else None
            if current_field is not None and current_field.type.as_nullable() == old.type.as_nullable():
                parts.append(guarantee(current_field, Bounds(low, high, nulls, file.row_count)))
        return conjunction(parts)


def _has_one_version_of_each_key(files: Sequence[DataFileMeta], has_vectors: bool) -> bool:
    """Returns True if no key is visible in two of the files. The answer is True for a single file, for files of one
    level above 0, and, with deletion vectors, for all files above level 0.
    """
    if has_vectors and all(f.level > 0 for f in files):
        return True
    return len(files) == 1 or (len({f.level for f in files}) == 1 and files[0].level > 0)


def _narrowed(buckets: Sequence[BucketFiles], keep: Callable[[BucketFiles, DataFileMeta], bool]) -> list[BucketFiles]:
    narrowed = []
    for b in buckets:
        files = tuple(f for f in b.files if keep(b, f))
        if files:
            narrowed.append(b if len(files) == len(b.files) else b.with_files(files))
    return narrowed


def _ordered(files: Iterable[DataFileMeta]) -> tuple[DataFileMeta, ...]:
    return tuple(sorted(files, key=lambda f: (f.level, f.min_sequence_number, f.file_name)))
