"""Sorts an append table by ranges of a sort key. Each range is sorted and written by one task.

The engine runs twice. First it takes a sample of the keys, and divides the sample into ranges. Then it sends each row
to the task that sorts the range to which the row's key belongs.

Source: Paimon 2.0 TableSorter, RangeShuffle (ranges of about as many rows, from a sample).
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.datafile.rolling_writer import write_data_files
from bucketline.state.store.engine.sorted_rows import RowSort, key_of
from bucketline.state.store.index.deletion_vectors import find_deletions
from bucketline.state.store.read.bucket_deletions import VectorFiles
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.write.grouping import GroupRows, share_group
from bucketline.state.store.write.placing import Placing, SnapshotNote
from bucketline.state.store.write.run_buffer import Blob
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan, seal, unseal
from bucketline.state.types.curves import bounds_of, ranges_of
from bucketline.state.types.row_kind import RowKind

_RANGE_BITS = 40
"""The number of low bits of a provisional sequence number, which number the rows of a range. The bits above them are
the number of the range.
"""


@dataclass(frozen=True, slots=True)
class AppendedFile:
    """Reads the rows of one file of an append table, in the order of the file, without deleted rows.

    `origin` is the number of the file, counted from 0 among all files to read. `vectors` are the index files that have
    a deletion vector of the file.
    """

    access: BucketAccess
    place: BucketId
    file: DataFileMeta
    origin: int
    vectors: VectorFiles = ()

    def runs(self, plan: SealPlan) -> Iterator[SealedRun]:
        sealer = RunSealer(plan, origin=self.origin)
        for batch in self.batches([f.name for f in plan.schema.fields]):
            rows = pa.Table.from_batches([batch])
            yield from sealer.add(AcceptedRows(rows, _inserts(rows.num_rows)))
        yield from sealer.finish()

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the file's rows with these columns."""
        files = self.access.files
        deletions = find_deletions(files.io, files.table_path, self.access.schema, self.vectors)
        bucket = BucketFiles(*self.place, total_buckets=0, files=(self.file,))
        return replace(files, deletions=deletions).rows(bucket, self.file, columns)


@dataclass(frozen=True, slots=True)
class SampledKeys:
    """A source of the sort key of every `step`-th row of a file, from the row `first` on."""

    file: AppendedFile
    by: RowSort
    first: int
    step: int

    def runs(self, plan: SealPlan) -> Iterator[SealedRun]:
        del plan
        sampled, at = [], self.first
        for batch in self.file.batches(self.by.columns):
            places = np.arange(at, batch.num_rows, self.step)
            at += len(places) * self.step - batch.num_rows
            if len(places):
                sampled.append(key_of(pa.Table.from_batches([batch.take(pa.array(places))]), self.by))
        if not sampled:
            return
        keys = pa.concat_tables(sampled)
        yield SealedRun(
            partition=self.file.place[0],
            bucket=int(share_group(np.zeros(1))[0]),
            origin=self.file.origin,
            flush=0,
            consumed_rows=0,
            rank_end=0,
            row_count=keys.num_rows,
            blob=seal(keys),
        )


@dataclass(frozen=True, slots=True)
class KeyBounds(Placing):
    """A step for tasks: divides the sampled keys of a partition into ranges, and returns the bounds of the ranges as
    text, which goes to the driver as a note. `counts` holds the number of ranges of each partition.
    """

    counts: Mapping[bytes, int]

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[SnapshotNote]:
        del share
        partition = runs[0][0].partition
        bounds = bounds_of(pa.concat_tables([unseal(blob).read_all() for _, blob in runs]), self.counts[partition])
        packed = base64.b64encode(seal(bounds)).decode()
        yield SnapshotNote(json.dumps({"partition": partition.hex(), "bounds": packed}))


def read_bounds(notes: Sequence[str]) -> dict[bytes, pa.Table]:
    """Decodes the notes of a run with `KeyBounds`. Returns for each partition a table with the sort keys at which one
    range of rows ends and the next range begins.
    """
    parsed = [json.loads(note) for note in notes]
    return {bytes.fromhex(n["partition"]): unseal(base64.b64decode(n["bounds"])).read_all() for n in parsed}


@dataclass(frozen=True, slots=True)
class SortRanges:
    """Groups rows for sorting: the rows of one range of sort keys are one group, which one task sorts. `bounds` has for
    each partition the sort keys at which a new range begins. A partition without bounds is a single range.
    """

    by: RowSort
    bounds: Mapping[bytes, pa.Table]

    def open(self, schema: TableSchema) -> GroupRows:
        del schema

        def group(rows: pa.Table, partitions: Sequence[bytes], codes: np.ndarray) -> np.ndarray:
            ranges = np.zeros(rows.num_rows, np.int64)
            for code, partition in enumerate(partitions):
                bounds = self.bounds.get(partition)
                if bounds is not None and bounds.num_rows:
                    members = np.flatnonzero(codes == code)
                    ranges[members] = ranges_of(key_of(rows.select(self.by.columns).take(members), self.by), bounds)
            return share_group(ranges)

        return group


@dataclass(frozen=True, slots=True)
class SortedFiles(Placing):
    """Writes the rows of one range (the rows of a partition that one task sorts) to files, in sort order. The sequence
    numbers of these files are provisional; `in_range_order` replaces them with the final numbers.
    """

    access: BucketAccess
    by: RowSort

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[CommitMessage]:
        place, columns = (runs[0][0].partition, 0), [f.name for f in self.access.schema.fields]
        rows = (batch.select(columns) for _, blob in runs for batch in unseal(blob))
        writer = self.access.writer(
            place, level=0, source=FileSource.COMPACT, first_sequence_number=share << _RANGE_BITS
        )
        files = write_data_files(writer, self.by.sorted(rows))
        yield CommitMessage(*place, -1, compact_after=tuple(files))


def in_range_order(files: Sequence[DataFileMeta], first: int) -> tuple[DataFileMeta, ...]:
    """Takes the files of a partition that several tasks have written, each task one range of the sorted rows. Returns
    the files in the order of the ranges. The rows get consecutive sequence numbers across all files, beginning with
    `first`.
    """
    numbered, number = [], first
    for file in sorted(files, key=lambda f: f.min_sequence_number):
        last = number + file.row_count - 1
        numbered.append(replace(file, min_sequence_number=number, max_sequence_number=last))
        number = last + 1
    return tuple(numbered)


def _inserts(count: int) -> pa.Array:
    return pa.array(np.full(count, RowKind.INSERT.value, np.int8))
