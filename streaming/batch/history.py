"""Reads the history of a stream that writes to a table, from the table's snapshots and the stream's tag."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bucketline.state.commit.replay import MARKER_TAG, newest_of_user, writer_of
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.expiry import move_tag
from bucketline.state.store.maintenance.expiry_notes import seen_up_to
from bucketline.state.store.write.table_at import TableAt
from bucketline.streaming.batch.batch_counts import counts_in
from bucketline.streaming.batch.recover import (
    END_OFFSETS,
    KEY_SHARES,
    SHARED_BUCKETS,
    SOURCE_TABLES,
    TABLE_MARK,
    CheckpointMismatchError,
    UserHistory,
)
from bucketline.streaming.batch.target import StreamState, Target


def read_history(target: Target) -> tuple[Target, UserHistory]:
    """Reads which snapshots the stream has committed to the target (the table that the stream writes), up to the
    target's newest snapshot. Returns the target and this history.

    The returned target remembers what was read, so that the next call reads only newer snapshots.
    """
    at, state = target.at, target.state
    latest, store = at.view.snapshot, at.table.snapshot_store
    if state.commits and _is_undone(at, state.commits[0]):
        state = replace(state, commits=(), seen_id=0, is_complete=False)
    is_running = state.seen_id > 0
    newer: list[Snapshot] = []
    walked: list[Snapshot] = []
    own = writer_of(target.user)
    newest_id = latest.id if latest else 0
    walked_to = newest_id + 1
    for snapshot in store.newest_first(latest or 0, state.seen_id):
        walked_to = snapshot.id
        if writer_of(snapshot.commit_user) != own:
            if END_OFFSETS in snapshot.properties:
                walked.append(snapshot)
            continue
        newer.append(snapshot)
        if snapshot.commit_kind is not CommitKind.COMPACT:
            break
    has_rows = any(s.commit_kind is not CommitKind.COMPACT for s in newer)
    # Snapshots of this stream that came after the last call may have expired; the stream's tag keeps the newest one.
    known = has_rows or (state.is_complete and walked_to <= state.seen_id + 1)
    commits = tuple(of_newest_batch(newer, state.commits))
    marker = None if known else _marker(target)
    if marker is not None and all(s.id < marker.id for s in commits):
        commits = (marker,)
    complete = known or walked_to == 1 or (marker is not None and _seen(target, marker) >= walked_to - 1)
    newest = max((s.id for s in (*commits, *([marker] if marker else []))), default=None)
    since = tuple(s for s in walked if s.commit_kind is not CommitKind.COMPACT)
    others: tuple[Snapshot, ...] = ()
    all_walked = None if is_running else walked
    if newest is None:
        others = other_queries(target, all_walked)
    elif not known:
        since = tuple(s for s in other_queries(target, all_walked) if s.id > newest)
    history = UserHistory(commits, marker, complete, others, since, since_is_whole=known, is_running=is_running)
    state = replace(
        state,
        commits=commits,
        seen_id=newest_id,
        is_complete=complete,
        key_shares=key_shares(history),
        source_tables=_source_tables(history) or state.source_tables,
        shares_buckets=state.shares_buckets or any(SHARED_BUCKETS in s.properties for s in _known(history)),
    )
    return target.with_state(_with_rejected(state, history)), history


def other_queries(target: Target, walked: Iterable[Snapshot] | None = None) -> tuple[Snapshot, ...]:
    """Returns the newest snapshot of each other streaming query. If the snapshots of a query have expired, the snapshot
    that its tag keeps is returned.

    `walked` holds all snapshots of other queries with offsets, newest first, if the caller has read them already.
    """
    latest, table = target.at.view.snapshot, target.at.table
    own = writer_of(target.user)
    newest: dict[str, Snapshot] = {}
    for snapshot in table.snapshot_store.newest_first(latest or 0) if walked is None else walked:
        writer = writer_of(snapshot.commit_user)
        if END_OFFSETS not in snapshot.properties or writer == own:
            continue
        if newest.setdefault(writer, snapshot).commit_kind is CommitKind.COMPACT:
            newest[writer] = snapshot
    tags = Tags(table.io, table.metadata_path)
    names = (n for n in tags.names() if n.startswith(MARKER_TAG) and writer_of(n.removeprefix(MARKER_TAG)) != own)
    for tag in map(tags.get, names):
        if tag is not None and END_OFFSETS in tag.snapshot.properties:
            newest.setdefault(writer_of(tag.snapshot.commit_user), tag.snapshot)
    return tuple(newest.values())


def key_shares(history: UserHistory) -> int | None:
    """Returns the number of tasks among which the stream's newest batch divided the keys; None if its snapshot does not
    say.
    """
    stated = [s.properties[KEY_SHARES] for s in _known(history) if KEY_SHARES in s.properties]
    return int(stated[0]) if stated and stated[0].isdigit() else None


def _source_tables(history: UserHistory) -> tuple[str, ...]:
    """Returns the names of the source's tables whose records the stream has written. The stream stores these names in
    its snapshots; they are read from the newest snapshot that has them.
    """
    said = next((s.properties[SOURCE_TABLES] for s in _known(history) if SOURCE_TABLES in s.properties), "")
    return tuple(said.split(TABLE_MARK)) if said else ()


def check_rolled_back(at: TableAt, mismatch: CheckpointMismatchError) -> None:
    """The checkpoint has batches that the table lacks. Checks the reason: returns if the batches were rolled back, have
    expired, or were written to another table. Raises MissingSnapshotError if the snapshots of these batches are missing
    for another reason.

    `mismatch` is the error that says which batch the checkpoint is at.
    """
    if not mismatch.history_complete:
        return
    table, newest = at.table, at.view.snapshot
    # A table that was dropped and created again has no manifests.
    if newest is not None or table.io.list_names(f"{table.path}/{MANIFEST_DIR}"):
        proof = f"the checkpoint, at batch {mismatch.checkpoint_batch},"
        table.snapshot_store.check_rolled_back(None, proof, newest)


def mark(target: Target, snapshot: Snapshot) -> None:
    """Moves the tag that marks the stream's newest snapshot to `snapshot`. If another run of the stream has moved the
    tag to a later snapshot already, the tag stays there.
    """
    table = target.at.table
    name, schema = MARKER_TAG + target.user, target.at.plan.schema
    move_tag(table.io, table.path, schema, name, snapshot, table.world, root=table.metadata_path)


def mark_newest(target: Target) -> None:
    """Moves the stream's tag to the stream's newest snapshot, if the tag is at an older snapshot or does not exist."""
    marker = _marker(target)
    known = of_newest_batch(target.state.commits, [] if marker is None else [marker])
    if known and (marker is None or marker.id < known[0].id):
        mark(target, known[0])


def of_newest_batch(newer: Sequence[Snapshot], known: Sequence[Snapshot]) -> list[Snapshot]:
    """Returns the snapshots of a writer's newest batch. `newer` are the writer's newest snapshots, and `known` are the
    writer's earlier snapshots.

    The newest snapshot with new rows decides which batch is the newest, because a compaction may be published after a
    later batch. If all snapshots are compactions, the snapshots with rows may have expired, and the highest batch id
    decides.
    """
    rows = [s for s in newer if s.commit_kind is not CommitKind.COMPACT]
    both = [*newer, *known]
    newest = rows[0].commit_identifier if rows else max((s.commit_identifier for s in both), default=None)
    return [s for s in both if s.commit_identifier == newest]


def _with_rejected(state: StreamState, history: UserHistory) -> StreamState:
    """Returns the state with the number of records that the stream has rejected so far. If the state does not have this
    number yet, it is taken from the properties of the snapshots.
    """
    if state.rejected_in_all is not None:
        return state
    counts = (counts_in(s.properties).rejected_in_all for s in _known(history))
    return replace(state, rejected_in_all=max(counts, default=0))


def _known(history: UserHistory) -> tuple[Snapshot, ...]:
    return history.commits if history.commits or history.marker is None else (history.marker,)


def _is_undone(at: TableAt, commit: Snapshot) -> bool:
    """Returns True if a rollback has removed the snapshot `commit` from the table. Returns False if the snapshot still
    exists. If the file of the snapshot is missing and the newest snapshot has a higher id, the snapshot has expired;
    then the result is False, too.
    """
    latest = at.view.snapshot
    if latest is None or latest.id < commit.id:
        return True
    published = latest if latest.id == commit.id else at.table.snapshot_store.get(commit.id)
    return published is not None and not published.is_same_as(commit)


def _seen(target: Target, marker: Snapshot) -> int:
    """Returns a snapshot id up to which all snapshots are accounted for: after `marker` (the stream's newest known
    snapshot, which its tag keeps) and up to this id, no snapshot is the stream's, even if some have expired.
    """
    table = target.at.table
    return seen_up_to(table.io, table.metadata_path, target.user, marker)


def _marker(target: Target) -> Snapshot | None:
    table = target.at.table
    tag = Tags(table.io, table.metadata_path).get(MARKER_TAG + target.user)
    return newest_of_user([tag.snapshot], target.user) if tag is not None else None
