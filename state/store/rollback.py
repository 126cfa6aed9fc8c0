"""Makes an older snapshot, or a tag, the newest state of a table again.

Only snapshot files, tags and changelogs that outlived their snapshots go. The data of what is taken back becomes
orphans, which `remove_orphan_files` finds once they are old: a reader in the middle of it can finish. No writer may
commit at the same time.
Source: Paimon 2.0 RollbackHelper.
"""

from dataclasses import replace

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.paths import CHANGELOG_DIR, EARLIEST, LATEST, changelog_name, parse_changelog_id
from bucketline.state.store.file_io import FileIO
from bucketline.state.store.snapshots import Snapshots
from bucketline.state.store.tags import Tags


def rollback_to(io: FileIO, path: str, target: int | str) -> Snapshot:
    """The snapshot of that id, or of the tag of that name, now the newest of the table at `path`.

    Newer snapshots and tags on them are removed, the newest first, so that a run cut short leaves a shorter history and
    can be repeated. Raises OptionError when there is no such snapshot or tag.
    """
    snapshots = Snapshots(io, path)
    wanted = _wanted(io, path, target)
    # A tag on a snapshot that is taken back would seem to belong to a later one of the same id.
    for tag in Tags(io, path).list():
        if tag.snapshot.id > wanted.id:
            Tags(io, path).delete(tag.name)
    _drop_changelogs(io, path, wanted.id)
    if snapshots.get(wanted.id) is None:
        # Its changelog went when it expired, tag or not.
        wanted = replace(
            wanted, changelog_manifest_list=None, changelog_manifest_list_size=None, changelog_record_count=None
        )
        snapshots.publish(wanted)
        snapshots.write_earliest_hint(wanted.id)
    # Paimon believes a LATEST that is too high, and looks further from one that is too low: it goes down before the
    # files do. Above a restored snapshot there may be a gap, and nobody looks past one; the oldest of the others stands
    # in until they are gone.
    newer = [i for i in snapshots.ids() if i > wanted.id]
    is_gap = bool(newer) and newer[0] > wanted.id + 1
    snapshots.write_latest_hint(newer[0] if is_gap else wanted.id)
    for snapshot_id in reversed(newer):
        io.delete(snapshots.path(snapshot_id))
    if is_gap:
        snapshots.write_latest_hint(wanted.id)
    return wanted


def _drop_changelogs(io: FileIO, path: str, newest: int) -> None:
    """Removes the changelogs of snapshots that are taken back: later ones get their ids, and other changes."""
    folder = f"{path}/{CHANGELOG_DIR}"
    ids = sorted(i for name in io.list_names(folder) if (i := parse_changelog_id(name)) is not None)
    newer = [i for i in ids if i > newest]
    if not newer:
        return
    # As with snapshots, Paimon believes a hint that is too high.
    if len(newer) < len(ids):
        io.overwrite(f"{folder}/{LATEST}", str(ids[-len(newer) - 1]).encode())
    else:
        io.delete(f"{folder}/{LATEST}")
        io.delete(f"{folder}/{EARLIEST}")
    for snapshot_id in reversed(newer):
        io.delete(f"{folder}/{changelog_name(snapshot_id)}")


def _wanted(io: FileIO, path: str, target: int | str) -> Snapshot:
    snapshots = Snapshots(io, path)
    if isinstance(target, int):
        found = snapshots.get(target)
        if found is None:
            raise OptionError(f"Rollback snapshot '{target}' doesn't exist.", key="snapshot", value=target)
        return found
    tag = Tags(io, path).get(target)
    if tag is None:
        raise OptionError(f"Rollback tag '{target}' doesn't exist.", key="tag", value=target)
    own = snapshots.get(tag.snapshot.id)
    if own is not None and own.base_manifest_list != tag.snapshot.base_manifest_list:
        raise CorruptFileError(
            f"{path}: tag {target} is of another history than snapshot {own.id}: the table was rolled back since",
            path=path,
            tag=target,
        )
    return tag.snapshot
