"""One item's work on a table: is it still to be done, doing it in one bucket, and committing it.

A compaction is planned on a snapshot and done on a newer one: its input files are the same, what lies beside them may
have changed. So deletes, deletion vectors and the levels that are looked up are taken as they are when it is done, and
the commit is checked from there on.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Unknown
from bucketline.state.commit.replay import commit_user
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS, SYSTEM_STOPWATCH, Clock, IdSource, Stopwatch
from bucketline.state.errors import StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import CommitKind
from bucketline.state.lsm.tree.pick import CompactUnit
from bucketline.state.plans.item_unit import Obsolete, live_inputs, unit_of
from bucketline.state.plans.plan import Item, ItemState, Plan, Result
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.commit.committer import Committed, Committer
from bucketline.state.store.compact.append_compact import compact_append
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.compact.compactor import compact_unit
from bucketline.state.store.read.bucket_deletions import VectorFiles
from bucketline.state.store.write.write_session import WriteSession

ITEMS = "bucketline.plan-items"
"""Snapshot property: the numbers of the items that it is the commit of."""

_NOTHING_LEFT = "nothing was left to compact"
_LOOK_MS = 1_000


class GivenBack(Exception):
    """The item was given back while it was worked on: nobody waits for the work any more."""


@dataclass(frozen=True, slots=True)
class BucketJob:
    """A job of an engine: what a task needs to do an item.

    `files` are the live files of the bucket when it was looked at, `vector_files` those with its deletion vectors.
    `based_on` is the snapshot that was looked at, `planned_ms` when. `given_back` is the path of a file that is there
    once the item was given back: the work then ends with GivenBack, and leaves nothing behind.
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
        """Does the item; raises GivenBack."""
        return do_item(self)


@dataclass(frozen=True, slots=True)
class Lost:
    """The commit did not come through, for this reason. The table is as it was; what the tasks wrote is removed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nobody knows whether the commit came through; whoever looks later does."""

    reason: str


class ItemWork(Protocol):
    """How items are done; a compactor decides when."""

    def refresh(self) -> None:
        """Goes to the newest snapshot. Raises BucketlineError."""
        ...

    def look(self, plan: Plan, item: Item) -> BucketJob | Result:
        """What is to be done for an item, or its result where nothing is. Raises BucketlineError."""
        ...

    def until(self, job: BucketJob, given_back: str) -> BucketJob:
        """The job, which ends once there is a file at that path."""
        ...

    def commit(
        self, plan: Plan, jobs: Sequence[BucketJob], messages: Sequence[CommitMessage]
    ) -> Sequence[Result] | Lost | Unclear:
        """Commits what was done for items of a plan, in one snapshot. Raises BucketlineError where nothing was
        published."""
        ...

    def discard(self, job: BucketJob, message: CommitMessage) -> None:
        """Removes what was done and will not be committed."""
        ...


