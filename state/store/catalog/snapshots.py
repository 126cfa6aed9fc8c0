"""The snapshots of a table, and the hints that name the newest and the oldest snapshot. If a hint is missing, damaged
or stale, the folder is listed, and tags and changelogs of later commits are searched (`newest_snapshot`).

Source: Paimon 2.0 SnapshotManager, HintFileUtils. This module is stricter in one point: Paimon believes a LATEST whose
snapshot does not exist, and reads a table without snapshot files as empty, even if a tag or changelog shows that there
was a commit.
"""

from collections.abc import Callable, Iterator

from bucketline.conf.errors import OptionError
from bucketline.state.commit.newest import Vanished
from bucketline.state.errors import BranchNotFoundError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.format.paths import EARLIEST, LATEST, SNAPSHOT_DIR, parse_snapshot_id, snapshot_name
from bucketline.state.store.catalog.newest_snapshot import (
    Newest,
    find_newest,
    missing_snapshot,
)
from bucketline.state.store.catalog.snapshot_file import read_hint, read_snapshot
from bucketline.state.store.server.owner import TableOwner
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.parallel import all_at_once, answers_late
from bucketline.state.store.storage.rest_table_io import owner_of

_SETTLED_MS = 3_600_000
"""How long a writer may be stopped between publishing a snapshot and checking its files again: an hour, in
milliseconds.
"""


