"""Makes an older snapshot, or the snapshot of a tag, the newest state of a table again.

A rollback removes only snapshot files, tags, and changelogs without their snapshots. The marker tags of streams, which
keep a stream's last snapshot, move back. The data files of removed snapshots become orphan files. `remove_orphan_files`
removes orphan files that are a day old; data files of removed snapshots may already be a day old. No writer should
commit at the same time. A writer of this library notices that the snapshot it builds on was replaced, and plans again.

The next write finishes an interrupted rollback. Once the first snapshot is gone, the tag `ROLLBACK_TAG` proves that the
hint LATEST is low because of a rollback, and names the rollback's target (`state.commit.newest`). Before that, nothing
has changed.

Source: Paimon 2.0 RollbackHelper.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from bucketline.conf.errors import OptionError
from bucketline.conf.wording import shortened
from bucketline.state.commit.replay import MARKER_TAG, writer_of
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CorruptFileError, RemovalUnderWayError, VersionNotFoundError
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.paths import (
    CHANGELOG_DIR,
    EARLIEST,
    LATEST,
    SNAPSHOT_DIR,
)
from bucketline.state.store.catalog.changelogs import changelog_ids, changelog_path
from bucketline.state.store.catalog.newest_snapshot import ROLLED_BACK_TO, rolled_back_to
from bucketline.state.store.catalog.pins import HeldPin, pin_of, pinned
from bucketline.state.store.catalog.snapshot_file import read_hint
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.storage.file_io import FileIO

ROLLBACK_TAG = "bucketline-rollback"
"""The name of the tag that marks a running rollback. It is on the newest snapshot that the rollback removes. The
property `ROLLED_BACK_TO` of this snapshot names the target of the rollback.
"""

_ROLLBACK_TAG_MS = 86_400_000


def rollback_to(
    io: FileIO,
    path: str,
    target: int | str,
    *,
    world: World = SYSTEM_WORLD,
    check: Callable[[Snapshot], None] = lambda _: None,
    part_of: HeldPin | None = None,
) -> Snapshot:
    """Makes a snapshot (`target` is its id, or the name of its tag) the newest snapshot of the table at `path`, and
    returns it.

    Newer snapshots, the tags on them and their changelogs are removed; if the table belongs to a catalog, the catalog
    does this. `check` raises an error if files of the snapshot are missing; nothing has been changed then. If the
    rollback is a part of a fast-forward, `part_of` is the pin of the fast-forward. Raises OptionError if there is no
    such snapshot or tag, RemovalUnderWayError if the snapshot or tag is being removed or the table is being
    fast-forwarded.
    """
    snapshots, tags = Snapshots(io, path), Tags(io, path)
    wanted = _wanted(snapshots, tags, target)
    restores = not snapshots.exists(wanted.id)
    check(wanted)
    own = pin_of(path, wanted, first=_oldest_moved_to(snapshots, tags, wanted))
    own = replace(own, rolls_back=True) if part_of is None else replace(own, forwards=part_of.pin.forwards)
    with pinned(io, path, own, world, heeds_pins=part_of is None) as pin:
        # A process that removes the snapshot from now on sees the pin. If the snapshot was removed before, it is found
        # missing here.
        if _wanted(snapshots, tags, target).base_manifest_list != wanted.base_manifest_list:
            raise OptionError(
                f"{path}: {target!r} was replaced meanwhile; nothing is done; try again", key="target", value=target
            )
        check(wanted)
        if snapshots.owner is not None:
            snapshots.owner.roll_back(target)
            return wanted
        held = pin if part_of is None else part_of
        return _roll_back(snapshots, tags, wanted, world, lambda: _is_held(held), held.is_there, restores=restores)


def _roll_back(
    snapshots: Snapshots,
    tags: Tags,
    wanted: Snapshot,
    world: World,
    is_due: Callable[[], bool],
    goes_on: Callable[[], bool] = lambda: True,
    *,
    restores: bool,
) -> Snapshot:
    if snapshots.get(wanted.id) is None:
        if not restores:
            raise RemovalUnderWayError(
                f"{snapshots.root}: another rollback has removed snapshot {wanted.id} meanwhile; nothing is done; "
                "choose another snapshot",
                path=snapshots.path(wanted.id),
            )
        # The changelog was removed when the snapshot expired, whether or not a tag kept the snapshot.
        wanted = replace(
            wanted.without_changelog(),
            properties={k: v for k, v in wanted.properties.items() if k != ROLLED_BACK_TO},
        )
        snapshots.publish(wanted)
        if wanted.id == min(snapshots.ids()):
            snapshots.write_earliest_hint(wanted.id)
    newer = [i for i in snapshots.ids() if i > wanted.id]
    if newer and newer[0] > wanted.id + 1:
        _bridge(snapshots, wanted)
    later = _Later(snapshots, wanted)
    newer = later.look()
    if is_due():
        _take_back(later, newer, tags, world, goes_on)
    return wanted


@dataclass(slots=True)
class _Later:
    """The snapshots after the snapshot to roll back to (`wanted`). `found` maps the ids of these snapshots to the bytes
    of their files, which need not be readable as snapshots. For the snapshot right after `wanted`, `found` has the
    bytes that the file had at the beginning of the rollback.
    """

    snapshots: Snapshots
    wanted: Snapshot
    found: dict[int, bytes | None] = field(init=False)

    def __post_init__(self) -> None:
        self.found = {self._next: self._now(self._next)}

    @property
    def _next(self) -> int:
        return self.wanted.id + 1

    def look(self) -> list[int]:
        """Lists the snapshots after the wanted snapshot, and returns their ids in ascending order."""
        ids = [i for i in self.snapshots.ids() if i > self.wanted.id]
        self.found |= {i: self._now(i) for i in ids if i not in self.found}
        return ids

    def is_untouched(self) -> bool:
        """Returns True if no writer has committed on top of the wanted snapshot. Then the wanted snapshot exists. The
        next snapshot is either the same as at the beginning of the rollback, or it was removed. The next snapshot
        cannot have expired, because the wanted snapshot would have expired first.

        Returns False if the wanted snapshot is gone: a fast-forward has removed it, and without it nothing would be
        left of the table.
        """
        now = self._now(self._next)
        return (now is None or now == self.found[self._next]) and self.snapshots.exists(self.wanted.id)

    def remove(self, snapshot_id: int) -> None:
        """Removes a snapshot if its file is still the file that was found. If another snapshot has taken its id, the
        next call of `look` finds that snapshot.
        """
        if self._now(snapshot_id) == self.found[snapshot_id]:
            self.snapshots.delete(snapshot_id)
        if snapshot_id != self._next:
            del self.found[snapshot_id]

    def _now(self, snapshot_id: int) -> bytes | None:
        return self.snapshots.io.read_optional(self.snapshots.path(snapshot_id))


def _take_back(later: _Later, newer: list[int], tags: Tags, world: World, goes_on: Callable[[], bool]) -> None:
    """Removes the snapshots after the wanted snapshot (the target of the rollback), from the newest on.

    If this process pauses for long, another process may finish the same rollback, and writers may then commit on top of
    the wanted snapshot. So before each change, this function checks that no writer has committed there. If a writer has
    committed, the newer snapshots stay.

    When all newer snapshots have been removed, the function lists the snapshots again. If it finds more newer
    snapshots, it removes them only if `goes_on` returns True. Otherwise it ends, and changes no tag and no hint.
    """
    mark = None if newer else _done_mark(later.snapshots, _readable(tags))
    while newer and later.is_untouched():
        mark = _mark(later, tags, newer[-1], world)
        # Paimon trusts a LATEST that is too high, but searches upwards from a LATEST that is too low. So the hint is
        # lowered before the files are removed.
        _lower_hint(later)
        came = later.look()
        if came[-1:] == newer[-1:]:
            for snapshot_id in reversed(newer[1:]):
                later.remove(snapshot_id)
            came = later.look()
            if came == newer[:1]:
                _settle_tags(later, tags)
                _drop_changelogs(later)
                _lower_hint(later)
                later.remove(newer[0])
                came = later.look()
        if came and not goes_on():
            _drop_mark(tags, mark)
            return
        # A commit that was published meanwhile builds on a snapshot that is being removed.
        newer = came
    _drop_mark(tags, mark)
    # These steps are done once more, because a process that published a tag or a hint before the last removal may have
    # read its snapshot before that.
    _settle_tags(later, tags)
    _drop_changelogs(later)
    _lower_hint(later)


def _drop_mark(tags: Tags, mark: Tag | None) -> None:
    """Removes the mark of a rollback, unless another rollback has replaced it by its own."""
    if mark is not None and tags.get(ROLLBACK_TAG) == mark:
        tags.delete(ROLLBACK_TAG)


def _lower_hint(later: _Later) -> None:
    """Makes the hint file LATEST name the wanted snapshot, unless writers have committed on top of it. If writers
    commit while this function runs, LATEST may name an older snapshot than the newest until their next commit. Then a
    reader has to list the snapshots once more.
    """
    hint = read_hint(later.snapshots.io, f"{later.snapshots.root}/{SNAPSHOT_DIR}", LATEST)
    if (hint is None or hint.snapshot_id != later.wanted.id) and later.is_untouched():
        later.snapshots.write_latest_hint(later.wanted.id)
        if not later.snapshots.exists(later.wanted.id):
            # Another rollback, to an older snapshot, has removed the wanted snapshot. A hint that is too high would be
            # trusted, so it is lowered again.
            later.snapshots.write_latest_hint(max(later.snapshots.ids(), default=later.wanted.id))


def _settle_tags(later: _Later, tags: Tags) -> None:
    """Removes the tags of the snapshots that a rollback removes. These tags would otherwise seem to belong to new
    snapshots with the same ids.

    The marker tag of a stream records how far the stream has got, even after the tagged snapshot has expired. Therefore
    it is moved back to the stream's newest remaining snapshot, and is removed only if the stream has no remaining
    snapshot.
    """
    wanted = later.wanted
    listed = [tag for tag in _readable(tags) if tag.name != ROLLBACK_TAG and tag.snapshot.id > wanted.id]
    streams = [tag.name for tag in listed if tag.name.startswith(MARKER_TAG)]
    writers = {name: writer_of(name.removeprefix(MARKER_TAG)) for name in streams}
    left = _newest_of_each(later.snapshots, wanted, set(writers.values()))
    for tag in listed:
        # The tags were read before this check. If no writer has committed by now, none of the tags belongs to such a
        # writer.
        if not later.is_untouched():
            return
        newest = left.get(writers.get(tag.name, ""))
        if newest is None:
            tags.delete(tag.name)
        else:
            tags.replace(replace(tag, snapshot=newest))


def _oldest_moved_to(snapshots: Snapshots, tags: Tags, wanted: Snapshot) -> int:
    """Returns the id of the oldest snapshot to which the marker tag of a stream moves back; if no marker tag moves, the
    id of the wanted snapshot.
    """
    moved = [t for t in _readable(tags) if t.snapshot.id > wanted.id and t.name.startswith(MARKER_TAG)]
    writers = {writer_of(tag.name.removeprefix(MARKER_TAG)) for tag in moved}
    return min([wanted.id, *(s.id for s in _newest_of_each(snapshots, wanted, writers).values())])


def _newest_of_each(snapshots: Snapshots, wanted: Snapshot, writers: set[str]) -> dict[str, Snapshot]:
    """Returns for each writer in `writers` its newest snapshot among the snapshots up to `wanted`, the snapshot to roll
    back to. A snapshot with rows is preferred to a compaction.

    The search ends at a snapshot that is missing or damaged, because this may be the newest snapshot of a writer, and
    an older snapshot would record too little progress.
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
    """Finishes an interrupted rollback, if there is one, and returns the newest snapshot; None if there are no
    snapshots.
    """
    newest = snapshots.find_latest()
    if newest.cut_short is None:
        return newest.snapshot
    tags = Tags(snapshots.io, snapshots.root)
    wanted = _wanted(snapshots, tags, newest.cut_short.target)
    # Before this process looked at the snapshots, another process may have finished the rollback and committed. The
    # wanted snapshot is the newest already, so no expiry removes it, and it needs no pin.
    restores = newest.cut_short.tag is not None
    _roll_back(snapshots, tags, wanted, world, lambda: snapshots.latest_id() == wanted.id, restores=restores)
    return snapshots.latest()


