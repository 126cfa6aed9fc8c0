"""Decides from a table and a job's options how the table is written. The plan is one frozen value, made on the driver.

The plan's `mode` holds everything that differs between bucket modes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

from bucketline.conf.errors import OptionError
from bucketline.conf.sink_options import SinkOptions
from bucketline.conf.table.compaction_options import FORCE_COMPACT, WRITE_ONLY
from bucketline.conf.table.own_options import COMPACTION, Compaction
from bucketline.state.bucket.allocation import AllocationRule
from bucketline.state.commit.change import AppendCheck
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.fold_choice import sealing_fold, strict_fold
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.write.bucket_writer import BucketCounts, BucketState, BucketWrite, CompactTrigger
from bucketline.state.store.write.grouping import FixedBuckets, Grouping, HashEntries
from bucketline.state.store.write.sealed_runs import SealPlan
from bucketline.state.store.write.stages import Stages

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Workers:
    """The available workers: `parallelism` tasks run at a time, and the work may be divided among at most `most_tasks`
    tasks.
    """

    parallelism: int = 1
    most_tasks: int = 1

    def tasks(self, wanted: int | None) -> int:
        """Returns how many tasks the work is divided among: `wanted`, or `parallelism` if `wanted` is None; in both
        cases at most `most_tasks`.
        """
        return max(1, min(self.parallelism if wanted is None else wanted, self.most_tasks))


ONE_WORKER = Workers()


@dataclass(frozen=True, slots=True)
class WriteScope:
    """What is known about a write before its rows are read. A share of the keys is the keys that one task owns, by
    their hash.

    - `trigger` says what is compacted.
    - `user` is the commit user.
    - `expected_rows` is a guess at the number of rows for each partition that the write touches.
    - `touched` are the partitions of the last write; None if they are not known.
    - `key_shares` is the number of shares that the last write asked to keep.
    - `checkpoint` is a folder on storage that outlives the machine.
    - `batch_id` counts the writes of a stream.
    - With `by_share`, the task that finds the buckets of a share also writes the share's rows. If the task fails with
      SharedBucket, the caller must plan other stages, without `by_share`, and run them.
    """

    trigger: CompactTrigger
    user: str
    workers: Workers = ONE_WORKER
    expected_rows: int = 0
    touched: frozenset[bytes] | None = None
    key_shares: int | None = None
    checkpoint: str | None = None
    batch_id: int | None = None
    by_share: bool = False


class TableState(Protocol):
    """What a writer must know of the table at one snapshot: the live files, the states of buckets, and the files of the
    HASH index.
    """

    @property
    def view(self) -> LiveFiles: ...

    def bucket_states(self, trigger: CompactTrigger) -> Mapping[BucketId, BucketState]: ...

    def hash_entries(self) -> HashEntries: ...


class ReplacedPartitions(Protocol):
    """The partitions that are replaced; these partitions are known once all rows were read. The value can be sent to
    tasks.
    """

    def is_replaced(self, partition: bytes) -> bool: ...


class ReplacedState(TableState, Protocol):
    """What a writer that replaces partitions must know of the table at one snapshot. `replaced` says which partitions
    are replaced.
    """

    @property
    def replaced(self) -> ReplacedPartitions: ...


@dataclass(frozen=True, slots=True)
class Mode:
    """The rules of writing in one bucket mode. Each bucket mode has a subclass."""

    append_check: ClassVar[AppendCheck] = AppendCheck.BUCKET_COUNT
    """Which changes by other writers conflict with a commit of rows."""

    why_not_compacting: ClassVar[str | None] = None
    """Why writers of buckets do not compact them; None if they do compact."""

    postpones: ClassVar[bool] = False
    """Whether rows wait in the postpone bucket until a compaction moves them to their buckets."""

    counts_buckets: ClassVar[bool] = False
    """Whether a partition has a fixed number of buckets, which a rescale changes."""

    def stages(self, plan: "WritePlan", table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns the stages of a write: what the tasks that read rows, the tasks that find buckets and the tasks that
        write files have to do, to write the rows of `source`.
        """
        raise NotImplementedError

    def by_owner(self, stages: Stages[Source]) -> Stages[Source]:
        """Takes stages that were planned for one worker. Returns stages in which the tasks that read send rows directly
        to the tasks that write, so that no task between them has to find buckets. The tasks that read do not know what
        the table holds.
        """
        return stages

    def in_batch(self, plan: "WritePlan") -> "Mode":
        """Returns the mode to use for a write that is one commit and belongs to no stream. Most modes return
        themselves.
        """
        del plan
        return self

    def replacing(self, plan: "WritePlan") -> "Mode":
        """Returns the mode of a write whose rows replace all rows of partitions."""
        del plan
        return self

    def advice(self, plan: "WritePlan", stages: Stages[Any], workers: Workers) -> str | None:
        """Returns a sentence that advises how to set up the job better, judging by its stages; None if there is no
        advice.
        """
        del plan, stages, workers
        return None


