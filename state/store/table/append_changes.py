"""Rows of append tables changed: rows are taken out of data files, and new ones are appended.

With deletion vectors the positions of the rows are marked in index files. Without them, the files that hold such rows
are written again without them (copy on write). Either way it is one OVERWRITE snapshot, which conflicts with whoever
has compacted, changed or replaced one of these files since they were read.
Source: Paimon 2.0 DeleteFromPaimonTableCommand, UpdatePaimonTableCommand, AppendDeleteFileMaintainer.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import SYSTEM_IDS
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.entries import Operation
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.datafile.rolling_writer import write_data_files
from bucketline.state.store.engine.engine import Engine, Parts
from bucketline.state.store.engine.given_rows import GivenRows
from bucketline.state.store.index.deletion_vectors import drop_deleted, find_deletions
from bucketline.state.store.maintenance.upkeep import Upkeep
from bucketline.state.store.read.bucket_deletions import load_deletions, masked_files
from bucketline.state.store.read.merge_read import plan_projection, refuse_unreadable
from bucketline.state.store.read.prune import BucketFiles, group_by_bucket, visible_files
from bucketline.state.store.table.found_rows import pruned
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.write_plan import WriteScope
from bucketline.state.store.write.write_session import WriteSession

FILE, POSITION = "_bucketline_file", "_bucketline_position"
"""Columns that say where a row lies: the number of its file among those that are read, and its position there."""


class StoredRows:
    """The rows of an append table at the snapshot of a session, and those that are taken out."""

    def __init__(self, session: WriteSession) -> None:
        self._session = session
        self._schema = session.plan.schema
        self._access = BucketAccess(session.table.uri, self._schema)
        self._files: list[tuple[BucketId, DataFileMeta]] = []
        self._removed: dict[int, BitMap] = {}
        files, vectors = self._access.files, chain.from_iterable(session.deletion_entries().values())
        self._deletions = find_deletions(files.io, files.table_path, self._schema, vectors)
        refuse_unreadable(self._schema)

    def read(
        self,
        expression: pc.Expression | None,
        columns: Sequence[str] | None,
        partitions: Collection[bytes] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows that pass, with `FILE` and `POSITION` behind the columns (None: all) and those of the expression.

        `partitions` are those to look at; None for all.
        """
        needed = plan_projection(self._schema, columns, expression).needed
        stored = group_by_bucket(self._session.view.live_entries())
        if partitions is not None:
            stored = [b for b in stored if b.partition in partitions]
        seen = visible_files(self._schema, stored, read_optimized=False)
        for bucket in pruned(self._access, seen, expression):
            for file in bucket.files:
                for batch in self._rows_of(bucket, file, needed):
                    found = pa.Table.from_batches([batch])
                    if expression is not None:
                        found = found.filter(expression)
                    yield from found.combine_chunks().to_batches()

    def take_out(self, rows: pa.RecordBatch) -> None:
        """Remembers rows that `read` has given as taken out."""
        files, positions = np.asarray(rows[FILE]), np.asarray(rows[POSITION])
        for number in np.unique(files).tolist():
            self._removed.setdefault(number, BitMap()).update(positions[files == number].astype(np.uint32))

    def messages(self) -> Iterator[CommitMessage]:
        """What takes the rows out, bucket by bucket; all of `read` must have been consumed."""
        by_bucket: dict[BucketId, list[tuple[DataFileMeta, BitMap]]] = {}
        for number, removed in sorted(self._removed.items()):
            bucket_id, file = self._files[number]
            by_bucket.setdefault(bucket_id, []).append((file, removed))
        marks = self._schema.settings.changelog.deletion_vectors
        for bucket_id, changes in by_bucket.items():
            yield from [self._marked(bucket_id, changes)] if marks else self._copied(bucket_id, changes)

    def _rows_of(self, bucket: BucketFiles, file: DataFileMeta, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        number = len(self._files)
        self._files.append(((bucket.partition, bucket.bucket), file))
        files, start = self._access.files, 0
        deleted = self._deletions.of_file(bucket.partition, bucket.bucket, file.file_name)

        def placed() -> Iterator[pa.RecordBatch]:
            nonlocal start
            for batch in files.rows(bucket, file, columns):
                count = batch.num_rows
                at = pa.array(np.arange(start, start + count, dtype=np.int64))
                start += count
                yield batch.append_column(FILE, pa.repeat(pa.scalar(number, pa.int32()), count)).append_column(
                    POSITION, at
                )

        yield from placed() if deleted is None else drop_deleted(placed(), deleted, file.file_name)

    def _message(self, bucket_id: BucketId) -> CommitMessage:
        return CommitMessage(*bucket_id, total_buckets=self._session.view.total_of_bucket(bucket_id))

    def _marked(self, bucket_id: BucketId, changes: Sequence[tuple[DataFileMeta, BitMap]]) -> CommitMessage:
        """The rows marked in index files; a file of which no row is left goes. A bucket has one index file, which a new
        one replaces; without buckets those that hold a changed vector are replaced by name."""
        access, settings = self._access, self._schema.settings.changelog
        entries = self._session.deletion_entries().get(bucket_id, ())
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
        # One file of a bucket replaces another, so that it is written without vectors as well.
        parts = deletions.split(settings.vectors_target_bytes) if by_name else [deletions]
        if not by_name and deletions.is_empty and not touched:
            parts = []
        files, bitmap64 = access.files, settings.vectors_of_64_bits
        made = tuple(p.write(files.io, files.table_path, bucket_id, ids=access.ids, bitmap64=bitmap64) for p in parts)
        return replace(
            self._message(bucket_id),
            deleted_files=tuple(emptied),
            new_index_files=made,
            deleted_index_files=touched if by_name else (),
        )

    def _copied(self, bucket_id: BucketId, changes: Sequence[tuple[DataFileMeta, BitMap]]) -> Iterator[CommitMessage]:
        """Each file written again without the rows; one that held nothing else goes."""
        bucket = BucketFiles(*bucket_id, total_buckets=0, files=tuple(f for f, _ in changes))
        columns = [f.name for f in self._schema.fields]
        for file, removed in changes:
            gone = np.frombuffer(removed.to_array(), np.uint32).astype(np.int64)
            new: Sequence[DataFileMeta] = ()
            if len(gone) < file.row_count:
                writer = self._access.writer(
                    bucket_id, level=0, source=FileSource.APPEND, first_sequence_number=file.min_sequence_number
                )
                rows = drop_deleted(self._access.files.rows(bucket, file, columns), gone, file.file_name)
                new = write_data_files(writer, rows)
            yield replace(self._message(bucket_id), new_files=tuple(new), deleted_files=(file,))


def write_append_changes(
    session: WriteSession, stored: StoredRows, rows: Iterator[pa.Table], operation: Operation, *, engine: Engine
) -> WriteResult:
    """Appends the rows, whose reading says what is taken out of `stored`, and commits both at once.

    Nothing is compacted, since a compaction would bring back what is taken out. Raises CommitConflictError when
    somebody has changed one of the files meanwhile.
    """
    plan, newest = session.plan, session.view.snapshot
    scope = WriteScope(CompactTrigger.NONE, SYSTEM_IDS.new_uuid(), engine.workers)
    write = plan.bucket_write(CompactTrigger.NONE)
    with discarded_on_error(write.access) as messages:
        stages = plan.mode.in_batch(plan).stages(plan, session, scope, Parts([GivenRows(rows)]))
        messages += engine.run(stages).messages
        for message in stored.messages():
            messages.append(message)
    if all(m.is_empty for m in messages):
        return WriteResult(0 if newest is None else newest.id)
    committed = session.commit(messages, user=scope.user, operation=operation)
    Upkeep().after_batch(session, messages, committed.snapshots)
    return WriteResult(committed.snapshots[-1].id)
