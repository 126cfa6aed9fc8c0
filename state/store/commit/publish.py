"""Carries out a commit: written files become one snapshot, then compacted files become another.

The first snapshot is APPEND or OVERWRITE, the second COMPACT. `snapshot_commit` publishes each snapshot. If another
writer wins the race, the result is a Conflict. If the outcome is unclear, the result is Unknown, and no file is
deleted.

Source: Paimon 2.0 FileStoreCommitImpl.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bucketline.conf.errors import BucketlineError
from bucketline.conf.table.table_settings import CommitSettings
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Append, Change, Compact, PartitionTest, Replace
from bucketline.state.commit.changes import Changes, collect_changes
from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.file_age import is_fresh
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import CommitResult, Committed, Unknown
from bucketline.state.commit.replay import commit_user
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, Snapshot
from bucketline.state.store.catalog.owned import check_owned
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.commit_base import Bases
from bucketline.state.store.commit.commit_check import CommitChecks, PlannedOn, append_changes, compact_changes
from bucketline.state.store.commit.discard import discard_outputs, names_since
from bucketline.state.store.commit.snapshot_commit import CommitWork, SnapshotCommit, TableStores
from bucketline.state.store.read.bucket_deletions import VectorFiles
from bucketline.state.store.storage.local_io import LocalIO


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """The state on which work was planned: the snapshot `based_on` of a table.

    - `table`: the table, whose schema holds all options that apply to the work.
    - `based_on`: the id of the snapshot; 0 for the empty table; None if the work does not depend on snapshots that
      other writers have added.
    - `live`: the live files of the snapshot. With them, the snapshot's manifests need not be read.
    - `vectors`: the snapshot's deletion-vector files by bucket, if they are known. With them, a compaction succeeds
      even if the snapshot has expired meanwhile.
    - `planned_ms`: the time by the table's clock when the work began and this snapshot was the newest (None: now). If
      this was so long ago that a removal of orphan files could have removed new files of the work, these files are
      checked before a snapshot is published.
    """

    table: TableHandle
    live: LiveFiles | None = None
    based_on: int | None = None
    vectors: Mapping[BucketId, VectorFiles] | None = None
    planned_ms: int | None = None


def publish(base: Base, change: Change, author: Author) -> CommitResult:
    """Publishes the files of a change, and returns the result. The new files get a first snapshot, and the compactions
    of the same change get a second snapshot. A Conflict or Unknown says that the first snapshot was not published, or
    perhaps not. If only the second snapshot failed, the result is a Committed whose `dropped` has the reason.

    The commit user is made from the table's `commit.user-prefix` and the author's name. If a snapshot after the base
    (the snapshot on which the change was planned) has the same user and identifier, this commit was published before,
    and nothing is published again. The result is a Conflict if the index files of the changed buckets have changed
    since the base. For a Replace, the result is also a Conflict if any file of the replaced partitions has changed
    since the base.

    Raises SchemaMismatchError for new files outside the partitions to replace. Raises StorageError if the storage fails
    before anything could be published; the files that were written for the snapshots are removed. Raises
    UnsupportedTableError if the storage allows no safe commit.
    """
    table, settings = base.table, base.table.table_schema.settings.commit
    check_owned(table.table_schema, table.io, table.metadata_path)
    table.io.require_publish()
    author = replace(author, user=commit_user(settings.user_prefix, author.user))
    stores, changes = TableStores.of(table), collect_changes(change.messages)
    checks = CommitChecks(table.table_schema, stores.snapshots, stores.manifests)
    work = _work(base, change, author, stores)
    made: tuple[Snapshot, ...] = ()
    if not isinstance(change, Compact) and _leaves_snapshot(change, changes, author, settings):
        outcome = SnapshotCommit(stores, checks, append_changes(change, changes), work).publish()
        if isinstance(outcome, Committed):
            return replace(outcome, live=work.bases.live)
        if not isinstance(outcome, Snapshot):
            return outcome
        made = (outcome,)
    if not changes.has_compact:
        return Committed(made, live=work.bases.live)
    compaction = compact_changes(changes, _planned(base, change))
    return _compacted(
        SnapshotCommit(stores, checks, compaction, work.of_compaction(), made[0].id if made else None), change, made
    )


def _work(base: Base, change: Change, author: Author, stores: TableStores) -> CommitWork:
    now_ms, live = stores.world.clock.now_ms(), base.live
    planned_ms = now_ms if base.planned_ms is None else base.planned_ms
    is_seen = base.planned_ms is not None and live is not None and live.snapshot is not None
    # On a local disk asking is fast.
    quick = is_seen and is_fresh(now_ms - planned_ms) and not isinstance(stores.io, LocalIO)
    bases = Bases(stores.snapshots, stores.manifests, live, world=stores.world, is_fresh=quick)
    ignores_others = isinstance(change, Replace) and not change.moves_rows
    if ignores_others or base.based_on is None:
        return CommitWork(author, bases, None, planned_ms)
    planned_on = None if live is None else live.snapshot
    is_known = planned_on is not None and planned_on.id == base.based_on
    return CommitWork(author, bases, base.based_on, planned_ms, planned_on if is_known else None)


def _planned(base: Base, change: Change) -> PlannedOn | None:
    if not isinstance(change, Compact) or base.live is None or base.vectors is None:
        return None
    return PlannedOn(base.live, base.vectors)


def _leaves_snapshot(change: Append | Replace, changes: Changes, author: Author, settings: CommitSettings) -> bool:
    """Returns True if the commit publishes a snapshot for the written files. A commit without written files publishes
    such a snapshot too, unless the options or the caller say that empty commits are ignored. Compactions get another
    snapshot.

    Raises SchemaMismatchError for new files outside the partitions to replace.
    """
    if isinstance(change, Replace):
        _check_inside(change.target, changes)
        return True
    if changes.has_append or settings.force_snapshot:
        return True
    ignore_empty = settings.ignore_empty if change.ignore_empty is None else change.ignore_empty
    if ignore_empty is None:
        ignore_empty = author.identifier == BATCH_COMMIT_IDENTIFIER
    # A commit that only compacts records its identifier in the COMPACT snapshot, but this snapshot may be dropped.
    return not ignore_empty


def _compacted(commit: SnapshotCommit, change: Change, made: tuple[Snapshot, ...]) -> CommitResult:
    """Commits the compacted files of a write, and returns the result of the whole commit. `made` holds the snapshot
    of the written files, if there is one. If that snapshot exists and the compaction fails, the result is still a
    success, because the rows are in the table.
    """
    work, outcome = commit.work, _outcome_of(commit)
    if isinstance(outcome, Snapshot):
        return Committed((*made, outcome), live=work.bases.live)
    since = work.based_on if work.based_on is not None or not made else made[0].id - 1
    if isinstance(outcome, Conflict) and since is not None:
        with suppress(BucketlineError):
            _discard_outputs(commit.table, change.messages, since)
    if made:
        # The written rows are in the table; only the compaction has to be repeated.
        return Committed(made, outcome, live=work.bases.live)
    if isinstance(outcome, BucketlineError):
        raise outcome
    return outcome


def _outcome_of(commit: SnapshotCommit) -> Snapshot | Conflict | Unknown | BucketlineError:
    try:
        outcome = commit.publish()
    except BucketlineError as e:
        return e
    assert not isinstance(outcome, Committed), "a compaction is never taken for another run's"
    return outcome


def _discard_outputs(table: TableStores, messages: Sequence[CommitMessage], since: int) -> None:
    """Removes the files that a lost compaction has written, if it is certain that no snapshot after the id `since`
    names them.
    """
    taken_names = names_since(table.snapshots, table.manifests, since)
    if taken_names is not None:
        discard_outputs(table.io, table.path, table.schema, messages, taken_names)


def _check_inside(target: PartitionTest, changes: Changes) -> None:
    for entry in (*changes.append_entries, *changes.compact_entries):
        if not target(entry.partition):
            raise SchemaMismatchError(
                f"the file {entry.file.file_name} belongs to a partition that is not being overwritten; leave out the "
                "rows of this partition",
                file=entry.file.file_name,
                partition=entry.partition.hex(),
            )
