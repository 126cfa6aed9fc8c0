"""The snapshots of a table, and the hints that make the newest and the oldest quick to find.

Hints are advice: a missing, torn, stale or too high one costs a listing, nothing else.
Source: Paimon 2.0 SnapshotManager, HintFileUtils. Stricter in one thing: Paimon believes a LATEST whose snapshot does
not exist.
"""

from collections.abc import Iterator

from bucketline.state.commit.replay import newest_of_user
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.paths import EARLIEST, LATEST, SNAPSHOT_DIR, parse_snapshot_id, snapshot_name
from bucketline.state.format.snapshot_json import decode_snapshot, encode_snapshot
from bucketline.state.store.decoding import naming_file
from bucketline.state.store.file_io import FileIO


class Snapshots:
    """The snapshots of the table at `path`."""

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._directory = f"{path}/{SNAPSHOT_DIR}"

    def latest_id(self) -> int | None:
        """The newest snapshot's id; None for a table without snapshots."""
        hinted = self._hint(LATEST)
        if hinted is not None and not self.exists(hinted + 1) and self.exists(hinted):
            return hinted
        return max(self._listed_ids(), default=None)

    def latest(self) -> Snapshot | None:
        """The newest snapshot; None for a table without snapshots."""
        hinted = self._hint(LATEST)
        if hinted is not None and not self.exists(hinted + 1):
            found = self.get(hinted)
            if found is not None:
                return found
        newest = max(self._listed_ids(), default=None)
        return None if newest is None else self.get(newest)

    def earliest_id(self) -> int | None:
        """The oldest snapshot's id; None for a table without snapshots."""
        hinted = self._hint(EARLIEST)
        if hinted is not None and self.exists(hinted):
            return hinted
        return min(self._listed_ids(), default=None)

    def get(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot of that id; None when there is none, or no longer. Raises CorruptFileError."""
        path = self.path(snapshot_id)
        data = self._io.read_optional(path)
        if data is None:
            return None
        with naming_file(path):
            found = decode_snapshot(data)
        if found.id != snapshot_id:
            raise CorruptFileError(f"{path} holds snapshot {found.id}", path=path, found=found.id)
        return found

    def ids(self) -> list[int]:
        """All snapshot ids there are, ascending, from a listing."""
        return sorted(self._listed_ids())

    def newest_first(self, start: int, stop: int = 0) -> Iterator[Snapshot]:
        """Snapshots from id `start` down to `stop` + 1, each read when asked for; ends early where one is missing."""
        for snapshot_id in range(start, stop, -1):
            found = self.get(snapshot_id)
            if found is None:
                return
            yield found

    def newest_of_user(self, user: str, limit: int) -> Snapshot | None:
        """The user's newest snapshot among the newest `limit` ones; None when it is not there."""
        newest = self.latest_id()
        if newest is None:
            return None
        return newest_of_user(self.newest_first(newest, max(newest - limit, 0)), user)

    def publish(self, snapshot: Snapshot) -> bool:
        """Makes the snapshot the table's next one; False when its id is taken. Errors as in FileIO.publish."""
        return self._io.publish(self.path(snapshot.id), encode_snapshot(snapshot))

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Says which snapshot is newest; only once it is published."""
        self._io.overwrite(f"{self._directory}/{LATEST}", str(snapshot_id).encode())

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Says which snapshot is oldest; only once the older ones are gone."""
        self._io.overwrite(f"{self._directory}/{EARLIEST}", str(snapshot_id).encode())

    def exists(self, snapshot_id: int) -> bool:
        return self._io.exists(self.path(snapshot_id))

    def delete(self, snapshot_id: int) -> None:
        """Removes the snapshot's file, and nothing that it names; a missing one is no error."""
        self._io.delete(self.path(snapshot_id))

    def path(self, snapshot_id: int) -> str:
        return f"{self._directory}/{snapshot_name(snapshot_id)}"

    def _hint(self, name: str) -> int | None:
        data = self._io.read_optional(f"{self._directory}/{name}")
        if data is None or not data.isdigit() or len(data) > 19:
            return None
        return int(data) or None

    def _listed_ids(self) -> list[int]:
        ids = [parse_snapshot_id(name) for name in self._io.list_names(self._directory)]
        return [i for i in ids if i is not None]
