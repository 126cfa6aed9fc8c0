"""Provides a key index that reflects the snapshot on which a batch is written. The index is opened, restored from a
backup, brought up to date, or built again.

If anything is wrong with the local directory, the index is built from the table. The build fails only if a running
process uses the directory, or if the batch is older than the index.
"""

import logging
from contextlib import closing
from dataclasses import dataclass
from enum import Enum

from bucketline.conf.wording import counted
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import IndexFault, IndexStateError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.key_index.backup import BackupFolder, restore_index
from bucketline.state.store.key_index.build import KeyIndexBuild
from bucketline.state.store.key_index.catch_up import CaughtUp, IndexSource, MustRebuild, catch_up
from bucketline.state.store.key_index.index_scope import label_of
from bucketline.state.store.key_index.key_index import KeyIndex, remove_index
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.key_index.table_keys import READER_BYTES, KeyShare, live_keys
from bucketline.state.store.storage.parallel import core_count

_LOG = logging.getLogger(__name__)
_LOCK_WAIT_MS = 100
_LOCK_WAITS = 100


class IndexOrigin(Enum):
    """How an index was obtained: from the local directory, from a backup, or built from the table."""

    LOCAL = "local"
    BACKUP = "backup"
    BUILT = "built"


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Says which key index a task needs, and where the index is stored.

    - `table` is the table's URI.
    - `keys` says which of the table's keys are in the index.
    - `directory` is a local folder.
    - `backup` is the folder of the index's backup; None if there is no backup.
    """

    table: str
    keys: KeyShare
    directory: str
    settings: RocksSettings
    backup: BackupFolder | None = None
    world: World = SYSTEM_WORLD

    @property
    def path(self) -> str:
        return self.keys.scope(self.table).directory(self.directory)

    @property
    def readers(self) -> int:
        """Returns how many files are read in parallel while the index is built: the value of the option, but at most
        one file for each core, and at most as many files as can be read in a quarter of the memory. Half of the memory
        collects the keys.
        """
        wanted = self.keys.schema.settings.bucket.bootstrap_parallelism
        return max(1, min(wanted, core_count(), self.settings.memory_bytes // 4 // READER_BYTES))

    @property
    def alive_since(self) -> int:
        """Returns a limit, in seconds of local time: a key that was last written before this time has expired. The
        limit is 0 if keys never expire.
        """
        ttl_ms = self.keys.schema.settings.bucket.index_ttl_ms
        return 0 if ttl_ms is None else (self.world.clock.local_ms() - ttl_ms) // 1000


@dataclass(frozen=True, slots=True)
class IndexReport:
    """How an index became ready: how it was obtained, why the local directory could not be used (None if it was used),
    how many snapshots were applied, and how many rows were read.
    """

    origin: IndexOrigin
    reason: str | None = None
    caught_up: int = 0
    rows_read: int = 0


def ready_index(plan: IndexPlan, source: IndexSource, latest: Snapshot | None) -> tuple[KeyIndex, IndexReport]:
    """Opens the key index, and brings it to the state of the snapshot `latest` (None for a table without snapshots).
    Returns the index, and a report of how it was obtained and how many rows were read. The caller closes the index.

    Raises IndexStateError if another running process uses the index, or if the index reflects a later snapshot of the
    same history; in the second case the batch is an old one and must stop. Raises CorruptFileError if the table has a
    key in two buckets.
    """
    index, reason = _open_local(plan)
    if index is not None:
        outcome = _brought_to(index, plan, source, latest)
        if isinstance(outcome, CaughtUp):
            return index, IndexReport(IndexOrigin.LOCAL, None, outcome.snapshots, outcome.rows)
        index.close()
        reason = outcome.reason
    if reason is not None:
        _LOG.warning("key index %s: %s; the index is built again", plan.path, reason)
        remove_index(plan.path)
    if plan.backup is not None:
        restored = _restored(plan, source, latest)
        if restored is not None:
            return restored[0], IndexReport(IndexOrigin.BACKUP, reason, restored[1].snapshots, restored[1].rows)
    return _built(plan, source, latest, reason)


def _open_local(plan: IndexPlan) -> tuple[KeyIndex | None, str | None]:
    """Opens the index in the local directory, and returns it, or the reason why it cannot be used. Both results are
    None if there is no index.
    """
    for attempt in range(_LOCK_WAITS + 1):
        try:
            return KeyIndex.open(plan.path, plan.keys.scope(plan.table), plan.settings), None
        except IndexStateError as e:
            if e.fault is IndexFault.MISSING:
                return None, None
            if e.fault is not IndexFault.LOCKED:
                return None, e.message
            # A cancelled task may still be closing the index.
            if attempt == _LOCK_WAITS:
                raise
            plan.world.pause.wait_ms(_LOCK_WAIT_MS)
    raise AssertionError("the last attempt returns or raises")


def _brought_to(
    index: KeyIndex, plan: IndexPlan, source: IndexSource, latest: Snapshot | None
) -> CaughtUp | MustRebuild:
    try:
        if latest is None or index.label.snapshot_id > latest.id:
            _check_rolled_back(index, source, latest)
        if latest is None:
            return (
                CaughtUp(0, 0) if index.label == label_of(None) else MustRebuild("the table has no snapshot any more")
            )
        if index.label.snapshot_id > latest.id:
            _refuse_old_batch(index, source, latest)
        expires = plan.keys.schema.settings.bucket.index_ttl_ms is not None
        return catch_up(index, source, latest, plan.keys, memory_bytes=plan.settings.memory_bytes, expires=expires)
    except IndexStateError as e:
        if e.fault is IndexFault.AHEAD:
            index.close()
            raise
        return MustRebuild(e.message)
    except BaseException:
        index.close()
        raise


def _check_rolled_back(index: KeyIndex, source: IndexSource, latest: Snapshot | None) -> None:
    """Raises MissingSnapshotError if the snapshot that the index reflects is missing although the table was not rolled
    back and not created again.
    """
    label, snapshots = index.label, source.snapshots
    # If the table was created again, the manifests of the old table are gone. Manifests that a rollback has left stay
    # for a day.
    if label.snapshot_id and snapshots.get(label.snapshot_id) is None and source.manifests.exists(label.list_name):
        snapshots.check_rolled_back(label.snapshot_id, f"the key index {index.directory}", latest)


def _refuse_old_batch(index: KeyIndex, source: IndexSource, latest: Snapshot) -> None:
    own = source.snapshots.get(index.label.snapshot_id)
    if own is not None and label_of(own) == index.label:
        raise IndexStateError(
            f"{index.directory}: the key index reflects snapshot {own.id}, but the batch is written on snapshot "
            f"{latest.id}: a later batch has begun, so this batch stops",
            fault=IndexFault.AHEAD,
            path=index.directory,
            found=own.id,
            expected=latest.id,
        )


def _restored(plan: IndexPlan, source: IndexSource, latest: Snapshot | None) -> tuple[KeyIndex, CaughtUp] | None:
    """Restores the index from its backup, and returns it; None if there is no usable backup."""
    assert plan.backup is not None
    scope = plan.keys.scope(plan.table)
    if not restore_index(plan.backup, plan.path, scope, plan.world):
        return None
    index, problem = _open_local(plan)
    if index is None:
        _LOG.warning("key index %s is built from the table, because its backup cannot be used: %s", plan.path, problem)
    else:
        outcome = _brought_to(index, plan, source, latest)
        if isinstance(outcome, CaughtUp):
            return index, outcome
        _LOG.warning(
            "key index %s is built from the table, because its backup cannot be used: %s", plan.path, outcome.reason
        )
        index.close()
    remove_index(plan.path)
    return None


def _built(
    plan: IndexPlan, source: IndexSource, latest: Snapshot | None, reason: str | None
) -> tuple[KeyIndex, IndexReport]:
    """Builds a new index from the table's files, and returns it with a report."""
    scope = plan.keys.scope(plan.table)
    entries = [] if latest is None else source.manifests.live_entries(latest)
    vectors = [] if latest is None else source.manifests.read_index(latest.index_manifest)
    expires = plan.keys.schema.settings.bucket.index_ttl_ms is not None
    blocks = live_keys(source.access, entries, vectors, plan.keys, alive_since=plan.alive_since, readers=plan.readers)
    with (
        KeyIndexBuild(plan.path, scope, plan.settings, keep_latest=expires, world=plan.world) as build,
        closing(blocks) as open_blocks,
    ):
        for block in open_blocks:
            build.add(block)
        report = build.finish(label_of(latest))
    spilled = f", {counted(report.spilled_bytes, 'byte')} spilled" if report.spilled_bytes else ""
    _LOG.info("key index %s was built: %s loaded%s", plan.path, counted(report.keys, "key"), spilled)
    return KeyIndex.open(plan.path, scope, plan.settings), IndexReport(IndexOrigin.BUILT, reason, 0, report.keys)
