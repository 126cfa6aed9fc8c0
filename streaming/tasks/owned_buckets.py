"""What the tasks that write buckets must know about these buckets, packed for each task. A task unpacks only its own
part.

Data for tasks is sent to every executor, and unpickled as a whole for each task. If the data held the files of a large
table as objects, every task would have to build all of these objects.
"""

import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

import pyarrow as pa

from bucketline.state.commit.live_files import BucketId
from bucketline.state.format.data_file import DataFileMeta, FileSource, SimpleStats
from bucketline.state.store.write.bucket_writer import BucketState
from bucketline.state.store.write.stages import WriteStage
from bucketline.streaming.tasks.placement import Destination


@dataclass(frozen=True, slots=True)
class Owned:
    """The existing buckets that a task knows. `states` are the states of these buckets, and `idle` are the buckets that
    the task compacts even if they get no rows.
    """

    states: Mapping[BucketId, BucketState] = field(default_factory=dict)
    idle: tuple[BucketId, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnedBuckets:
    """The existing buckets that the tasks must know, as compressed bytes. A task unpacks only the bytes that it needs.

    - `among` says which task gets which bucket.
    - `is_shared_out` is true if each task has bytes of its own; otherwise every task unpacks the same bytes, with all
      buckets.
    - `shares` has the bytes for each task (or only one item), and their size when unpacked.
    """

    among: Destination
    shares: tuple[tuple[bytes, int], ...]
    is_shared_out: bool

    def of(self, task: int) -> Owned:
        """Returns the existing buckets that the task with this number must know, unpacked. If `is_shared_out` is false,
        these are all buckets; the idle buckets are always only those of the task.
        """
        packed, size = self.shares[task if self.is_shared_out else 0]
        rows: list[Any] = pickle.loads(pa.Codec("zstd").decompress(packed, size, asbytes=True))
        states = {
            bucket_id: BucketState(
                number, tuple(map(_file, files)), complete, vectors, tuple(map(_file, stored)), stored_vectors
            )
            for bucket_id, _, number, complete, files, vectors, stored, stored_vectors in rows
        }
        idle = (bucket_id for bucket_id, is_idle, *_ in rows if is_idle)
        return Owned(states, tuple(b for b in idle if self.among.task(*b) == task))

    def knows(self, task: int, bucket_id: BucketId) -> bool:
        """Returns True if the task knows what the table holds in the bucket."""
        return not self.is_shared_out or self.among.task(*bucket_id) == task


def owned_buckets(stage: WriteStage, idle: Collection[BucketId], among: Destination) -> OwnedBuckets:
    """Packs what each task has to know about existing buckets: the buckets whose rows `among` (the rule that chooses
    the task) sends to the task. `idle` are the buckets that are compacted even if they get no rows.

    If the buckets of rows are not known before the tasks start, any task may get a row of any bucket. So each task has
    to know all buckets. The exception is a table whose keys are unique across partitions: the task that gets a row
    knows all partitions of the row's key.
    """
    waiting, is_shared_out = frozenset(idle), stage.groups is None or among.assigners.across_partitions
    shares: list[list[BucketId]] = [[] for _ in range(among.task_count if is_shared_out else 1)]
    for bucket_id in stage.states:
        shares[among.task(*bucket_id) if is_shared_out else 0].append(bucket_id)
    packed = (_packed([(b, b in waiting, stage.states[b]) for b in share]) for share in shares)
    return OwnedBuckets(among, tuple(packed), is_shared_out)


def _packed(share: list[tuple[BucketId, bool, BucketState]]) -> tuple[bytes, int]:
    rows = [
        (
            *(bucket_id, is_idle, s.next_sequence_number, s.complete, list(map(_row, s.files)), s.vector_files),
            *(list(map(_row, s.stored)), s.stored_vectors),
        )
        for bucket_id, is_idle, s in share
    ]
    data = pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)
    return pa.Codec("zstd", compression_level=1).compress(data, asbytes=True), len(data)


_MEMBERS = tuple(f.name for f in fields(DataFileMeta))
_KEY_STATS, _VALUE_STATS, _SOURCE = (_MEMBERS.index(name) for name in ("key_stats", "value_stats", "file_source"))
_members = attrgetter(*_MEMBERS)
_stats = attrgetter(*(f.name for f in fields(SimpleStats)))


def _row(file: DataFileMeta) -> list[Any]:
    """Returns the fields of a file as plain values, because objects of classes take ten times as long to pickle."""
    row = list(_members(file))
    row[_KEY_STATS], row[_VALUE_STATS] = _stats(file.key_stats), _stats(file.value_stats)
    row[_SOURCE] = None if file.file_source is None else int(file.file_source)
    return row


def _file(row: list[Any]) -> DataFileMeta:
    row[_KEY_STATS], row[_VALUE_STATS] = SimpleStats(*row[_KEY_STATS]), SimpleStats(*row[_VALUE_STATS])
    row[_SOURCE] = None if row[_SOURCE] is None else FileSource(row[_SOURCE])
    return DataFileMeta(*row)
