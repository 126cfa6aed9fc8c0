"""Reads a postpone table as if a compaction had already merged the rows of the postpone bucket into their real
buckets.

Files in the postpone bucket are neither sorted nor merged. So the rows are read in portions that fit in memory. Each
portion is sorted and written to local disk. When a real bucket is read, the sorted rows for this bucket are merged
with the bucket's own rows.

Source: Paimon 2.0 PostponeUtils, `postpone.merge-on-read`; files are read in the order of Spark's and Flink's
compaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.fixed import assign_fixed_buckets
from bucketline.state.bucket.mode import bucket_keys
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.fold import Fold, drop_deletes
from bucketline.state.lsm.merge.fold_choice import needs_levels, reading_fold
from bucketline.state.lsm.merge.merge_runs import merge_runs
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.store.datafile.data_files import BATCH_ROWS, read_schema
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.merge_read import merge_columns, with_level
from bucketline.state.store.read.projection import Projection, project
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.storage.errors import scratch_folder, storage_errors
from bucketline.state.types.arrow import SEQUENCE
from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.order import Direction, key_changes, key_order, sort_indices

PIECE_ROWS = 1 << 19
"""The largest number of postponed rows that are sorted together."""


def read_with_postponed(
    access: FileAccess, buckets: Sequence[BucketFiles], projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Yields the current rows of a postpone table as if all postponed rows had been compacted, partition after
    partition.

    `buckets` are the buckets with all files that a batch read sees, and the postpone buckets. The rows of one writer
    keep their order. Rows of different writers are ordered by the creation times of their files.

    The postponed rows of one partition are sorted `PIECE_ROWS` rows at a time, and stored on local disk. Afterwards one
    batch of each sorted run of a bucket is in memory.
    """
    partitions: dict[bytes, list[BucketFiles]] = {}
    for bucket in buckets:
        partitions.setdefault(bucket.partition, []).append(bucket)
    for partition_buckets in partitions.values():
        rows = _partition_rows(access, partition_buckets, merge_columns(access.schema, projection.needed))
        yield from project(access.schema, rows, projection)


