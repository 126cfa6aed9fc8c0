"""Cross-partition tables: a key may move to another partition, so all keys are looked up in an index outside the table.

This is the only bucket mode that needs RocksDB. `modes` imports this module only for such a table.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, cast

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.allocation import Assigners
from bucketline.state.commit.change import AppendCheck
from bucketline.state.format.entries import ManifestEntry, Snapshot
from bucketline.state.format.entry_filter import EVERYTHING, EntryFilter
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.storage.errors import scratch_folder
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.write.cross.cross_write import CrossWrite
from bucketline.state.store.write.dynamic import asked_assigners
from bucketline.state.store.write.grouping import KeyShares
from bucketline.state.store.write.placing import SnapshotNote
from bucketline.state.store.write.run_buffer import Blob
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.write_plan import (
    Mode,
    ReplacedPartitions,
    ReplacedState,
    Source,
    TableState,
    Workers,
    WritePlan,
    WriteScope,
)
from bucketline.state.types.logical import DataType

_LOG = logging.getLogger(__name__)

BACKUP_EVERY = 10
"""The key index is copied to the checkpoint folder once in this many batches."""


class CrossPartition(Mode):
    """The mode for cross-partition tables: each task owns a share of all keys, with its own key index. Only one writer
    may write the table, because the index would lack the rows of a second writer.
    """

    append_check = AppendCheck.ONE_WRITER

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns stages for a table in which a key may move to another partition. The tasks that read rows send each
        row, unsorted, to the task that owns the share (group of keys) to which the row's key belongs. This task finds
        the partition and bucket of the row. If the scope allows it, the same task also writes the row. Otherwise a
        separate stage writes the rows, because more tasks may be configured or needed for writing.

        The number of shares stays the same from batch to batch, because another number of shares needs a new key index.
        """
        workers = scope.workers
        shares = workers.tasks(asked_assigners(plan) or scope.key_shares)
        # Each share opens its own buckets, so the table must allow at least one bucket for each share.
        shares = min(shares, plan.allocation_rule.bucket_limit)
        seal = plan.seal_plan(KeyShares(shares, plan.schema.primary_keys, across_partitions=True))
        write = plan.bucket_write(scope.trigger)
        place, stage = _cross_write(plan, table, scope, shares), WriteStage(write, table.bucket_states(scope.trigger))
        stages: Stages[Source] = Stages(
            source=source,
            seal=replace(seal, keep_order=True, fold=None),
            write=stage,
            place=place,
            tasks=TaskCounts(workers.tasks(plan.sink.write_parallelism or 2 * workers.parallelism), shares),
            key_shares=shares,
        )
        if not scope.by_share or shares < workers.tasks(plan.sink.write_parallelism):
            return stages
        return replace(
            stages,
            write=replace(stage, groups=replace(place, writes_alone=True)),
            place=None,
            assigners=Assigners(first=shares, across_partitions=True),
            tasks=TaskCounts(shares, shares),
        )

    def by_owner(self, stages: Stages[Source]) -> Stages[Source]:
        """Returns stages in which a single task gets all rows of the table. This task has the key index, finds the
        buckets, and writes the rows. `stages` must have been planned for a single task.
        """
        assert stages.key_shares == 1, "one worker has one share of the keys"
        if stages.place is None:
            return stages
        assert isinstance(stages.place, CrossWrite), "a key index places rows"
        return replace(
            stages,
            write=replace(stages.write, groups=replace(stages.place, writes_alone=True)),
            place=None,
            assigners=Assigners(first=1, across_partitions=True),
            tasks=TaskCounts(1, 1),
        )

    def replacing(self, plan: WritePlan) -> Mode:
        del plan
        return CrossOverwrite()

    def advice(self, plan: WritePlan, stages: Stages[Any], workers: Workers) -> str | None:
        """Returns advice for the user if more than half of Spark's tasks own no share (group of keys), because the
        number of shares is that of earlier batches: how to divide the keys among more tasks. Otherwise returns None.
        """
        shares, most = stages.key_shares or 1, min(workers.parallelism, plan.allocation_rule.bucket_limit)
        if asked_assigners(plan) is not None or most < 2 * shares:
            return None
        return (
            f"the keys have {shares} shares, one for each task, as in earlier batches, though Spark runs "
            f"{workers.parallelism} tasks at a time; set 'assigner-parallelism' to {most} to share them anew, which "
            "builds the key index once more"
        )


