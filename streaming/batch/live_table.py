"""The tables this process streams into: one open write session a writer, kept from batch to batch.

A batch then reads the snapshots since the last one and nothing else. The sink itself stays a frozen value; what it
needs between batches is found here by table path, commit user and job options.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

from bucketline.state.commit.replay import newest_of_user, writer_of
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_PAUSE, SYSTEM_RANDOM, Clock, Pause, Random
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.expiry import move_tag
from bucketline.state.store.maintenance.expiry_notes import MARKER_TAG, seen_up_to
from bucketline.state.store.write.visibility import Budget, FileNames, Waits, all_on_level0, what_waits
from bucketline.state.store.write.write_session import WriteSession
from bucketline.streaming.batch.batch_counts import counts_in
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.recover import END_OFFSETS, KEY_SHARES, CheckpointMismatchError, UserHistory


class _Turn:
    """One batch of a writer at a time, whatever the options and the spelling of the path it is called with."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.last_call: tuple[str, int] | None = None


class LiveTable:
    """A write session, what its writer has committed and still owes, and its turn, which lets one batch in at a time.

    `hidden` are files on level 0 that readers skip and that this writer is to compact; None until `take_over`. A lost
    compaction of all buckets, and lost postponed rows, are owed as well (`owes_full`, `owes_postponed`).
    """

    def __init__(
        self,
        path: str,
        options: Mapping[str, str],
        user: str,
        storage: Mapping[str, str] | None = None,
        *,
        table: TableHandle | None = None,
    ) -> None:
        self.session = WriteSession(path, options, table=table, storage=storage)
        self.hidden: FileNames | None = None
        self.owes_full = False
        self.owes_postponed = False
        self.clock: Clock = SYSTEM_CLOCK
        self.random: Random = SYSTEM_RANDOM
        self.pause: Pause = SYSTEM_PAUSE
        self.user = user
        self.rows_a_partition = 0
        self.touched: frozenset[bytes] | None = None
        self.told_shares = False
        self.rejected_in_all: int | None = None
        self._commits: list[Snapshot] = []
        self._seen_id = 0
        with _turns_lock:
            self._turn = _turns.setdefault((self.session.table.path, user), _Turn())

    @contextmanager
    def batch(self, identity: BatchIdentity) -> Iterator[None]:
        """Holds the table for one batch. Raises UnsupportedTableError for a second call with the same batch."""
        if not self._turn.lock.acquire(blocking=False):
            raise UnsupportedTableError(
                f"two calls of the sink for {self.session.table.path} run at the same time under one name; "
                "give each its own sink_id",
                user=self.user,
            )
        try:
            call = None if identity.run_id is None else (identity.run_id, identity.batch_id)
            if call is not None and call == self._turn.last_call:
                raise UnsupportedTableError(
                    f"the sink was called twice for {self.session.table.path} in batch {identity.batch_id}, and the "
                    "second call would be taken for a replay of the first; join the data (union), or give each sink "
                    "its own sink_id",
                    user=self.user,
                    batch_id=identity.batch_id,
                )
            yield
            self._turn.last_call = call
        finally:
            self._turn.lock.release()

    def take_over(self) -> None:
        """Owes, from its start, whatever waits on level 0 already: what this writer left before it ended is among it,
        and nothing on level 0 says who has written it. Call it after the session was refreshed.
        """
        if self.hidden is None:
            waits = what_waits(self.session.plan.schema) is not Waits.NOTHING and self.session.plan.compacts
            self.hidden = all_on_level0(self.session.view) if waits else {}

    def budget(self) -> Budget:
        """The time for making rows visible, from now on."""
        sink = self.session.plan.sink
        return Budget(sink.visibility_timeout_ms, clock=self.clock, random=self.random, pause=self.pause)

    def history(self) -> UserHistory:
        """What the table knows of this writer; reads the snapshots that came since the last call.

        Call it after the session was refreshed.
        """
        latest = self.session.view.snapshot
        store = self.session.table.snapshot_store
        if self._commits and self._is_undone(self._commits[0], latest):
            self._commits, self._seen_id = [], 0
        found: list[Snapshot] = []
        own = writer_of(self.user)
        walked_to = (latest.id if latest else 0) + 1
        for snapshot in store.newest_first(latest.id if latest else 0, self._seen_id):
            walked_to = snapshot.id
            if writer_of(snapshot.commit_user) != own:
                continue
            found.append(snapshot)
            if snapshot.commit_kind is not CommitKind.COMPACT:
                break
        self._seen_id = latest.id if latest else 0
        self._commits = of_newest_batch(found, self._commits)
        wrote = any(s.commit_kind is not CommitKind.COMPACT for s in self._commits)
        marker = None if wrote else self._marker()
        complete = wrote or walked_to == 1 or (marker is not None and self._seen(marker) >= walked_to - 1)
        others = () if self._commits or marker else self._others()
        return UserHistory(tuple(self._commits), marker, complete, others)

    def check_rolled_back(self, mismatch: CheckpointMismatchError) -> None:
        """Returns if the batches that the table lacks were rolled back, have expired, or were another table's.

        Call it after `decide` has refused a batch. Raises MissingSnapshotError when their snapshots are gone.
        """
        if not mismatch.fields.get("history_complete"):
            return
        table, newest = self.session.table, self.session.view.snapshot
        # A table that was made anew has no manifests.
        if newest is not None or table.io.list_names(f"{table.path}/{MANIFEST_DIR}"):
            done = f"the checkpoint, at batch {mismatch.fields['checkpoint_batch']},"
            table.snapshot_store.check_rolled_back(None, done, newest)

    def key_shares(self) -> int | None:
        """Among how many tasks the writer's newest batch shared the keys; None when it does not say.

        Call it after `history`.
        """
        marker = None if self._commits else self._marker()
        known = (*self._commits, *([] if marker is None else [marker]))
        told = [s.properties[KEY_SHARES] for s in known if KEY_SHARES in s.properties]
        return int(told[0]) if told and told[0].isdigit() else None

    def rejected_before(self) -> int:
        """How many records of the writer's batches were rejected, as far as its snapshots say.

        Call it after `history`.
        """
        if self.rejected_in_all is None:
            marker = None if self._commits else self._marker()
            known = (*self._commits, *([] if marker is None else [marker]))
            return max((counts_in(s.properties).rejected_in_all for s in known), default=0)
        return self.rejected_in_all

    def _is_undone(self, commit: Snapshot, latest: Snapshot | None) -> bool:
        """Whether the table was rolled back behind a commit; one that has merely expired is older than the newest."""
        if latest is None or latest.id < commit.id:
            return True
        return self.session.table.snapshot_store.get(commit.id) not in (None, commit)

    def _others(self) -> tuple[Snapshot, ...]:
        """The newest visible snapshot of each other streaming query; asked once, for a query's first batch."""
        latest = self.session.view.snapshot
        newest: dict[str, Snapshot] = {}
        for snapshot in self.session.table.snapshot_store.newest_first(latest.id if latest else 0):
            writer = writer_of(snapshot.commit_user)
            if END_OFFSETS not in snapshot.properties or writer == writer_of(self.user):
                continue
            if newest.setdefault(writer, snapshot).commit_kind is CommitKind.COMPACT:
                newest[writer] = snapshot
        return tuple(newest.values())

    def mark(self, snapshot: Snapshot) -> None:
        """Moves the writer's tag to a snapshot of its own, unless another run of it is further on already."""
        table = self.session.table
        move_tag(table.io, table.path, self.session.plan.schema, MARKER_TAG + self.user, snapshot)

    def mark_newest(self) -> None:
        """Moves the tag to the writer's newest snapshot in the history, if it is at an older one."""
        marker = self._marker()
        known = of_newest_batch(self._commits, [] if marker is None else [marker])
        if known and (marker is None or marker.id < known[0].id):
            self.mark(known[0])

    def _seen(self, marker: Snapshot) -> int:
        """The snapshot id up to which it is known that none after the marker is this writer's."""
        table = self.session.table
        return seen_up_to(table.io, table.path, self.user, marker)

    def _marker(self) -> Snapshot | None:
        tag = Tags(self.session.table.io, self.session.table.path).get(MARKER_TAG + self.user)
        return newest_of_user([tag.snapshot], self.user) if tag is not None else None


