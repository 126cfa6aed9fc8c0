"""Makes an older snapshot, or a tag, the newest state of a table again.

It removes only snapshot files, tags, and changelogs without their snapshots; tags of streams move back. The data of
removed snapshots becomes orphan files, which `remove_orphan_files` finds once they are a day old, which may be at once.
No writer should commit at the same time; a writer of this library notices that its base was replaced, and plans again.
The next write finishes an interrupted rollback. From where the first snapshot is gone the tag `ROLLBACK_TAG` proves
what the low hint LATEST means (`state.commit.newest`); before that, nothing has happened yet.
Source: Paimon 2.0 RollbackHelper.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from bucketline.conf.errors import OptionError
from bucketline.conf.wording import shortened
from bucketline.state.commit.replay import MARKER_TAG, writer_of
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CorruptFileError, VersionNotFoundError
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.format.paths import (
    CHANGELOG_DIR,
    EARLIEST,
    LATEST,
    SNAPSHOT_DIR,
    changelog_name,
    parse_changelog_id,
)
from bucketline.state.format.tag_json import Tag
from bucketline.state.store.catalog.pins import pin_of, pinned
from bucketline.state.store.catalog.snapshot_file import read_hint
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.storage.file_io import FileIO

ROLLBACK_TAG = "bucketline-rollback"
"""The tag of the newest snapshot that a rollback removes, while it runs."""

_ROLLBACK_TAG_MS = 86_400_000


def rollback_to(
    io: FileIO,
    path: str,
    target: int | str,
    *,
    world: World = SYSTEM_WORLD,
    check: Callable[[Snapshot], None] = lambda _: None,
) -> Snapshot:
    """The snapshot of that id, or of the tag of that name, now the newest of the table at `path`.

    Newer snapshots, tags on them and their changelogs are removed, by the catalog if the table belongs to one.
    `check` raises where the snapshot is not whole; nothing has been changed then.
    Raises OptionError when there is no such snapshot or tag, RemovalUnderWayError when it is being removed.
    """
    snapshots, tags = Snapshots(io, path), Tags(io, path)
    wanted = _wanted(snapshots, tags, target)
    check(wanted)
    with pinned(io, path, pin_of(path, wanted, first=_oldest_moved_to(snapshots, tags, wanted)), world) as pin:
        # A process that removes it from now on sees the pin. What was removed before is gone.
        if _wanted(snapshots, tags, target).base_manifest_list != wanted.base_manifest_list:
            raise OptionError(f"{path}: {target!r} was replaced meanwhile", key="target", value=target)
        check(wanted)
        if snapshots.owner is not None:
            snapshots.owner.roll_back(target)
            return wanted
        return _roll_back(snapshots, tags, wanted, world, pin.check)


def _roll_back(
    snapshots: Snapshots, tags: Tags, wanted: Snapshot, world: World, still_pinned: Callable[[], None]
) -> Snapshot:
    io, path = snapshots.io, snapshots.root
    if snapshots.get(wanted.id) is None:
        # Its changelog was removed when it expired, with or without a tag.
        wanted = replace(
            wanted, changelog_manifest_list=None, changelog_manifest_list_size=None, changelog_record_count=None
        )
        snapshots.publish(wanted)
        if wanted.id == min(snapshots.ids()):
            snapshots.write_earliest_hint(wanted.id)
    newer = [i for i in snapshots.ids() if i > wanted.id]
    if newer and newer[0] > wanted.id + 1:
        newer.insert(0, _bridge(snapshots, wanted))
    found = _contents(snapshots, newer)
    still_pinned()
    if newer:
        _mark(snapshots, tags, newer[-1], world)
    # Paimon believes a LATEST that is too high, and looks further from one that is too low: it goes down before the
    # files do.
    snapshots.write_latest_hint(wanted.id)
    if newer and not _is_still(snapshots, newer[0], found):
        return wanted
    # A tag on a removed snapshot would seem to belong to a later one with the same id.
    _settle_tags(snapshots, tags, wanted)
    _drop_changelogs(io, path, wanted.id)
    while newer:
        for snapshot_id in reversed(newer):
            if _is_still(snapshots, snapshot_id, found):
                snapshots.delete(snapshot_id)
        # A commit that was published meanwhile follows a snapshot that is gone; so does a tag of one. But the next
        # snapshot was removed last: one of its id that came since follows the wanted one, and nothing of it goes.
        newer = [i for i in snapshots.ids() if i > wanted.id]
        if newer and newer[0] == wanted.id + 1:
            break
        found = _contents(snapshots, newer)
        _settle_tags(snapshots, tags, wanted)
        hint = read_hint(io, f"{path}/{SNAPSHOT_DIR}", LATEST)
        if newer or (hint is not None and hint.snapshot_id != wanted.id):
            snapshots.write_latest_hint(wanted.id)
    tags.delete(ROLLBACK_TAG)
    return wanted


def _contents(snapshots: Snapshots, ids: Iterable[int]) -> dict[int, bytes | None]:
    """The bytes of snapshot files, whether they can be read or not."""
    return {i: snapshots.io.read_optional(snapshots.path(i)) for i in ids}


def _is_still(snapshots: Snapshots, snapshot_id: int, found: Mapping[int, bytes | None]) -> bool:
    """Whether a snapshot is the one that was found. If not, another process has finished this rollback while this one
    was stopped, and writers may have gone on from there."""
    return _contents(snapshots, [snapshot_id])[snapshot_id] == found[snapshot_id]


def _settle_tags(snapshots: Snapshots, tags: Tags, wanted: Snapshot) -> None:
    """Removes the tags of later snapshots; that of a stream moves back to its newest snapshot that is left: where the
    stream has got to must be known also when that snapshot has expired."""
    listed = [tag for tag in _readable(tags) if tag.name != ROLLBACK_TAG]
    later = [tag for tag in listed if tag.snapshot.id > wanted.id]
    streams = [tag.name for tag in later if tag.name.startswith(MARKER_TAG)]
    writers = {name: writer_of(name.removeprefix(MARKER_TAG)) for name in streams}
    left = _newest_of_each(snapshots, wanted, set(writers.values()))
    for tag in later:
        newest = left.get(writers.get(tag.name, ""))
        if newest is None:
            tags.delete(tag.name)
        else:
            tags.replace(replace(tag, snapshot=newest))


def _oldest_moved_to(snapshots: Snapshots, tags: Tags, wanted: Snapshot) -> int:
    """The oldest snapshot that a tag of a stream moves back to, or the wanted one."""
    moved = [t for t in _readable(tags) if t.snapshot.id > wanted.id and t.name.startswith(MARKER_TAG)]
    writers = {writer_of(tag.name.removeprefix(MARKER_TAG)) for tag in moved}
    return min([wanted.id, *(s.id for s in _newest_of_each(snapshots, wanted, writers).values())])


def _newest_of_each(snapshots: Snapshots, wanted: Snapshot, writers: set[str]) -> dict[str, Snapshot]:
    """The newest snapshot of each writer up to the wanted one; one with rows counts before a compaction.

    The search ends at a snapshot that is missing or damaged: it may have been the newest of a writer, and an older one
    would say too little of how far that has got.
    """
    newest: dict[str, Snapshot] = {}
    sought = set(writers)
    with suppress(CorruptFileError):
        for snapshot in snapshots.newest_first(wanted) if sought else ():
            writer = writer_of(snapshot.commit_user)
            if writer not in sought:
                continue
            if snapshot.commit_kind is CommitKind.COMPACT:
                newest.setdefault(writer, snapshot)
                continue
            newest[writer] = snapshot
            sought.remove(writer)
            if not sought:
                break
    return newest


def newest_to_write(snapshots: Snapshots, world: World) -> Snapshot | None:
    """The newest snapshot, after an interrupted rollback to it has been finished; None if there is none."""
    newest = snapshots.find_latest()
    if newest.cut_short is None:
        return newest.snapshot
    tags = Tags(snapshots.io, snapshots.root)
    # It is the newest already, so that no expiry takes it, and needs no pin.
    return _roll_back(snapshots, tags, _wanted(snapshots, tags, newest.cut_short.target), world, lambda: None)


def _bridge(snapshots: Snapshots, wanted: Snapshot) -> int:
    """A copy of the wanted snapshot under the next id. Readers do not look past a gap in the ids. Without the copy
    LATEST would name the wanted snapshot, and writers would find the newer ones under the following ids. The copy is
    removed last.
    """
    copy = replace(
        wanted,
        id=wanted.id + 1,
        commit_kind=CommitKind.COMPACT,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
    )
    snapshots.publish(copy)
    return copy.id


def _readable(tags: Tags) -> Iterator[Tag]:
    """All readable tags; `doctor` reports the others."""
    for name in tags.names():
        with suppress(CorruptFileError):
            tag = tags.get(name)
            if tag is not None:
                yield tag


def _mark(snapshots: Snapshots, tags: Tags, newest: int, world: World) -> None:
    """Marks the newest snapshot to be removed; the mark of an earlier run of this rollback stays."""
    marked = next((t.snapshot for t in _readable(tags) if t.name == ROLLBACK_TAG), None)
    snapshot = snapshots.get(newest)
    if snapshot is None or (marked is not None and marked.id > newest and marked.time_ms >= snapshot.time_ms):
        return
    tags.replace(Tag(ROLLBACK_TAG, snapshot, created_local_ms=world.clock.local_ms(), retained_ms=_ROLLBACK_TAG_MS))


def _drop_changelogs(io: FileIO, path: str, newest: int) -> None:
    """Removes the changelogs of removed snapshots, because later snapshots get their ids."""
    folder = f"{path}/{CHANGELOG_DIR}"
    ids = sorted(i for name in io.list_names(folder) if (i := parse_changelog_id(name)) is not None)
    newer = [i for i in ids if i > newest]
    # As with snapshots, Paimon believes a hint that is too high.
    hint = read_hint(io, folder, LATEST)
    if hint is not None and (newer or (hint.snapshot_id or 0) > newest):
        kept = ids[: len(ids) - len(newer)]
        if kept:
            io.overwrite(f"{folder}/{LATEST}", str(kept[-1]).encode())
        else:
            io.delete(f"{folder}/{LATEST}")
            io.delete(f"{folder}/{EARLIEST}")
    for snapshot_id in reversed(newer):
        io.delete(f"{folder}/{changelog_name(snapshot_id)}")


def _wanted(snapshots: Snapshots, tags: Tags, target: int | str) -> Snapshot:
    if isinstance(target, int):
        snapshot = snapshots.get(target)
        if snapshot is None:
            # As Paimon does: a tag may keep a snapshot that has expired.
            snapshot = next((t.snapshot for t in _readable(tags) if t.snapshot.id == target), None)
        if snapshot is None:
            raise VersionNotFoundError(
                f"Rollback snapshot '{target}' doesn't exist; {_there(snapshots, tags)}", key="snapshot", value=target
            )
        return snapshot
    tag = tags.get(target)
    if tag is None:
        raise VersionNotFoundError(
            f"Rollback tag '{target}' doesn't exist; {_there(snapshots, tags)}", key="tag", value=target
        )
    own = snapshots.get(tag.snapshot.id)
    if own is not None and own.base_manifest_list != tag.snapshot.base_manifest_list:
        raise CorruptFileError(
            f"{snapshots.root}: tag {target} is of another history than snapshot {own.id}: the table was rolled back "
            "since",
            path=snapshots.root,
            tag=target,
        )
    return tag.snapshot


def _there(snapshots: Snapshots, tags: Tags) -> str:
    """The snapshots and tags that a table can go back to, as the end of a sentence."""
    ids, names = snapshots.ids(), [name for name in tags.names() if not name.startswith(MARKER_TAG)]
    listed = f"there are snapshots {ids[0]} to {ids[-1]}" if ids else "the table has no snapshot"
    return f"{listed} and {'no tag' if not names else 'the tags ' + shortened(', '.join(names))}"
