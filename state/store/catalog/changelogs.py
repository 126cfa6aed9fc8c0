"""The changelog files that outlive their snapshots. When a snapshot expires, a changelog file with the content of the
snapshot may stay, so that streams can still read the changes.

Source: Paimon 2.0 ChangelogManager.
"""

from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot
from bucketline.state.format.paths import CHANGELOG_DIR, changelog_name, parse_changelog_id
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO


def changelog_ids(io: FileIO, root: str) -> list[int]:
    """Returns the ids of the changelogs in the history at `root`, ascending."""
    return sorted(i for name in io.list_names(f"{root}/{CHANGELOG_DIR}") if (i := parse_changelog_id(name)) is not None)


def changelog_path(root: str, snapshot_id: int) -> str:
    """Returns the path of the changelog file of a snapshot. `root` is the metadata folder of the table or branch that
    has the snapshot.
    """
    return f"{root}/{CHANGELOG_DIR}/{changelog_name(snapshot_id)}"


def read_changelog(io: FileIO, root: str, snapshot_id: int) -> Snapshot | None:
    """Returns the content of the changelog file of a snapshot; None if there is no such file. `root` is the metadata
    folder of the table or branch. Raises CorruptFileError.
    """
    path = changelog_path(root, snapshot_id)
    data = io.read_optional(path)
    if data is None:
        return None
    with naming_file(path):
        return decode_snapshot(data)