def of_newest_batch(found: Sequence[Snapshot], known: Sequence[Snapshot]) -> list[Snapshot]:
    """Those of a writer's snapshots that are of its newest batch; `found` are the newest, `known` those before.

    The newest rows say which batch that is: a compaction may be published after a later batch. Where only compactions
    are found, rows may have expired, and the highest batch id says it.
    """
    rows = [s for s in found if s.commit_kind is not CommitKind.COMPACT]
    both = [*found, *known]
    newest = rows[0].commit_identifier if rows else max((s.commit_identifier for s in both), default=None)
    return [s for s in both if s.commit_identifier == newest]


_Options = tuple[tuple[str, str], ...]
_turns: dict[tuple[str, str], _Turn] = {}
_turns_lock = Lock()
_tables: dict[tuple[str, str, _Options, _Options], LiveTable] = {}
_tables_lock = Lock()


def live_table(
    path: str,
    options: Mapping[str, str],
    user: str,
    storage: Mapping[str, str] | None = None,
    *,
    table: TableHandle | None = None,
) -> LiveTable:
    """The open table of a writer, opened now if it is not, by `table` where one is given.

    Raises what WriteSession raises.
    """
    key = (path, user, tuple(sorted(options.items())), tuple(sorted((storage or {}).items())))
    with _tables_lock:
        found = _tables.get(key)
        if found is None:
            found = _tables[key] = LiveTable(path, options, user, storage, table=table)
        return found


def forget_table(path: str, user: str) -> None:
    """Drops what is held of a table, so that the next batch starts from storage: after an error nothing is assumed."""
    with _tables_lock:
        for key in [k for k in _tables if k[:2] == (path, user)]:
            del _tables[key]