@dataclass(frozen=True)
class WritePlan:
    """How one job writes one table. `schema` carries all options that apply: the options of the table, overridden by
    the options of the job.

    `is_stream` is True if the job goes on after its commit, so that the job can compact in parallel with its next
    batches.
    """

    uri: str
    schema: TableSchema
    sink: SinkOptions
    mode: Mode
    total_buckets: int
    is_stream: bool = False
    world: World = SYSTEM_WORLD

    @property
    def access(self) -> BucketAccess:
        """Returns the object through which tasks access the table."""
        return BucketAccess(self.uri, self.schema, self.world)

    @property
    def _why_not_compacting(self) -> str | None:
        """Returns the reason why this job does not compact the buckets that it writes; None if it compacts these
        buckets.
        """
        if self.mode.why_not_compacting is not None:
            return self.mode.why_not_compacting
        if self.schema.settings.compaction.write_only:
            return f"'{WRITE_ONLY.key}' = 'true' leaves compaction to others"
        if self.sink.compaction is Compaction.ASYNC and not self.is_stream:
            return None
        if self.sink.compaction is Compaction.ASYNC:
            return f"'{COMPACTION.key}' = 'async' compacts after the commit"
        if self.sink.compaction is not Compaction.INLINE:
            return f"'{COMPACTION.key}' = '{self.sink.compaction.value}' leaves compaction to others"
        return None

    @property
    def compacts(self) -> bool:
        """Returns True if this job compacts the buckets that it writes."""
        return self._why_not_compacting is None

    @cached_property
    def compact_options(self) -> CompactOptions:
        return CompactOptions.of(self.schema.settings)

    def trigger(self, commit_number: int) -> CompactTrigger:
        """Returns what is compacted with the commit number `commit_number`. Commits are numbered from 0. The source of
        the rows stores the number, so a restart of the job does not change it. Raises OptionError if the options ask
        commits to wait for compactions that this job does not do.

        Source: Paimon 2.0 DataWrite: full compaction when `commit_number` + 1 is a multiple of
        `full-compaction.delta-commits`; FlinkSink: full compaction with each commit if the changelog comes from full
        compactions and this option is not set.
        """
        why = self._why_not_compacting
        if why is not None and self.schema.settings.compaction.force_compact:
            raise OptionError(
                f"'{FORCE_COMPACT.key}' = 'true' asks each commit to wait for its compaction, but {why}; let this job "
                f"compact, or set '{FORCE_COMPACT.key}' = 'false' for this job",
                key=FORCE_COMPACT.key,
            )
        if why is not None:
            return CompactTrigger.NONE
        return CompactTrigger.FULL if self.is_full_due(commit_number) else CompactTrigger.MINOR

    def is_full_due(self, commit_number: int) -> bool:
        """Returns True if a full compaction is due with commit `commit_number`, which is counted as in `trigger`."""
        every = self.schema.settings.compaction.full_every_commits
        if every is None and self.schema.settings.changelog.producer.logs_full_compactions:
            every = 1
        if not every:
            return False
        return (commit_number + 1) % every == 0

    @property
    def compacts_async(self) -> bool:
        """Returns True if this job compacts in a separate thread while it runs its batches."""
        is_async = self.is_stream and self.sink.compaction is Compaction.ASYNC
        return is_async and not self.schema.settings.compaction.write_only

    @property
    def allocation_rule(self) -> AllocationRule:
        """Returns the rule by which dynamic buckets are filled."""
        bucket = self.schema.settings.bucket
        return AllocationRule(bucket.target_rows, bucket.limit)

    def counts(self, others: Mapping[bytes, int] | None = None) -> BucketCounts:
        """Returns how many buckets each partition has: a partition in `others` has the number given there, and every
        other partition has the number of buckets of the table.
        """
        return BucketCounts(self.total_buckets, dict(others or {}))

    def bucket_write(self, trigger: CompactTrigger) -> BucketWrite:
        """Returns the settings for writing buckets, where `trigger` decides about compaction."""
        return BucketWrite(
            access=self.access,
            counts=self.counts(),
            trigger=trigger,
            merge_memory_bytes=self.sink.merge_memory_bytes,
            compact_memory_bytes=self.sink.compact_memory_bytes,
            local_directory=self.sink.local_directory,
            parallelism=self.sink.write_parallelism,
        )

    def seal_plan(self, grouping: Grouping) -> SealPlan:
        """Returns the settings by which rows are turned into sealed runs (sorted, packed rows). `grouping` says which
        rows are in a run together; the table's options say how rows are sorted and which rows are merged.
        """
        merge, fold = self.schema.settings.merge, sealing_fold(self.schema)
        return SealPlan(
            schema=self.schema,
            grouping=grouping,
            fold=None if fold is None else strict_fold(fold),
            sequence_fields=merge.sequence_fields,
            sequence_descending=merge.newest_is_smallest,
            total_buckets=self.total_buckets,
            budget_bytes=self.sink.route_memory_bytes,
            run_bytes=self.sink.run_bytes,
        )

    def moving_seal_plan(self, counts: Mapping[bytes, int]) -> SealPlan:
        """Returns the plan by which tasks seal stored rows into runs (sorted, packed rows), in order to move the rows
        to other buckets. `counts` are the new bucket counts of the partitions whose rows move.
        """
        return replace(self.seal_plan(self._fixed(counts)), fold=sealing_fold(self.schema))

    def counted_seal_plan(self) -> SealPlan:
        """Returns how new rows are sealed into runs (sorted rows, packed for the task that writes them) if each
        partition has its own number of buckets.
        """
        return self.seal_plan(self._fixed({}))

    def _fixed(self, counts: Mapping[bytes, int]) -> FixedBuckets:
        return FixedBuckets(max(1, self.total_buckets), self.schema.settings.bucket.function, dict(counts))
