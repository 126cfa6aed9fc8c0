"""Changes rows of append tables: rows are taken out of data files, and new rows are appended.

In tables with deletion vectors, index files mark the positions of the rows that are taken out. In other tables, data
files are copied without these rows (copy on write). Either way the change is one OVERWRITE snapshot. The snapshot
conflicts with a commit that has compacted, changed or replaced one of the changed data files since the change has read
these files. Source: Paimon 2.0 DeleteFromPaimonTableCommand, UpdatePaimonTableCommand, AppendDeleteFileMaintainer.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.author import Author
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.entries import Operation
from bucketline.state.format.row_ranges import ROW_ID, changed_schema
from bucketline.state.sql.compute.condition import Condition
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.datafile.rolling_writer import write_data_files
from bucketline.state.store.engine.engine import Engine, Jobs, PartReport
from bucketline.state.store.index.deletion_vectors import drop_deleted, find_deletions
from bucketline.state.store.read.bucket_deletions import VectorFiles, load_deletions, masked_files, vectors_by_file
from bucketline.state.store.read.projection import plan_projection, refuse_unreadable
from bucketline.state.store.read.prune import BucketFiles, group_by_bucket, prune, visible_files
from bucketline.state.store.table.cycle import Commit, carry_out
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.commit_change import appended
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.write_plan import WriteScope

FILE, POSITION = "_bucketline_file", "_bucketline_position"
"""The columns that say where a row lies: the number of its data file in the list of files that the change reads, and
the row's position in this file.
"""


_NUMBER = Struct("<i")


class AppendedChange(Protocol):
    """A change of rows of a table without a primary key. The change says which rows are taken out, and which rows are
    appended in their place. An implementation is a plain value that can be sent to tasks.
    """

    def passing(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Returns the rows of the batch that the change takes out; None if the change takes out no row."""
        ...

    def replacing(self, taken_out: pa.RecordBatch) -> pa.Table | None:
        """Returns the new rows that the change appends in place of the rows `taken_out`; None if the change appends no
        row.
        """
        ...


@dataclass(frozen=True, slots=True)
class PassingRows:
    """The rows of one data file that match an expression, with the columns `FILE` and `POSITION` added. The value can
    be sent to tasks.

    `number` is the index of the file in the list of files that the change reads. `columns` are the columns to read.
    `vectors` are the index files that hold a deletion vector of the file.
    """

    access: BucketAccess
    bucket_id: BucketId
    file: DataFileMeta
    number: int
    columns: Sequence[str]
    expression: pc.Expression | None
    vectors: VectorFiles

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Reads the file, drops its deleted rows, and yields the rows that match the expression. No batch is empty."""
        files, name = self.access.files, self.file.file_name
        deletions = find_deletions(files.io, files.table_path, self.access.schema, self.vectors)
        deleted = deletions.of_file(*self.bucket_id, name)
        placed = self._placed()
        for batch in placed if deleted is None else drop_deleted(placed, deleted, name):
            passing = pa.Table.from_batches([batch])
            if self.expression is not None:
                passing = passing.filter(self.expression)
            if passing.num_rows:
                yield from passing.combine_chunks().to_batches()

    def _placed(self) -> Iterator[pa.RecordBatch]:
        bucket, start = BucketFiles(*self.bucket_id, total_buckets=0, files=(self.file,)), 0
        for batch in self.access.files.rows(bucket, self.file, self.columns):
            count = batch.num_rows
            at = pa.array(np.arange(start, start + count, dtype=np.int64))
            start += count
            number = pa.repeat(pa.scalar(self.number, pa.int32()), count)
            yield batch.append_column(FILE, number).append_column(POSITION, at)


@dataclass(frozen=True, slots=True)
class FileChange:
    """Makes the rows that a change appends for the rows of one file, and reports which rows of the file the change
    takes out. The value can be sent to tasks.
    """

    stored: PassingRows
    change: AppendedChange
    keeps_ids: bool = False
    """Whether an appended row gets the row id of the row that it replaces; its version is new in any case."""

    def runs(self, seal: SealPlan) -> Iterator[SealedRun | PartReport]:
        """Yields the appended rows as sealed runs (sorted rows, packed for the writers of the buckets), then the
        reports of the rows that are taken out. Raises SchemaMismatchError for a row that the table cannot take.
        """
        sealer, acceptance = RunSealer(seal, origin=self.stored.number), RowAcceptance(seal.schema)
        removed = Removed()
        for batch in self.stored.batches():
            kept = self.change.passing(batch)
            if kept is None:
                continue
            removed.add(kept)
            new = self.change.replacing(kept)
            if new is not None:
                yield from sealer.add(acceptance.accept(with_ids(new, kept) if self.keeps_ids else new))
        yield from sealer.finish()
        yield from removed.reports()


def with_ids(new: pa.Table, before: pa.RecordBatch) -> pa.Table:
    """Returns the rows `new` with the row ids of the rows `before`. Row i of `new` replaces row i of `before`."""
    return new.append_column(ROW_ID, before.column(ROW_ID))


class Removed:
    """The positions of the rows that a change takes out, as one bitmap for each file. The keys of `positions` are the
    `PassingRows.number`s of the files.
    """

    def __init__(self) -> None:
        self.positions: dict[int, BitMap] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds the positions of rows that `PassingRows` has read."""
        files, positions = np.asarray(rows[FILE]), np.asarray(rows[POSITION])
        for number in np.unique(files).tolist():
            self.positions.setdefault(number, BitMap()).update(positions[files == number].astype(np.uint32))

    def reports(self) -> Iterator[PartReport]:
        """Yields one report for each file from which rows are taken out. The report has the file's `number` and the
        positions of these rows, in the form in which a task sends a report to the planner. Yields nothing if no row is
        taken out.
        """
        for number, positions in self.positions.items():
            yield PartReport(_NUMBER.pack(number) + positions.serialize())

    def hear(self, packed: bytes) -> None:
        """Adds the positions of removed rows that a task has found. `packed` is what `reports` has yielded in the task:
        the number of a file, and a bitmap of positions.
        """
        (number,) = _NUMBER.unpack_from(packed)
        self.positions.setdefault(number, BitMap()).update(BitMap.deserialize(packed[_NUMBER.size :]))