def _partition_rows(
    access: FileAccess, buckets: Sequence[BucketFiles], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    real = {b.bucket: b for b in buckets if b.bucket >= 0}
    waiting = [b for b in buckets if b.bucket == POSTPONE_BUCKET]
    totals = [b.total_buckets for b in real.values() if b.total_buckets > 0]
    count = max(totals, default=access.schema.settings.postpone.default_buckets)
    first_sequence = 1 + max((f.max_sequence_number for b in real.values() for f in b.files), default=-1)
    with scratch_folder("bucketline-postponed-") as scratch:
        buffer = _Spill(Path(scratch), access, tuple(columns), count)
        for bucket in waiting:
            buffer.take(_in_order_written(bucket, access, columns), first_sequence)
        for number in sorted({*real, *buffer.pieces}):
            fold = reading_fold(access.schema)
            runs = buffer.runs(number)
            if needs_levels(fold):
                runs = [with_level(run, 0) for run in runs]
            if number in real:
                runs = [*_runs_of(access, real[number], columns, with_levels=needs_levels(fold)), *runs]
            yield from drop_deletes(_merged(access, runs, fold))


def _merged(access: FileAccess, runs: Sequence[Iterator[pa.RecordBatch]], fold: Fold) -> Iterator[pa.RecordBatch]:
    settings = access.schema.settings.merge
    return merge_runs(
        runs,
        access.schema.trimmed_primary_key,
        settings.sequence_fields,
        settings.newest_is_smallest,
        fold,
        BATCH_ROWS,
    )


def _runs_of(
    access: FileAccess, bucket: BucketFiles, columns: Sequence[str], *, with_levels: bool
) -> list[Iterator[pa.RecordBatch]]:
    """Returns the rows of a bucket's files as sorted runs, as few as possible. With `with_levels`, an additional last
    column holds the level of each row's file.
    """
    order = key_order([f.type for f in access.schema.select(access.schema.trimmed_primary_key)])
    all_runs: list[Iterator[pa.RecordBatch]] = []

    def rows(file: DataFileMeta) -> Iterator[pa.RecordBatch]:
        stored = access.rows(bucket, file, columns)
        return with_level(stored, file.level) if with_levels else stored

    for runs in zip_longest(*sections(bucket.files, order)):
        files = [f for run in runs if run is not None for f in run.files]
        all_runs.append(chain.from_iterable(map(rows, files)))
    return all_runs


def _in_order_written(bucket: BucketFiles, access: FileAccess, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    files = sorted(bucket.files, key=written)
    return chain.from_iterable(access.rows(bucket, f, columns) for f in files)


def written(file: DataFileMeta) -> tuple[int, str, int]:
    """Returns a sort key that orders postponed files as they were written: by creation time, and files of one writer
    with the same time by the number in their names.
    """
    stem = file.file_name.rpartition(".")[0]
    writer, _, number = stem.rpartition("-")
    return file.creation_time_ms or 0, writer, int(number) if number.isascii() and number.isdigit() else 0


@dataclass(slots=True)
class _Spill:
    """Rows of the postpone bucket on local disk, in sorted files. `pieces` has the paths of the files for each bucket
    to which a compaction would move the rows.
    """

    folder: Path
    access: FileAccess
    columns: tuple[str, ...]
    bucket_count: int
    pieces: dict[int, list[Path]] = field(default_factory=dict)
    _taken: int = 0

    def take(self, batches: Iterable[pa.RecordBatch], first_sequence: int) -> None:
        """Stores the rows in the order in which they come. Each row gets a sequence number; the first row gets
        `first_sequence`.
        """
        gathered: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            gathered.append(batch)
            rows += batch.num_rows
            if rows >= PIECE_ROWS:
                self._keep(gathered, first_sequence)
                gathered, rows = [], 0
        if gathered:
            self._keep(gathered, first_sequence)

    def runs(self, bucket: int) -> list[Iterator[pa.RecordBatch]]:
        return [_read_piece(path) for path in self.pieces.get(bucket, ())]

    def _keep(self, batches: list[pa.RecordBatch], first_sequence: int) -> None:
        schema = read_schema(self.access.schema, self.columns)
        table = pa.Table.from_batches(batches, schema=schema)
        start = first_sequence + self._taken
        self._taken += table.num_rows
        numbers = pa.array(np.arange(start, start + table.num_rows, dtype=np.int64))
        table = table.set_column(self.columns.index(SEQUENCE), schema.field(SEQUENCE), numbers)
        buckets = self._buckets_of(table)
        for bucket in distinct(buckets):
            rows = _folded(table.filter(pa.array(buckets == bucket)), self.access.schema)
            path = self.folder / f"{bucket}-{len(self.pieces.setdefault(int(bucket), []))}.arrow"
            with (
                storage_errors(str(self.folder)),
                pa.OSFile(str(path), "wb") as sink,
                pa.ipc.new_stream(sink, schema) as writer,
            ):
                writer.write_table(rows, max_chunksize=BATCH_ROWS)
            self.pieces[int(bucket)].append(path)

    def _buckets_of(self, table: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
        schema = self.access.schema
        keys = bucket_keys(schema)
        types = [f.type for f in schema.select(keys)]
        columns = [table[k] for k in keys]
        numbers = assign_fixed_buckets(columns, types, self.bucket_count, schema.settings.bucket.function)
        return np.asarray(numbers)


def _folded(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Returns the rows in key order, with the rows of each key folded into one row, as a write buffer does before it is
    flushed.
    """
    keys = schema.trimmed_primary_key
    direction: Direction = "descending" if schema.settings.merge.newest_is_smallest else "ascending"
    then: list[tuple[str, Direction]] = [(name, direction) for name in schema.settings.merge.sequence_fields]
    ordered = rows.take(sort_indices(rows, keys, then=[*then, (SEQUENCE, "ascending")])).combine_chunks()
    return fold_for(schema).fold(ordered, key_changes(ordered, keys))


def _read_piece(path: Path) -> Iterator[pa.RecordBatch]:
    with storage_errors(str(path)), pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        yield from reader