class Snapshots:
    """The snapshots of the table or branch whose metadata is at `path`."""

    def __init__(self, io: FileIO, path: str) -> None:
        self.io = io
        self.root = path
        self._directory = f"{path}/{SNAPSHOT_DIR}"
        self.owner = owner_of(io, path)
        """The catalog that decides which snapshot is the newest. If it is None, the files decide."""

    def latest_id(self) -> int | None:
        """Returns the newest snapshot's id; None for a table without snapshots. Raises the errors of `latest`."""
        if self.owner is not None:
            newest = self.owner.newest()
            return None if newest is None else newest.id
        hinted = self._hint(LATEST)
        if hinted is not None and not self.exists(hinted + 1) and self.exists(hinted):
            return hinted
        snapshot = find_newest(self.io, self.root).snapshot
        return None if snapshot is None else snapshot.id

    def latest(self) -> Snapshot | None:
        """Returns the newest snapshot; None for a table without snapshots.

        Raises MissingSnapshotError if a snapshot was committed and its file is missing, CorruptFileError, StorageError.
        """
        return self.find_latest().snapshot

    def find_latest(self) -> Newest:
        """Returns the newest snapshot as `latest` does, together with an interrupted rollback to this snapshot, if
        there is one.
        """
        if self.owner is not None:
            return Newest(self.owner.newest())
        hinted = self._hint(LATEST)
        if hinted is not None:
            snapshot = self._unless_followed(hinted)
            if snapshot is not None:
                return Newest(snapshot)
        return find_newest(self.io, self.root)

    def check_rolled_back(self, known_id: int | None, proof: str, newest: Snapshot | None) -> None:
        """Raises MissingSnapshotError unless the table was rolled back. The caller knows that a snapshot later than
        `newest` was published. `known_id` is the id of the later snapshot (None if the id is unknown), and `proof` is
        the text in the message that says how the caller knows.

        The table was rolled back if the hint LATEST names an existing snapshot.
        """
        if self.owner is not None:
            return
        hinted = self._hint(LATEST)
        if hinted is None or not self.exists(hinted):
            raise missing_snapshot(self.root, Vanished(0 if newest is None else newest.id, proof, known_id))

    def check_complete(self) -> None:
        """Raises MissingSnapshotError if a snapshot is known to be committed and its file is missing."""
        if self.owner is None:
            self.latest_id()

    def without_file(self) -> Snapshot | None:
        """Asks the catalog for the newest snapshot, and returns this snapshot if it has no file; otherwise None. The
        first snapshot of a branch that begins at a snapshot of its table has no file.
        """
        try:
            newest = None if self.owner is None else self.owner.newest()
        except BranchNotFoundError:
            return None
        return None if newest is None or self.exists(newest.id) else newest

    def earliest_id(self) -> int | None:
        """Returns the oldest snapshot's id; None for a table without snapshots."""
        hinted = self._hint(EARLIEST)
        if hinted is not None and self.exists(hinted):
            return hinted
        return min(self._listed_ids(), default=None)

    def get(self, snapshot_id: int) -> Snapshot | None:
        """Returns the snapshot with this id; None if its file does not exist. Raises CorruptFileError."""
        return read_snapshot(self.io, self.root, snapshot_id)

    def ids(self) -> list[int]:
        """Lists the folder, and returns the ids of all existing snapshots in ascending order."""
        return sorted(self._listed_ids())

    def newest_first(self, start: int | Snapshot, stop: int = 0) -> Iterator[Snapshot]:
        """Yields the snapshots from `start` down to the id `stop` + 1. `start` is an id, or a snapshot that has been
        read already. Each snapshot is read when the caller asks for it. The iteration ends early at a snapshot that is
        missing.
        """
        start_id = start.id if isinstance(start, Snapshot) else start
        for snapshot_id in range(start_id, stop, -1):
            snapshot = start if isinstance(start, Snapshot) and snapshot_id == start_id else self.get(snapshot_id)
            if snapshot is None:
                return
            yield snapshot

    def publish(self, snapshot: Snapshot) -> bool:
        """Publishes the snapshot as the table's next snapshot; returns False if another snapshot has its id. Raises the
        errors of FileIO.publish.
        """
        assert self.owner is None, "a catalog publishes the snapshots of its tables"
        return self.io.publish(self.path(snapshot.id), encode_snapshot(snapshot))

    def holder(self, snapshot_id: int) -> Snapshot | None:
        """Returns the snapshot with this id in the table's history; None if the history has no such snapshot.

        In a table of a catalog, snapshot files after the catalog's newest snapshot are not part of the history.
        """
        newest = None if self.owner is None else self.owner.newest()
        if self.owner is not None and (newest is None or newest.id <= snapshot_id):
            return newest if newest is not None and newest.id == snapshot_id else None
        return self.get(snapshot_id)

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Writes the hint that names the newest snapshot. This method is called after the snapshot was published. Does
        nothing for a table of a catalog, because the catalog writes the hint.
        """
        if self.owner is not None:
            return
        self.io.overwrite(f"{self._directory}/{LATEST}", str(snapshot_id).encode())

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Writes the hint that names the oldest snapshot. This method is called after older snapshots were removed."""
        self.io.overwrite(f"{self._directory}/{EARLIEST}", str(snapshot_id).encode())

    def exists(self, snapshot_id: int) -> bool:
        return self.io.exists(self.path(snapshot_id))

    def is_gone(self, snapshot: Snapshot, error: StorageError) -> bool:
        """Returns True if `error` says that a file is missing because its snapshot has expired or was taken back."""
        return error.missing and not snapshot.is_same_as(self.get(snapshot.id))

    def settled_id(self, now_ms: int) -> int | None:
        """Returns the id of the newest snapshot that its writer will not take back any more; None for a table without
        snapshots.

        A writer writes LATEST after it has published a snapshot and has checked again that the files of the snapshot
        exist. If a writer has died before that, or does not write the hint, its snapshot counts as settled after
        `_SETTLED_MS`.
        """
        newest, hinted = self.latest_id(), None if self.owner is not None else self._hint(LATEST)
        while newest is not None and hinted is not None and newest > hinted:
            snapshot = self.get(newest)
            if snapshot is None or snapshot.time_ms <= now_ms - _SETTLED_MS:
                break
            newest -= 1
        return newest

    def delete(self, snapshot_id: int) -> None:
        """Removes the file of the snapshot, but not the files that the snapshot names. A missing file is ignored."""
        self.io.delete(self.path(snapshot_id))

    def withdraw(self, snapshot: Snapshot) -> bool:
        """Takes back a snapshot that this process has published, and returns True. If another snapshot already builds
        on the snapshot, the snapshot stays, and False is returned.

        Raises StorageError if the catalog of the table does not take the snapshot back.
        """
        if self.owner is not None:
            return self._withdraw_from(self.owner, snapshot)
        if self.exists(snapshot.id + 1):
            return False
        if self.exists(snapshot.id - 1):
            # The hint is lowered first, as in a rollback, because writers that have seen the snapshot look at the hint
            # to learn whether the snapshot may be gone.
            self.write_latest_hint(snapshot.id - 1)
        self.delete(snapshot.id)
        if not self.exists(snapshot.id + 1):
            return True
        # Another commit has just built on this snapshot. A commit that notices the removal takes itself back, but this
        # commit may not have noticed it. So the snapshot is published again.
        self.publish(snapshot)
        return False

    def _withdraw_from(self, owner: TableOwner, snapshot: Snapshot) -> bool:
        try:
            owner.roll_back(snapshot.id - 1, newest=snapshot.id)
        except (OptionError, StorageError):
            if snapshot.is_same_as(owner.newest()):
                raise
        return not snapshot.is_same_as(self.holder(snapshot.id))

    def path(self, snapshot_id: int) -> str:
        return f"{self._directory}/{snapshot_name(snapshot_id)}"

    def _unless_followed(self, snapshot_id: int) -> Snapshot | None:
        """Returns the snapshot with this id if this snapshot is the newest. Returns None if the snapshot does not
        exist, or if there is a newer snapshot.
        """
        if not answers_late(self.io):
            return None if self.exists(snapshot_id + 1) else self.get(snapshot_id)
        asked: list[Callable[[], Snapshot | bool | None]] = [
            lambda: self.exists(snapshot_id + 1),
            lambda: self.get(snapshot_id),
        ]
        is_followed, snapshot = all_at_once(self.io, asked)
        return None if is_followed or not isinstance(snapshot, Snapshot) else snapshot

    def _hint(self, name: str) -> int | None:
        hint = read_hint(self.io, self._directory, name)
        return None if hint is None else hint.snapshot_id

    def _listed_ids(self) -> list[int]:
        ids = [parse_snapshot_id(name) for name in self.io.list_names(self._directory)]
        return [i for i in ids if i is not None]
