"""Overwrites tables whose keys can move between partitions. One snapshot replaces partitions, and removes the keys of
the new rows from all other partitions.

An overwrite is planned on one snapshot. The overwrite conflicts with any later write, because otherwise a key of the
later write could be in two partitions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.state.commit.author import Author
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.entries import Operation
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import partition_path
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.table.cycle import Commit
from bucketline.state.store.table.partition_choice import PartitionTest
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, CompactTrigger, compact_bucket
from bucketline.state.store.write.commit_change import appended
from bucketline.state.store.write.grouping import HashEntries
from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan, partition_codes
from bucketline.state.store.write.stages import BucketResult, Stages, WriteStage
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.visibility import Waits, what_waits
from bucketline.state.store.write.write_buckets import as_result

PartitionCheck = Callable[[bytes], None]
"""A function that raises SchemaMismatchError for a partition that must not be written."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The partitions that are replaced: the partitions that pass the test `target`. If `target` is None, the
    partitions that get rows are replaced, and are collected in `seen`. The value can be sent to tasks.
    """

    target: PartitionTest | None
    seen: set[bytes] = field(default_factory=set)

    def is_replaced(self, partition: bytes) -> bool:
        return partition in self.seen if self.target is None else self.target(partition)


@dataclass(frozen=True, slots=True)
class ReplacedTable:
    """What the stages of an overwrite see of the table: each bucket counts as empty if its partition is replaced. A
    ReplacedTable is not sent to tasks, because `view` holds all files of the table.
    """

    view: LiveFiles
    replaced: Replaced

    def bucket_states(self, trigger: CompactTrigger) -> Mapping[BucketId, BucketState]:
        del trigger
        return _States(self.replaced, {b: self.view.next_sequence_number(b) for b in self.view.buckets()})

    def hash_entries(self) -> HashEntries:
        return {}


class _States(Mapping[BucketId, BucketState]):
    """The states of buckets. A replaced bucket counts as empty. Any other bucket is not compacted, and its new rows get
    sequence numbers after those of its stored rows.

    The states are looked up after all rows were read, because only then it is known which partitions get rows.
    """

    def __init__(self, replaced: Replaced, next_numbers: Mapping[BucketId, int]) -> None:
        self._replaced, self._next_numbers = replaced, next_numbers

    def __getitem__(self, bucket_id: BucketId) -> BucketState:
        if self._replaced.is_replaced(bucket_id[0]):
            return BucketState()
        return BucketState(self._next_numbers.get(bucket_id, 0), complete=False)

    def __iter__(self) -> Iterator[BucketId]:
        return iter(self._next_numbers)

    def __len__(self) -> int:
        return len(self._next_numbers)


@dataclass(frozen=True, slots=True)
class SeenRows:
    """A source of rows that are read in this process. While the source is read, the partitions of its rows are
    added to `replaced`. `check` is called for each partition, and raises an error if the partition is not allowed.
    """

    tables: Iterator[pa.Table]
    replaced: Replaced
    check: PartitionCheck

    def runs(self, seal: SealPlan) -> Iterator[SealedRun]:
        sealer, acceptance = RunSealer(seal, origin=0), RowAcceptance(seal.schema)
        for rows in self.tables:
            accepted = acceptance.accept(rows)
            for partition in partition_codes(accepted.rows, seal.schema)[0] if accepted.rows.num_rows else ():
                self.check(partition)
                self.replaced.seen.add(partition)
            yield from sealer.add(accepted)
        yield from sealer.finish()


@dataclass(frozen=True, slots=True)
class PartitionsSeen:
    """A function for tasks: yields the partitions of rows, each partition once."""

    schema: TableSchema

    def __call__(self, tables: Iterable[pa.Table]) -> Iterator[bytes]:
        acceptance = RowAcceptance(self.schema)
        seen: set[bytes] = set()
        for table in tables:
            rows = acceptance.accept(table).rows
            new = set(partition_codes(rows, self.schema)[0] if rows.num_rows else ()) - seen
            yield from sorted(new)
            seen |= new


def overwrite_moving(
    at: TableAt, replaced: Replaced, stages: Stages[Any], made: list[CommitMessage], *, engine: Engine, user: str
) -> Commit | None:
    """Writes rows by the `stages`, and returns a commit in which these rows replace partitions of the table; None if
    nothing changes. Nothing is committed yet. The commit will fail with a conflict if another writer has committed
    since the snapshot of `at`.

    The commit messages are put into the list `made`, so that the caller can remove the new files after an error. Raises
    OptionError if the rows were read twice and the second reading returned rows of other partitions.
    """
    view = at.view
    write = stages.write.write
    planned = replace(stages, write=replace(stages.write, result=BucketResult.AS_WRITTEN))
    written = engine.run(planned).messages
    made += written
    for position, message in enumerate(written):
        is_replaced = replaced.is_replaced(message.partition)
        if not is_replaced and any(f.delete_row_count != f.row_count for f in message.new_files):
            raise OptionError(
                f"the rows go to partition {partition_path(at.plan.schema, message.partition).rstrip('/')} when they "
                "are read again, but did not go there before: an overwrite of a table whose keys move between "
                "partitions reads a DataFrame twice; write the rows to a table or to files first",
                key="data",
            )
        made[position] = _emptied(message, write) if is_replaced else _taken_out(at, write, message)
    vectors = at.deletion_entries()
    for bucket_id in view.buckets():
        if replaced.is_replaced(bucket_id[0]):
            gone = CommitMessage(*bucket_id, total_buckets=view.total_of_bucket(bucket_id))
            made.append(
                replace(gone, deleted_files=view.files(bucket_id), deleted_index_files=vectors.get(bucket_id, ()))
            )
    if all(m.is_empty for m in made):
        return None
    return Commit(appended(at, made), Author(user, operation=Operation.OVERWRITE), brought=written)


def _emptied(message: CommitMessage, write: BucketWrite) -> CommitMessage:
    """Returns the commit message of a bucket whose old files are all replaced. The returned message has no compaction:
    the files that the bucket has after the compaction in `message` are new files instead.
    """
    return as_result(message, WriteStage(write, result=BucketResult.NEW_FILES))


def _taken_out(at: TableAt, write: BucketWrite, message: CommitMessage) -> CommitMessage:
    """Returns the commit message of a bucket that is not replaced. The message adds files that delete the keys which
    have moved to other partitions.

    If readers skip level 0, the bucket is also compacted, so that the deletes take effect in the same commit and no
    reader sees a key twice.
    """
    if what_waits(at.plan.schema) is not Waits.ROWS:
        return message
    bucket_id = (message.partition, message.bucket)
    files, vectors = at.view.files(bucket_id), at.deletion_entries().get(bucket_id, ())
    state = BucketState(files=files, vector_files=vectors)
    minor = replace(write, trigger=CompactTrigger.MINOR)
    compacted = compact_bucket(minor, bucket_id, state, message.new_files).message(bucket_id, message.total_buckets)
    result = as_result(
        replace(compacted, new_files=message.new_files), WriteStage(minor, result=BucketResult.ONE_CHANGE)
    )
    return replace(
        result,
        new_files=result.compact_after,
        deleted_files=result.compact_before,
        new_index_files=result.compact_index_files,
        deleted_index_files=result.deleted_compact_index_files,
        compact_before=(),
        compact_after=(),
        compact_index_files=(),
        deleted_compact_index_files=(),
    )
