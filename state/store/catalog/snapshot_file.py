"""Reads the file of one snapshot, and the hint files in the same folder."""

from bucketline.state.commit.newest import Hint
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot
from bucketline.state.format.paths import SNAPSHOT_DIR, snapshot_name
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO


def read_hint(io: FileIO, directory: str, name: str) -> Hint | None:
    """Returns the content of a hint file; None if there is no such file."""
    data = io.read_optional(f"{directory}/{name}")
    if data is None:
        return None
    return Hint(int(data) or None if data.isdigit() and len(data) < 19 else None)


def read_snapshot(io: FileIO, root: str, snapshot_id: int) -> Snapshot | None:
    """Returns the snapshot with this id; None if there is no file for this id. Raises CorruptFileError."""
    path = f"{root}/{SNAPSHOT_DIR}/{snapshot_name(snapshot_id)}"
    return decoded_snapshot(path, io.read_optional(path), snapshot_id)


def decoded_snapshot(path: str, data: bytes | None, snapshot_id: int) -> Snapshot | None:
    """Decodes the bytes of a snapshot file; returns None if `data` is None, that is if there is no file. Raises
    CorruptFileError if the file cannot be read, or holds a snapshot with another id.
    """
    if data is None:
        return None
    with naming_file(path):
        snapshot = decode_snapshot(data)
    if snapshot.id != snapshot_id:
        raise CorruptFileError(f"{path} holds snapshot {snapshot.id}", path=path, found=snapshot.id)
    return snapshot