def _bridge(snapshots: Snapshots, wanted: Snapshot) -> None:
    """Publishes a copy of the wanted snapshot under the next id, so that the ids have no gap while the later
    snapshots are removed. With a gap, LATEST would name the wanted snapshot and readers would stop there, but writers
    would find the newer snapshots after the gap. This copy is removed after all other later snapshots.
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


def _readable(tags: Tags) -> Iterator[Tag]:
    """Yields all readable tags. `doctor` reports unreadable tags."""
    for name in tags.names():
        with suppress(CorruptFileError):
            tag = tags.get(name)
            if tag is not None:
                yield tag


def _is_held(pin: HeldPin) -> bool:
    pin.check()
    return True


def _mark(later: _Later, tags: Tags, newest: int, world: World) -> Tag | None:
    """Marks the rollback by a tag on the newest snapshot that it removes, and returns the tag.

    An interrupted rollback may have left such a tag, on a later snapshot that it has removed. This tag then stays on
    its snapshot, is changed to name the target of this rollback, and is returned. If the snapshot to tag is gone, the
    tag that exists is returned, or None.
    """
    marked, snapshot = _mark_of(_readable(tags)), later.snapshots.get(newest)
    if snapshot is None:
        return marked
    if marked is not None and marked.snapshot.id > newest and marked.snapshot.time_ms >= snapshot.time_ms:
        snapshot = marked.snapshot
        if rolled_back_to(snapshot) == later.wanted.id:
            return marked
    snapshot = replace(snapshot, properties={**snapshot.properties, ROLLED_BACK_TO: str(later.wanted.id)})
    mark = Tag(ROLLBACK_TAG, snapshot, created_local_ms=world.clock.local_ms(), retained_ms=_ROLLBACK_TAG_MS)
    tags.replace(mark)
    return mark


def _mark_of(tags: Iterable[Tag]) -> Tag | None:
    return next((t for t in tags if t.name == ROLLBACK_TAG), None)


def _done_mark(snapshots: Snapshots, tags: Iterable[Tag]) -> Tag | None:
    """Returns the mark (a tag) of a rollback that was stopped near its end: the rollback had removed its last snapshot,
    but not the mark. Returns None if there is no such mark among the tags.

    A mark must stay if the snapshot after the marked snapshot exists although the marked snapshot does not, because a
    writer has committed during the rollback. Such a mark tells readers of changes why the marked snapshot is missing,
    and is not returned.
    """
    mark = _mark_of(tags)
    if mark is None:
        return None
    marked = snapshots.get(mark.snapshot.id)
    is_hole = marked is None and snapshots.exists(mark.snapshot.id + 1)
    return None if is_hole or mark.snapshot.is_same_as(marked) else mark


def without_done_mark(snapshots: Snapshots, tags: Tags) -> list[Tag]:
    """Returns all tags, ordered by snapshot id and name. Before that, removes the mark of a rollback that was stopped
    near its end (see `_done_mark`), unless there is a rollback that the next write must finish.
    """
    listed = tags.list()
    mark = _done_mark(snapshots, listed)
    if mark is None or snapshots.find_latest().cut_short is not None:
        return listed
    tags.delete(mark.name)
    return [t for t in listed if t is not mark]


def _drop_changelogs(later: _Later) -> None:
    """Removes the changelogs of removed snapshots, because new snapshots will get the same ids."""
    io, newest = later.snapshots.io, later.wanted.id
    folder = f"{later.snapshots.root}/{CHANGELOG_DIR}"
    ids = changelog_ids(io, later.snapshots.root)
    newer = [i for i in ids if i > newest]
    # Paimon trusts a hint that is too high, so this hint is lowered too.
    hint = read_hint(io, folder, LATEST)
    if hint is not None and (newer or (hint.snapshot_id or 0) > newest) and later.is_untouched():
        kept = ids[: len(ids) - len(newer)]
        if kept:
            io.overwrite(f"{folder}/{LATEST}", str(kept[-1]).encode())
        else:
            io.delete(f"{folder}/{LATEST}")
            io.delete(f"{folder}/{EARLIEST}")
    for snapshot_id in reversed(newer):
        if later.is_untouched():
            io.delete(changelog_path(later.snapshots.root, snapshot_id))


def _wanted(snapshots: Snapshots, tags: Tags, target: int | str) -> Snapshot:
    if isinstance(target, int):
        snapshot = snapshots.get(target)
        if snapshot is None:
            # As in Paimon, a tag may keep a snapshot that has expired.
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
            f"{snapshots.root}: tag {target} belongs to another history than snapshot {own.id}, because the table "
            "was rolled back after the tag was created; choose another tag or a snapshot",
            path=snapshots.root,
            tag=target,
        )
    return tag.snapshot


def _there(snapshots: Snapshots, tags: Tags) -> str:
    """Returns the snapshots and tags that a table can be rolled back to, as the end of a sentence."""
    ids, names = snapshots.ids(), [name for name in tags.names() if not name.startswith(MARKER_TAG)]
    listed = f"there are snapshots {ids[0]} to {ids[-1]}" if ids else "the table has no snapshot"
    return f"{listed} and {'no tag' if not names else 'the tags ' + shortened(', '.join(names))}"