class KeptAndTaken:
    """The rows of an append table at one snapshot, and the positions of the rows that a change takes out."""

    def __init__(self, at: TableAt) -> None:
        self._at = at
        self._schema = at.plan.schema
        self._access = at.plan.access.keeping
        self._files: list[PassingRows] = []
        self.removed = Removed()
        refuse_unreadable(self._schema)

    def parts(
        self,
        expression: pc.Expression | None,
        columns: Sequence[str] | None,
        partitions: Collection[bytes] | None = None,
    ) -> Sequence[PassingRows]:
        """Returns the files that may hold rows that match the expression, each as a `PassingRows`.

        `columns` are the columns that the caller needs (None: all columns); the columns of the expression are read as
        well. Only files of `partitions` are returned; None stands for all partitions.
        """
        needed = plan_projection(self._schema, columns, Condition(expression)).needed
        stored = group_by_bucket(self._at.view.live_entries())
        if partitions is not None:
            stored = [b for b in stored if b.partition in partitions]
        seen = visible_files(self._schema, stored, read_optimized=False)
        vectors = self._at.deletion_entries()
        first = len(self._files)
        for bucket in prune(self._access.schema, seen, expression, self._access.files.schema_of):
            bucket_id = (bucket.partition, bucket.bucket)
            marked = vectors_by_file(vectors.get(bucket_id, ()))
            for file in bucket.files:
                number, of_file = len(self._files), marked.get(file.file_name, ())
                self._files.append(PassingRows(self._access, bucket_id, file, number, needed, expression, of_file))
        return self._files[first:]

    def read(
        self,
        expression: pc.Expression | None,
        columns: Sequence[str] | None,
        partitions: Collection[bytes] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows that match the expression, file after file, with the columns `FILE` and `POSITION`. The
        arguments mean the same as in `parts`.
        """
        for part in self.parts(expression, columns, partitions):
            yield from part.batches()

    def take_out(self, rows: pa.RecordBatch) -> None:
        """Marks rows as rows that the change takes out of the table. `rows` are rows that `read` has yielded."""
        self.removed.add(rows)

    def marked(self) -> Iterator[CommitMessage]:
        """Yields one commit message for each bucket that loses rows. The message marks the positions of these rows in
        index files.
        """
        for bucket_id, changes in self._by_bucket().items():
            yield self._marked(bucket_id, changes)

    def copies(self) -> Jobs:
        """Returns a job for each file that loses rows. The job writes the file again without the rows that the change
        removes.
        """
        totals = self._at.view.total_of_bucket
        return Jobs(
            [
                FileCopy(self._access, bucket_id, totals(bucket_id), file, bytes(removed.serialize()))
                for bucket_id, changes in self._by_bucket().items()
                for file, removed in changes
            ]
        )

    def _by_bucket(self) -> dict[BucketId, list[tuple[DataFileMeta, BitMap]]]:
        by_bucket: dict[BucketId, list[tuple[DataFileMeta, BitMap]]] = {}
        for number, removed in sorted(self.removed.positions.items()):
            stored = self._files[number]
            by_bucket.setdefault(stored.bucket_id, []).append((stored.file, removed))
        return by_bucket

    def _message(self, bucket_id: BucketId) -> CommitMessage:
        return CommitMessage(*bucket_id, total_buckets=self._at.view.total_of_bucket(bucket_id))

    def _marked(self, bucket_id: BucketId, changes: Sequence[tuple[DataFileMeta, BitMap]]) -> CommitMessage:
        """Returns the message that marks rows as deleted in index files. The message removes files of which all rows
        are deleted.

        In a table with buckets, a bucket has one index file, which is replaced by a new index file. In a table without
        buckets, only the index files with a changed vector are replaced.
        """
        access, settings = self._access, self._schema.settings.changelog
        entries = self._at.deletion_entries().get(bucket_id, ())
        by_name = not bucket_mode(self._schema).has_buckets
        names = {file.file_name for file, _ in changes}
        touched = tuple(e for e in entries if not by_name or names & masked_files((e,)))
        deletions = load_deletions(access.files, touched)
        emptied = []
        for file, removed in changes:
            deletions.delete(file.file_name, np.frombuffer(removed.to_array(), np.uint32).astype(np.int64))
            marked = deletions.of_name(file.file_name)
            if marked is not None and len(marked) == file.row_count:
                deletions.forget(file.file_name)
                emptied.append(file)
        # A bucket has one index file. The old file is replaced even if there are no vectors for a new file.
        parts = deletions.split(settings.vectors_target_bytes) if by_name else [deletions]
        if not by_name and deletions.is_empty and not touched:
            parts = []
        files = access.files
        made = tuple(
            p.write(files.io, files.table_path, bucket_id, schema=self._schema, world=access.world) for p in parts
        )
        return replace(
            self._message(bucket_id),
            deleted_files=tuple(emptied),
            new_index_files=made,
            deleted_index_files=touched if by_name else (),
        )


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A job that writes one file again without the rows at the positions of the bitmap `removed`. If no row is left,
    the job only removes the file.
    """

    access: BucketAccess
    bucket_id: BucketId
    total_buckets: int
    file: DataFileMeta
    removed: bytes

    def message(self) -> CommitMessage:
        """Writes a copy of the data file without the removed rows. Returns the commit message that replaces the file by
        the copy. If no row is left, there is no copy, and the message only removes the file.
        """
        file, access = self.file, self.access.keeping
        gone = np.frombuffer(BitMap.deserialize(self.removed).to_array(), np.uint32).astype(np.int64)
        new: Sequence[DataFileMeta] = ()
        if len(gone) < file.row_count:
            bucket = BucketFiles(*self.bucket_id, total_buckets=0, files=(file,))
            columns = [f.name for f in access.schema.fields]
            writer = access.writer(
                self.bucket_id, level=0, source=FileSource.APPEND, first_sequence_number=file.min_sequence_number
            )
            new = write_data_files(writer, drop_deleted(access.files.rows(bucket, file, columns), gone, file.file_name))
        message = CommitMessage(*self.bucket_id, total_buckets=self.total_buckets)
        return replace(message, new_files=tuple(new), deleted_files=(file,))


def write_append_changes(
    at: TableAt,
    stored: KeptAndTaken,
    source: Any,
    operation: Operation,
    *,
    engine: Engine,
    keeps_ids: bool = False,
    new: Any = None,
) -> WriteResult:
    """Appends the rows of a source, takes out the rows that are recorded in `stored`, and commits both changes at once.
    Returns the result of the commit.

    Nothing is compacted, because a compaction would bring back the rows that are taken out. Raises CommitConflictError
    if another process has changed one of the files since the files were read.

    `keeps_ids` and `new` are for tables with row tracking. If `keeps_ids` is true, the rows of `source` have the row
    ids of the rows that they replace. `new` is a source of rows that were not in the table; the commit gives these rows
    their row ids. Rows of `source` and of `new` are written to different files, because either a file stores the row
    ids of all its rows, or the commit gives them to all its rows.
    """
    kept = replace(at.plan, schema=changed_schema(at.plan.schema)) if keeps_ids else at.plan
    sources = [(kept, source)] if new is None else [(kept, source), (at.plan, new)]
    scope = WriteScope(CompactTrigger.NONE, at.table.world.ids.new_uuid(), engine.workers)

    def work(made: list[CommitMessage]) -> Commit | None:
        for plan, rows in sources:
            outcome = engine.run(plan.mode.in_batch(plan).stages(plan, at, scope, rows))
            made += outcome.messages
            for packed in outcome.reports:
                stored.removed.hear(packed)
        if at.plan.schema.settings.changelog.deletion_vectors:
            for message in stored.marked():
                made.append(message)
        else:
            made += engine.run(stored.copies()).messages
        if all(m.is_empty for m in made):
            return None
        return Commit(appended(at, made), Author(scope.user, operation=operation), brought=made)

    return carry_out(at, engine, work).result