class CrossOverwrite(CrossPartition):
    """The mode in which rows replace partitions, and the keys of these rows are removed from all other partitions."""

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns the stages for a write that replaces partitions. They differ from the stages of other writes in one
        point: they use a separate key index, which has only the keys of partitions that are not replaced. `table` must
        be a `ReplacedState` (the table as a write sees it that replaces partitions).
        """
        stages = super().stages(plan, table, scope, source)
        assert isinstance(stages.place, CrossWrite)
        kept = {f.name: getattr(stages.place, f.name) for f in fields(CrossWrite)}
        return replace(stages, place=CrossOverwriteKeys(**kept, replaced=cast(ReplacedState, table).replaced))


def _cross_write(plan: WritePlan, table: TableState, scope: WriteScope, shares: int) -> CrossWrite:
    backup = None
    if scope.checkpoint is not None and _is_within_reach(scope.checkpoint, plan.schema.storage):
        backup = f"{scope.checkpoint}/bucketline"
    return CrossWrite(
        uri=plan.uri,
        schema=plan.schema,
        snapshot=table.view.snapshot,
        shares=shares,
        rule=plan.allocation_rule,
        memory_bytes=plan.sink.key_index_memory_bytes,
        local_directory=plan.sink.local_directory,
        backup=backup,
        back_up_now=scope.batch_id is not None and scope.batch_id % BACKUP_EVERY == BACKUP_EVERY - 1,
        budget_bytes=plan.sink.route_memory_bytes,
        run_bytes=plan.sink.run_bytes,
        world=plan.world,
    )


def _is_within_reach(checkpoint: str, storage: Mapping[str, str] | None) -> bool:
    """Returns True if this library can use the storage of the checkpoint folder. If not, because only Spark knows this
    kind of storage, logs a warning once and returns False.
    """
    try:
        file_io_for(checkpoint, storage)
    except OptionError as e:
        _warn_once(e.message)
        return False
    return True


@cache
def _warn_once(why: str) -> None:
    _LOG.warning(
        "the key index gets no backup in the checkpoint folder, and is built again from the table if it is lost: %s",
        why,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossOverwriteKeys(CrossWrite):
    """Finds the partition and bucket of each row, as `CrossWrite` does, for an overwrite: the new rows replace the
    rows of whole partitions. So it does not matter where keys are in the replaced partitions.
    """

    replaced: ReplacedPartitions

    def place(
        self, share: int, runs: Sequence[tuple[SealedRun, Blob]]
    ) -> Iterator[SealedRun | SnapshotNote | MixedKey]:
        """Yields the rows of a share (the group of keys that one task handles), as sealed runs of the buckets to which
        the rows go. Yields no SnapshotNote: such a note would help the next write to reuse this key index, but the next
        overwrite builds another index.
        """
        with scratch_folder("bucketline-overwrite-") as scratch:
            # @dataclass(slots=True) creates the class a second time, so super() without arguments would refer to the
            # wrong class.
            for placed in CrossWrite.place(replace(self, local_directory=scratch, backup=None), share, runs):
                if not isinstance(placed, SnapshotNote):
                    yield placed

    def manifests(self, io: FileIO, path: str, partition_types: Sequence[DataType]) -> Manifests:
        """Returns the manifests of the table at a path, without the files of replaced partitions."""
        return _KeptManifests(io, path, partition_types, self.replaced)


class _KeptManifests(Manifests):
    """The manifests of a table, as if the replaced partitions were empty."""

    def __init__(
        self, io: FileIO, path: str, partition_types: Sequence[DataType], replaced: ReplacedPartitions
    ) -> None:
        super().__init__(io, path, partition_types)
        self._replaced = replaced

    def live_entries(self, snapshot: Snapshot, wanted: EntryFilter = EVERYTHING) -> list[ManifestEntry]:
        return [e for e in super().live_entries(snapshot, wanted) if not self._replaced.is_replaced(e.partition)]
