"""The steps by which rows get into a table: read the rows, seal (sort and pack) them, place them into buckets, and
write files. One frozen value, `Stages`, holds the settings of all steps.

A plan makes the stages, and an engine runs them: in this process, or in tasks on other machines.
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
    """The form in which a task returns the commit message of a bucket."""

    AS_WRITTEN = "new files, and separately their compaction, which is committed in a second snapshot"
    ONE_CHANGE = "the new files and their compaction together, as one compaction"
    NEW_FILES = "all files that the bucket holds in the end, as new files"


@dataclass(frozen=True, slots=True)
class WriteStage:
    """Says how tasks make files out of sealed runs (sorted rows, packed for the task that writes them).

    `write` says how each bucket is written.
    `states` has what the table holds in each existing bucket.
    `groups` finds the buckets of rows whose bucket is not known yet; None if all buckets are known.
    `result` is the form in which tasks return the commit messages.
    """

    write: BucketWrite
    states: Mapping[BucketId, BucketState] = field(default_factory=dict)
    groups: Placing | None = None
    result: BucketResult = BucketResult.AS_WRITTEN


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The numbers of tasks that share the work.

    Rows are sent to `place` tasks, which find the buckets of the rows, and to `write` tasks, which write the rows. If
    `write` is None, the tasks that read rows also write them.
    """

    write: int | None = 1
    place: int = 1


@dataclass(frozen=True, slots=True)
class Stages(Generic[Source]):
    """Everything that an engine needs to write rows once.

    `source` supplies the rows, and `seal` says how the rows are grouped and sorted.
    `place` is a separate stage between reading and writing, which finds the buckets of rows. If `place` is None, the
    tasks that write find the buckets themselves (`WriteStage.groups`).
    `idle` are buckets that are compacted even if they get no rows.
    `retired` are commit messages that remove files of the source whose rows the run has moved. These messages are
    committed together with the messages of the run.
    `key_shares` is the number of shares (groups of keys that one task handles each). A later run has to keep this
    number.
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