class TableWork:
    """Items of one table, by its open session."""

    def __init__(self, session: WriteSession, *, clock: Clock = SYSTEM_CLOCK, ids: IdSource = SYSTEM_IDS) -> None:
        self._session, self._clock, self._ids = session, clock, ids
        self._planned_ms = clock.now_ms()

    def refresh(self) -> None:
        self._planned_ms = self._clock.now_ms()
        self._session.refresh()

    def look(self, plan: Plan, item: Item) -> BucketJob | Result:
        session = self._session
        snapshot = session.view.snapshot
        view, vectors = session.view, session.deletion_entries().get(item.place, ())
        files = view.files(item.place)
        found = live_inputs(
            item,
            files,
            total_buckets=view.total_of_bucket(item.place),
            vector_files=[e.file_name for e in vectors],
        )
        access = BucketAccess(session.table.uri, session.plan.schema, self._clock, self._ids)
        unit = found if isinstance(found, Obsolete) else _unit(access, item, files, found)
        if isinstance(unit, Obsolete):
            made = self._own_commit(plan, item) if unit.inputs_gone else None
            return Result(ItemState.OBSOLETE, None, unit.reason) if made is None else Result(ItemState.DONE, made)
        return BucketJob(
            access=access,
            item=item,
            unit=unit,
            files=files,
            vector_files=vectors,
            based_on=0 if snapshot is None else snapshot.id,
            planned_ms=self._planned_ms,
            memory_bytes=session.plan.sink.compact_memory_bytes,
        )

    def until(self, job: BucketJob, given_back: str) -> BucketJob:
        return replace(job, given_back=given_back)

    def commit(
        self, plan: Plan, jobs: Sequence[BucketJob], messages: Sequence[CommitMessage]
    ) -> Sequence[Result] | Lost | Unclear:
        numbers = [j.item.number for j, m in zip(jobs, messages, strict=True) if not m.is_empty]
        if not numbers:
            return [Result(ItemState.OBSOLETE, None, _NOTHING_LEFT)] * len(jobs)
        table = self._session.table
        committer = Committer(table.io, table.path, self._session.plan.schema, clock=self._clock, ids=self._ids)
        done = committer.commit(
            messages,
            user=plan.user,
            identifier=numbers[0],
            properties={ITEMS: ",".join(map(str, numbers))},
            kind=CommitKind.COMPACT,
            based_on=jobs[0].based_on,
            view=self._session.follower,
            planned_ms=jobs[0].planned_ms,
        )
        if isinstance(done, Committed):
            made = Result(ItemState.DONE, done.snapshots[-1].id)
            return [Result(ItemState.OBSOLETE, None, _NOTHING_LEFT) if m.is_empty else made for m in messages]
        if isinstance(done, Conflict):
            return Lost(f"{done.rule}: {done.message}")
        assert isinstance(done, Unknown)
        return Unclear(done.error().message)

    def discard(self, job: BucketJob, message: CommitMessage) -> None:
        self._session.discard([message])

    def _own_commit(self, plan: Plan, item: Item) -> int | None:
        """The snapshot that the item was committed with, by anybody; None where none can be seen."""
        session = self._session
        newest = session.view.snapshot
        user = commit_user(session.plan.schema.settings.commit.user_prefix, plan.user)
        store = session.table.snapshot_store
        for snapshot in store.newest_first(newest or 0, plan.base_snapshot):
            # A prefix may have been set or removed since.
            ours = snapshot.commit_user == user or snapshot.commit_user.endswith(plan.user)
            if ours and str(item.number) in snapshot.properties.get(ITEMS, "").split(","):
                return snapshot.id
        return None


def do_item(job: BucketJob, *, stopwatch: Stopwatch = SYSTEM_STOPWATCH) -> CommitMessage:
    """Compacts an item's bucket; an empty message where nothing is left to do. An error leaves no new files behind."""
    access, item, watch = job.access, job.item, _Watch(job, stopwatch)
    if not access.schema.primary_keys:
        done = compact_append(access, item.place, job.unit.files, full=True, vector_files=job.vector_files, watch=watch)
    else:
        done = compact_unit(
            access,
            item.place,
            job.files,
            job.unit,
            memory_bytes=job.memory_bytes,
            vector_files=job.vector_files,
            watch=watch,
        )
    return done.message(item.place, item.total_buckets)


@dataclass(slots=True)
class _Watch:
    """Looks now and then whether the item was given back; a storage that does not answer says nothing of it."""

    job: BucketJob
    stopwatch: Stopwatch
    looked_ms: int = 0

    def __post_init__(self) -> None:
        self.looked_ms = self.stopwatch.elapsed_ms()

    def __call__(self) -> None:
        path, now_ms = self.job.given_back, self.stopwatch.elapsed_ms()
        if path is None or now_ms - self.looked_ms < _LOOK_MS:
            return
        self.looked_ms = now_ms
        with suppress(StorageError):
            if self.job.access.files.io.exists(path):
                raise GivenBack(f"item {self.job.item.number} was given back while it was worked on")


def _unit(
    access: BucketAccess, item: Item, files: Sequence[DataFileMeta], inputs: Sequence[DataFileMeta]
) -> CompactUnit | Obsolete:
    if not access.schema.primary_keys:
        return CompactUnit(tuple(inputs), item.output_level)
    return unit_of(item, inputs, access.levels(files), access.compact_options)
