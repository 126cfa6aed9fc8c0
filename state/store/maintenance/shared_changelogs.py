"""Changelogs that several histories of a table share. A branch begins with a snapshot of the table, and a table that
was fast-forwarded to a branch has the snapshots of the branch. Expiry in one history keeps the changelogs that other
histories need.
"""

from collections.abc import Mapping

from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.changelogs import changelog_ids, read_changelog
from bucketline.state.store.storage.file_io import FileIO


def changelogs_of_others(io: FileIO, path: str, root: str, first: int, last: int) -> list[Snapshot]:
    """Returns the snapshots with the ids from `first` to `last` in all histories of the table at `path` (the main
    history and the history of each branch), except the history at `root`. Changelogs that outlive their snapshots are
    included.
    """
    branches = Branches(io, path)
    found = branches.snapshots_of_others(root, first, last)
    for other in branches.roots_of_others(root):
        ids = [i for i in changelog_ids(io, other) if first <= i <= last]
        found += [changelog for i in ids if (changelog := read_changelog(io, other, i)) is not None]
    return found


def without_changelogs_of_others(
    io: FileIO, path: str, root: str, snapshots: Mapping[int, Snapshot], pinned: list[Snapshot]
) -> dict[int, Snapshot]:
    """Returns `snapshots` (snapshots of the history at `root`, by id). If another history or a pin needs the changelog
    of a snapshot, the snapshot is returned without its changelog, so that expiry keeps the changelog. Nothing is read
    if no snapshot has a changelog.
    """
    with_changelogs = [i for i, s in snapshots.items() if s.changelog_manifest_list is not None]
    if not with_changelogs:
        return dict(snapshots)
    others = changelogs_of_others(io, path, root, min(with_changelogs), max(with_changelogs))
    held = {s.changelog_manifest_list for s in (*others, *pinned)}
    return {i: s.without_changelog() if s.changelog_manifest_list in held else s for i, s in snapshots.items()}
