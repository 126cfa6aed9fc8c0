"""The steps by which rows get into a table, as one frozen value: read → seal → place → write.

A plan makes the stages and an engine runs them: the same stages in this process, or in tasks on other machines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from bucketline.state.bucket.allocation import Assigners
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite
from bucketline.state.store.write.placing import Placing
from bucketline.state.store.write.sealed_runs import SealPlan

Source = TypeVar("Source", covariant=True)


class BucketResult(Enum):
    """The form in which a task returns the message of a bucket."""

    AS_WRITTEN = "new files, and the compaction that follows them in a snapshot of its own"
    ONE_CHANGE = "both as one compaction"
    NEW_FILES = "what the bucket holds in the end, all of it new"


@dataclass(frozen=True, slots=True)
class WriteStage:
    """Says how tasks make files out of runs. `states` are the existing buckets of the table. `groups` finds the buckets
    of runs that have none yet.
    """

    write: BucketWrite
    states: Mapping[BucketId, BucketState] = field(default_factory=dict)
    groups: Placing | None = None
    result: BucketResult = BucketResult.AS_WRITTEN


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The numbers of tasks that share the work.

    Rows are sent to `place` and `write` tasks; if `write` is None, the tasks that read rows also write them.
    """

    write: int | None = 1
    place: int = 1


@dataclass(frozen=True, slots=True)
class Stages(Generic[Source]):
    """Everything that an engine needs to write rows once.

    `source` supplies the rows, `seal` says how they are grouped and sorted. `place` is a stage of its own between
    reading and writing; without it, the tasks that write find the buckets themselves (`WriteStage.groups`). `idle` are
    buckets that are compacted even if no rows come to them. `retired` are messages that are committed with those of the
    run: they remove the files that the source has used up. `key_shares` is the number of shares of the keys that a
    later run has to keep.
    """

    source: Source
    seal: SealPlan
    write: WriteStage
    place: Placing | None = None
    assigners: Assigners = field(default_factory=Assigners)
    tasks: TaskCounts = TaskCounts()
    idle: tuple[BucketId, ...] = ()
    retired: tuple[CommitMessage, ...] = ()
    key_shares: int | None = None
