"""The interface of engines. An engine runs stages or jobs on a table, and returns the outcome. An engine commits
nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from bucketline.state.commit.message import CommitMessage
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.write.sealed_runs import SealedRun, SealPlan
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_plan import Workers
from bucketline.state.types.schema_need import NOTHING_NEEDED, SchemaNeed


class GivenBack(Exception):
    """Raised in work that was cancelled. The work ends early, and its files are removed."""


@dataclass(frozen=True, slots=True)
class PartReport:
    """A report (bytes in `payload`) that a part of a source sends next to its rows. The engine hands the report to the
    code that has planned the work.
    """

    payload: bytes


class SourcePart(Protocol):
    """Rows that one task reads: a file, a bucket, or a table in memory."""

    def runs(self, seal: SealPlan) -> Iterator[SealedRun | PartReport]:
        """Returns the rows of this part as sealed runs (sorted rows, packed for the writers of the buckets). The part
        may also return PartReports, which the engine hands to the code that has planned the work.
        """
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """A source of rows that consists of parts, for example files or buckets. Any task may read any part, in any
    order. If `parts` is empty, the source has no rows.
    """

    parts: Sequence[SourcePart] = ()


NO_ROWS = Parts()


class TaskJob(Protocol):
    """Work on one bucket that one task does alone. The value can be sent to tasks."""

    @property
    def access(self) -> BucketAccess:
        """Returns the object with which a task, in the process where the task runs, reads and writes the files of the
        table's buckets.
        """
        ...

    def message(self) -> CommitMessage:
        """Does the work, and returns its commit message; the message is empty if there is nothing left to do. After an
        error all new files are removed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs on buckets of one table. Each job is done by one task, in any order; no rows are sent between tasks."""

    jobs: Sequence[TaskJob]


@dataclass(frozen=True, slots=True)
class TaskStats:
    """Statistics of a write task."""

    accepted_rows: int
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of work that an engine has done:

    - the commit messages of its tasks;
    - the rows that were refused (as Arrow IPC streams);
    - the statistics of tasks;
    - the notes of tasks: tokens that the new snapshot must have among its properties, or, in a sort, bounds of ranges;
    - schema changes that the records need (if there are any, nothing may be committed);
    - reports of tasks about the parts of the table that they have read, as bytes;
    - the number of records without a row, by kind;
    - the tables of the source that the records name;
    - the number of rows that do not meet an expectation, by expectation;
    - keys whose rows came from several topic partitions: at most one key for each task and kind of check;
    - where the source's table was truncated: topic, partition and the last offset there;
    - messages of tasks, as bytes, about rows that lack values and whose key has changed.

    The attributes are together because the results of all tasks are added up into one value.
    """

    messages: tuple[CommitMessage, ...] = ()
    rejects: tuple[bytes, ...] = ()
    stats: tuple[TaskStats, ...] = ()
    notes: tuple[str, ...] = ()
    need: SchemaNeed = NOTHING_NEEDED
    reports: tuple[bytes, ...] = ()
    skipped_records: tuple[tuple[str, int], ...] = ()
    source_tables: tuple[str, ...] = ()
    unexpected: tuple[tuple[str, int], ...] = ()
    mixed: tuple[MixedKey, ...] = ()
    truncated: tuple[tuple[str, int, int], ...] = ()
    moves: tuple[bytes, ...] = ()

    @property
    def accepted_rows(self) -> int:
        return sum(s.accepted_rows for s in self.stats)


class Engine(Protocol):
    """Runs the work of a write or a compaction, in this process or in tasks on other machines. The work is given as
    `Stages` (the steps of a write) or as `Jobs` (compactions of single buckets).
    """

    @property
    def workers(self) -> Workers:
        """Returns the workers of the engine, which say how many tasks can run at the same time."""
        ...

    def run(self, work: Stages[Parts] | Jobs) -> Outcome:
        """Runs stages or jobs, and returns the outcome. Stages read rows, assign them to buckets, write them, and then
        compact buckets that have got no new rows, if a compaction is due. The commit messages of jobs are in the order
        of the jobs.

        Raises the errors of stages and jobs. All files that were written are removed then, except files of a task that
        was killed.
        """
        ...


class SparkFrame(Protocol):
    """A Spark DataFrame."""

    @property
    def sparkSession(self) -> Any: ...

    def mapInArrow(self, func: Any, schema: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class ShapedFrame:
    """A Spark DataFrame whose rows are converted by tasks as they read them. `shape` is the conversion, a value that
    can be sent to tasks.
    """

    frame: SparkFrame
    shape: Callable[[pa.RecordBatch], pa.RecordBatch]


class Rows(Protocol):
    """The rows that a caller gives for a write. The tasks of an engine can read these rows more than once."""

    @property
    def schema(self) -> pa.Schema:
        """Returns the columns of the rows. A type that the engine does not have is replaced by the nearest type that it
        has.
        """
        ...

    @property
    def source(self) -> Any:
        """Returns the rows in the form from which stages of this engine can read. A task that reads the rows raises
        SchemaMismatchError for the first bad row.
        """
        ...

    def each(self, look: Callable[[Iterator[pa.Table]], Iterator[bytes]]) -> list[bytes]:
        """Calls `look` in each task with the rows of the task, and returns all results."""
        ...


@runtime_checkable
class SpreadEngine(Engine, Protocol):
    """An engine whose tasks run in other processes. A caller's rows are sent to these processes."""

    def rows(self, data: object, row_kinds: object = None) -> AbstractContextManager[Rows]:
        """Makes rows available to the engine's tasks for the time of a `with` block: `with engine.rows(data) as rows`.
        `data` and `row_kinds` are the arguments of `Table.write`.

        Raises SchemaMismatchError for data that the engine cannot read, OptionError for more data than this process can
        send.
        """
        ...
