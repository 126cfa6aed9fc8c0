"""The upkeep that a writer does after its commits, as the table's options say: it creates tags, expires snapshots and
partitions, and marks partitions as done.

A failure of upkeep does no harm: the rows are in the table, and upkeep after a later commit does the work. Source:
Paimon 2.0 TableCommitImpl.maintain, NormalPartitionExpire, PartitionMarkDoneListener.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bucketline.conf.errors import BucketlineError
from bucketline.conf.table.choices import TagCreation
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.maintenance.auto_tags import Tagged, TagWork, create_tags, tag_batch
from bucketline.state.store.maintenance.expiry import maybe_expire
from bucketline.state.store.maintenance.partition_expiry import expire_partitions
from bucketline.state.store.maintenance.partition_marks import PendingMarks
from bucketline.state.store.write.table_at import TableAt

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Upkept:
    """What upkeep has done: the number of expired snapshots, the tags created, the partitions dropped and the
    partitions marked as done.
    """

    expired_snapshots: int = 0
    tags: tuple[str, ...] = ()
    dropped_partitions: tuple[str, ...] = ()
    done_partitions: tuple[str, ...] = ()

    def followed_by(self, later: "Upkept") -> "Upkept":
        """Returns one result for this maintenance and a later one: the number of expired snapshots is the sum, and the
        tags and partitions of the later result come after those of this result.
        """
        return Upkept(
            self.expired_snapshots + later.expired_snapshots,
            (*self.tags, *later.tags),
            (*self.dropped_partitions, *later.dropped_partitions),
            (*self.done_partitions, *later.done_partitions),
        )


class Upkeep:
    """Maintains one table for one writer: expires snapshots and partitions, creates tags, and marks partitions as done.

    A stream keeps one `Upkeep` from commit to commit; each batch write makes a new one. A stream first checks for
    expired partitions at a random moment within `partition.expiration-check-interval`. If each of many short streams
    waited for the whole interval, no stream would ever check.
    """

    def __init__(self) -> None:
        self._checked_ms: int | None = None
        self._tagged: Tagged | None = None
        self._marks: PendingMarks | None = None

    def after_commit(self, at: TableAt, messages: Sequence[CommitMessage], made: Sequence[Snapshot]) -> Upkept:
        """Maintains the table after a commit of a stream, except that no partitions are marked as done. Returns what
        was done. `made` are the snapshots of the commit.
        """
        self._note(at, messages)
        return self._follow_rules(at, made[-1] if made else None, forced=False)

    def after_batch(
        self,
        at: TableAt,
        messages: Sequence[CommitMessage],
        made: Sequence[Snapshot],
        *,
        forced: bool = False,
    ) -> Upkept:
        """Maintains the table after a batch write, and returns what was done. `made` are the snapshots of the write.
        `forced` is for a compaction, which also maintains `write-only` tables.
        """
        if not made:
            return Upkept()
        settings = at.plan.schema.settings
        tags = self._create_tags(at, made[-1], forced=forced)
        checks = settings.expiry.in_batch_writes or settings.expiry.interval_ms == 0
        due = checks and self._expires_partitions(at, forced=forced)
        dropped = self._drop_partitions(at) if due else ()
        expired = self._expire(at, None if dropped else made[-1], forced=forced)
        marked: list[str] = []
        if settings.expiry.done_at_end and messages:
            marks = PendingMarks(at, resumes=False)
            marks.touch(messages)
            marks.forget(at.plan.schema, dropped)
            with logged("marking partitions as done"):
                marked = marks.mark(at, at_end=True)
        if settings.tags.creation is TagCreation.BATCH and not settings.compaction.write_only:
            with logged("creating a tag"):
                newest = at.followed().view.snapshot
                if newest is not None:
                    tags = (*tags, tag_batch(self._tag_work(at), newest))
        return Upkept(expired, tags, dropped, tuple(marked))

    def after_compaction(self, at: TableAt, newest: Snapshot) -> Upkept:
        """Maintains the table after compactions from a plan, also if the table is `write-only`. Returns what
        was done.
        """
        return self._follow_rules(at, newest, forced=True)

    def mark_done(self, at: TableAt, *, at_end: bool = False, hidden: Collection[bytes] = ()) -> tuple[str, ...]:
        """Marks the partitions that are done, for example by a file `_SUCCESS`, and returns the names of their folders.
        If `at_end` is true, the writer has ended. `hidden` are partitions with rows that readers do not see yet; they
        are not marked.
        """
        marked: list[str] = []
        with logged("marking partitions as done"):
            self._note(at, ())
            if self._marks is not None:
                marked = self._marks.mark(at, at_end=at_end, hidden=hidden)
        return tuple(marked)

    def _follow_rules(self, at: TableAt, newest: Snapshot | None, *, forced: bool) -> Upkept:
        tags = self._create_tags(at, newest, forced=forced)
        dropped = self._drop_partitions(at) if self._partitions_are_due(at, forced=forced) else ()
        return Upkept(self._expire(at, None if dropped else newest, forced=forced), tags, dropped)

    def _note(self, at: TableAt, messages: Sequence[CommitMessage]) -> None:
        expiry = at.plan.schema.settings.expiry
        if expiry.idle_to_done_ms is None and not expiry.done_at_end:
            return
        with logged("looking for partitions that are not marked as done"):
            if self._marks is None:
                self._marks = PendingMarks(at, resumes=True)
            self._marks.touch(messages)

    def _partitions_are_due(self, at: TableAt, *, forced: bool) -> bool:
        if not self._expires_partitions(at, forced=forced):
            return False
        interval_ms, now = at.plan.schema.settings.expiry.interval_ms, at.table.world.clock.now_ms()
        if self._checked_ms is None:
            self._checked_ms = now - int(interval_ms * at.table.world.random.fraction())
        if interval_ms and now <= self._checked_ms + interval_ms:
            return False
        self._checked_ms = now
        return True

    def _expires_partitions(self, at: TableAt, *, forced: bool = False) -> bool:
        settings = at.plan.schema.settings
        return settings.expiry.partitions_ms is not None and (forced or not settings.compaction.write_only)

    def _drop_partitions(self, at: TableAt) -> tuple[str, ...]:
        dropped: tuple[str, ...] = ()
        with logged("dropping expired partitions"):
            dropped = expire_partitions(at, user=at.table.world.ids.new_uuid())
        if dropped and self._marks is not None:
            self._marks.forget(at.plan.schema, dropped)
        return dropped

    def _create_tags(self, at: TableAt, newest: Snapshot | None, *, forced: bool = False) -> tuple[str, ...]:
        work = self._tag_work(at)
        settings = at.plan.schema.settings
        if newest is None or not work.plan.creates or (settings.compaction.write_only and not forced):
            return ()
        made: list[str] = []
        with logged("creating tags"):
            self._tagged, made = create_tags(work, newest, self._tagged)
        return tuple(made)

    def _tag_work(self, at: TableAt) -> TagWork:
        table = at.table
        return TagWork(table.io, table.path, table.metadata_path, at.plan.schema, table.world)

    def _expire(self, at: TableAt, newest: Snapshot | None, *, forced: bool = False) -> int:
        table, expired = at.table, 0
        newest_id = None if newest is None else newest.id
        with logged("expiring snapshots"):
            expired = maybe_expire(
                table.io,
                table.path,
                at.plan.schema,
                table.world,
                newest_id=newest_id,
                forced=forced,
                root=table.metadata_path,
            )
        return expired


@contextmanager
def logged(doing: str) -> Iterator[None]:
    """Runs a `with` block. If the block raises a BucketlineError, logs the error as a warning, and goes on. `doing`
    names the work of the block, for the warning.
    """
    try:
        yield
    except BucketlineError as e:
        _LOG.warning("%s failed, but the commit itself has succeeded: %s", doing, e)
