"""The work on one item of a plan: checks whether the item is still to be done, carries it out in one bucket, and
commits it.

A compaction is planned on one snapshot and carried out on a newer snapshot. Both snapshots have the input files, but
the other files of the bucket may have changed. So deletes, deletion vectors and the levels for lookups are taken from
the newer snapshot, and the commit is checked against the snapshots after this newer snapshot.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Unknown
from bucketline.state.commit.replay import commit_user
from bucketline.state.errors import StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.pick import CompactUnit
from bucketline.state.plans.item_unit import Obsolete, live_inputs, unit_of
from bucketline.state.plans.plan import Item, ItemResult, ItemState, Plan
from bucketline.state.store.compact.append_compact import compact_append
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.compactor import compact_unit
from bucketline.state.store.engine.engine import GivenBack, Parts
from bucketline.state.store.engine.postpone_move import move_stages, real_counts
from bucketline.state.store.read.bucket_deletions import VectorFiles
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.commit_change import PlannedAt, commit_change
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.store.write.write_plan import ONE_WORKER, Workers

ITEMS = "bucketline.plan-items"
"""The snapshot property that holds the numbers of the items that the snapshot commits."""

_NOTHING_LEFT = "nothing was left to compact"
_LOOK_MS = 1_000


@dataclass(frozen=True, slots=True)
class BucketJob:
    """Everything that a task needs to carry out an item (one planned compaction of a bucket).

    `files` are the live files of the bucket in the snapshot with the id `based_on`, and `vector_files` are the files
    with the bucket's deletion vectors. `planned_ms` is the time at which this snapshot was read. If there is a file
    at the path `given_back`, the compactor has released the item: the work then raises GivenBack, and leaves no
    files.
    """

    access: BucketAccess
    item: Item
    unit: CompactUnit
    files: tuple[DataFileMeta, ...]
    vector_files: VectorFiles
    based_on: int
    planned_ms: int
    memory_bytes: int
    given_back: str | None = None

    @property
    def place(self) -> BucketId:
        return self.item.place

    def message(self) -> CommitMessage:
        """Carries out the compaction of the item, and returns the commit message of the item's bucket. Raises GivenBack
        if the item was released.
        """
        return do_item(self)


@dataclass(frozen=True, slots=True)
class MoveJob:
    """Everything that an engine needs to carry out an item (a planned compaction) that moves rows out of the postpone
    bucket. The engine runs `stages`. If the compactor has released the item, the stages raise GivenBack.

    `based_on` is the id of the snapshot from which the stages were made, and `planned_ms` is the time at which this
    snapshot was read.
    """

    item: Item
    stages: Stages[Parts]
    based_on: int
    planned_ms: int


ItemJob = BucketJob | MoveJob
Made = tuple[CommitMessage, ...]
"""The commit messages that a job has made for the buckets that it worked on."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A commit that failed, and the reason. The table is unchanged, and the files that the tasks have written are
    removed.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A commit that may or may not have been published, and the reason. A later look at the snapshots shows whether it
    was published.
    """

    reason: str


class ItemWork(Protocol):
    """The work on the items (compactions of one bucket each) of the plans of a table, in several methods. A compactor
    decides when each method is called.
    """

    def refresh(self) -> None:
        """Goes to the newest snapshot of the table. Raises BucketlineError."""
        ...

    def look(self, plan: Plan, item: Item, given_back: str | None = None) -> ItemJob | ItemResult:
        """Looks up the current files of an item of a compaction plan. Returns an ItemJob, which a task carries out. If
        there is nothing to do, for example because the files were compacted already, returns the item's result.

        `given_back` is a path: as soon as a file exists there, the item was released, and the job ends early. Raises
        BucketlineError.
        """
        ...

    def commit(
        self, plan: Plan, jobs: Sequence[ItemJob], made: Sequence[Made]
    ) -> Sequence[ItemResult] | Lost | Unclear:
        """Commits the results of compactions that were planned as items of one plan, in one snapshot. `made` has what
        each of `jobs` has made. Returns the result of each item, or how the commit failed. Raises BucketlineError if
        nothing was published.
        """
        ...

    def discard(self, made: Made) -> None:
        """Removes the files of commit messages that will not be committed."""
        ...


class TableWork:
    """Works on the items (compactions of one bucket each) of the plans of one table, at the newest snapshot of the last
    `refresh`. `workers` says how many tasks share a job that moves rows.
    """

    def __init__(self, at: TableAt, *, workers: Workers = ONE_WORKER) -> None:
        self._at, self._workers = at, workers

    def refresh(self) -> None:
        self._at = self._at.refreshed()

    def look(self, plan: Plan, item: Item, given_back: str | None = None) -> ItemJob | ItemResult:
        at, view = self._at, self._at.view
        vectors, files = at.deletion_entries().get(item.place, ()), view.files(item.place)
        total = real_counts(view).get(item.partition, 0) if item.moves_rows else view.total_of_bucket(item.place)
        inputs = live_inputs(item, files, total_buckets=total, vector_files=[e.file_name for e in vectors])
        if isinstance(inputs, Obsolete):
            return self._closed(plan, item, inputs)
        if item.moves_rows:
            return self._move(item, inputs, given_back)
        access = self._access()
        unit = _unit(access, item, files, inputs)
        if isinstance(unit, Obsolete):
            return self._closed(plan, item, unit)
        return BucketJob(
            access=access,
            item=item,
            unit=unit,
            files=files,
            vector_files=vectors,
            based_on=at.snapshot_id,
            planned_ms=at.planned_ms,
            memory_bytes=at.plan.sink.compact_memory_bytes,
            given_back=given_back,
        )

    def _move(self, item: Item, files: Sequence[DataFileMeta], given_back: str | None) -> MoveJob:
        """Returns the job for an item (a planned compaction) of a postpone bucket: it moves only the rows of the item's
        input files. Rows that were written later wait for another item.
        """
        at, watch = self._at, GivenBackWatch(self._access(), item.number, given_back)
        trigger = CompactTrigger.FULL if item.output_level else CompactTrigger.MINOR
        write = replace(at.plan.bucket_write(trigger), watch=watch)
        stages = move_stages(
            at, write, {item.partition: files}, self._workers, lambda partition: partition == item.partition
        )
        return MoveJob(item, stages, at.snapshot_id, at.planned_ms)

    def _access(self) -> BucketAccess:
        return self._at.plan.access

    def _closed(self, plan: Plan, item: Item, obsolete: Obsolete) -> ItemResult:
        made = self._own_commit(plan, item) if obsolete.inputs_gone else None
        return (
            ItemResult(ItemState.OBSOLETE, None, obsolete.reason) if made is None else ItemResult(ItemState.DONE, made)
        )

    def commit(
        self, plan: Plan, jobs: Sequence[ItemJob], made: Sequence[Made]
    ) -> Sequence[ItemResult] | Lost | Unclear:
        empty = [all(m.is_empty for m in messages) for messages in made]
        numbers = [j.item.number for j, is_empty in zip(jobs, empty, strict=True) if not is_empty]
        if not numbers:
            return [ItemResult(ItemState.OBSOLETE, None, _NOTHING_LEFT)] * len(jobs)
        change = Compact(tuple(m for messages in made for m in messages))
        author = Author(plan.user, numbers[0], {ITEMS: ",".join(map(str, numbers))})
        committed = commit_change(self._at, change, author, PlannedAt(jobs[0].based_on, jobs[0].planned_ms))
        match committed.dropped:
            case None:
                self._at = self._at.after(committed)
                result = ItemResult(ItemState.DONE, committed.snapshots[-1].id)
                return [
                    ItemResult(ItemState.OBSOLETE, None, _NOTHING_LEFT) if is_empty else result for is_empty in empty
                ]
            case Conflict() as lost:
                return Lost(f"{lost.rule}: {lost.message}")
            case Unknown() as unknown:
                return Unclear(unknown.error().message)
            case error:
                raise error

    def discard(self, made: Made) -> None:
        self._at.discard(made)

    def _own_commit(self, plan: Plan, item: Item) -> int | None:
        """Returns the id of the snapshot by which the item (the compaction of one bucket) was committed, by this
        process or another; None if no such snapshot is found.
        """
        at = self._at
        newest = at.view.snapshot
        user = commit_user(at.plan.schema.settings.commit.user_prefix, plan.user)
        store = at.table.snapshot_store
        for snapshot in store.newest_first(newest or 0, plan.base_snapshot):
            # A prefix of commit users may have been set or removed since.
            ours = snapshot.commit_user == user or snapshot.commit_user.endswith(plan.user)
            if ours and str(item.number) in snapshot.properties.get(ITEMS, "").split(","):
                return snapshot.id
        return None


def do_item(job: BucketJob) -> CommitMessage:
    """Carries out an item (a planned compaction of a bucket), and returns the commit message. The message is empty if
    there is nothing left to do. After an error all new files are removed.
    """
    access, item = job.access, job.item
    watch = GivenBackWatch(access, item.number, job.given_back, access.world.stopwatch.elapsed_ms())
    if not access.schema.primary_keys:
        result = compact_append(
            access, item.place, job.unit.files, full=True, vector_files=job.vector_files, watch=watch
        )
    else:
        result = compact_unit(
            access,
            item.place,
            job.files,
            job.unit,
            memory_bytes=job.memory_bytes,
            vector_files=job.vector_files,
            watch=watch,
        )
    return result.message(item.place, item.total_buckets)


@dataclass(slots=True)
class GivenBackWatch:
    """Ends the work of a task on an item of a plan (the compaction of one bucket) if the item was released. At
    intervals, a call of this object checks whether there is a file at `path`; this file says that the item was
    released. If the storage does not answer, the item counts as not released.

    Each task has its own copy of the watch, and the first interval begins with the first call of the copy.
    """

    access: BucketAccess
    number: int
    path: str | None = None
    looked_ms: int | None = None

    def __call__(self) -> None:
        """Raises GivenBack if the item was released."""
        now_ms = self.access.world.stopwatch.elapsed_ms()
        if self.looked_ms is None:
            self.looked_ms = now_ms
        if self.path is None or now_ms - self.looked_ms < _LOOK_MS:
            return
        self.looked_ms = now_ms
        with suppress(StorageError):
            if self.access.files.io.exists(self.path):
                raise GivenBack(f"item {self.number} was released while it was worked on")


def _unit(
    access: BucketAccess, item: Item, files: Sequence[DataFileMeta], inputs: Sequence[DataFileMeta]
) -> CompactUnit | Obsolete:
    if not access.schema.primary_keys:
        return CompactUnit(tuple(inputs), item.output_level)
    return unit_of(item, inputs, access.levels(files), access.compact_options)
