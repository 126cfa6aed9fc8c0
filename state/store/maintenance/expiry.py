"""Removes old snapshots and the files that only these snapshots needed.

A run makes a plan, then removes snapshot by snapshot from the oldest: first its files, then the snapshot file. So an
interrupted run leaves at most the oldest snapshot incomplete, and the next run completes the removal. The EARLIEST hint
is written last. Several processes may expire one table at once: each removes the files that no kept snapshot, tag or
branch needs. A file that another process has removed already is no error. Source: Paimon 2.0 ExpireSnapshotsImpl,
SnapshotDeletion, TagDeletion. Stricter in two points: files that branches need are kept, and a delta manifest list is
not used if one of its manifests is missing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bucketline.state.bucket.mode import POSTPONE_BUCKETS
from bucketline.state.commit.expire import (
    Footprint,
    Retention,
    dead_files,
    expiry_end,
    file_key,
    longer_changelog,
    retire,
    sharing_tags,
    unite,
)
from bucketline.state.commit.pins import held_end, removal_in_the_way
from bucketline.state.commit.replay import MARKER_RETAINED_MS, is_marker
from bucketline.state.determinism import World
from bucketline.state.errors import CorruptFileError, RemovalUnderWayError, StorageError
from bucketline.state.format.data_file import FileSource
from bucketline.state.format.entries import ManifestEntry, Snapshot
from bucketline.state.format.json_files.pin_json import Pin
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.consumers import drop_idle_consumers, next_of_consumers
from bucketline.state.store.catalog.kept_files import (
    changelog_or_nothing,
    data_paths,
    delta_or_nothing,
    footprint_of,
    index_only,
    live_keys,
    metadata_steps,
    remains_of,
    remove_in_steps,
    reraise_unless_missing,
)
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.pins import Notebook, Notes, pin_of
from bucketline.state.store.catalog.rollback import without_done_mark
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.announced import Announced
from bucketline.state.store.maintenance.changelog_expiry import expire_changelogs, keep_changelog
from bucketline.state.store.maintenance.expiry_notes import drop_note, note_expired
from bucketline.state.store.maintenance.last_traces import leave_markers
from bucketline.state.store.maintenance.left_pins import look_and_drop_left
from bucketline.state.store.maintenance.shared_changelogs import without_changelogs_of_others
from bucketline.state.store.maintenance.success_files import unmark_tag
from bucketline.state.store.storage.file_io import FileIO

_PLANS = 3
_PINNED = "a pinned state"


@dataclass(frozen=True, slots=True)
class ExpireResult:
    """What a run of expiry has removed: the snapshots from `begin` to `end` - 1, the number of files of each kind, the
    expired `tags`, and the number of `changelogs` that had been kept longer than their snapshots.
    """

    begin: int = 0
    end: int = 0
    data_files: int = 0
    changelog_files: int = 0
    metadata_files: int = 0
    tags: tuple[str, ...] = ()
    changelogs: int = 0

    @property
    def snapshots(self) -> int:
        """Returns the number of snapshots that were removed."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class _Step:
    """What is removed together with one snapshot: data files, changelog files, metadata files, and then the snapshot's
    own file. The members are full paths. `metadata` has groups of files, which are removed one group after another.
    """

    snapshot: Snapshot
    data: tuple[str, ...]
    changelog: tuple[str, ...]
    metadata: tuple[Sequence[str], ...]


def expire_snapshots(
    io: FileIO,
    path: str,
    schema: TableSchema,
    world: World,
    *,
    retention: Retention | None = None,
    root: str | None = None,
    finishes: bool = True,
) -> ExpireResult:
    """Removes the snapshots that `retention` does not keep, and returns what was removed. If `retention` is None, the
    table's options decide. Expired tags are removed first, and old changelogs last.

    `root` is the metadata folder of a branch; None stands for the table's own folder. If `finishes` is True, also
    completes an expiry that another run has announced and not completed, even if no snapshot is due. Raises OptionError
    for invalid retention, StorageError and CorruptFileError if a kept snapshot, tag or branch cannot be read; nothing
    has been removed then.
    """
    run = _Expiry(io, path, schema, world, root)
    result = run.run(retention or Retention.of(schema.settings.retention), finishes=finishes)
    changelogs = expire_changelogs(io, path, schema, world, root=root or path)
    return replace(
        result,
        changelogs=changelogs.count,
        data_files=result.data_files + changelogs.data_files,
        changelog_files=result.changelog_files + changelogs.changelog_files,
        metadata_files=result.metadata_files + changelogs.metadata_files,
    )


def maybe_expire(
    io: FileIO,
    path: str,
    schema: TableSchema,
    world: World,
    *,
    newest_id: int | None = None,
    forced: bool = False,
    root: str | None = None,
) -> int:
    """Calls `expire_snapshots` after a commit, and returns the number of removed snapshots. Does nothing for postpone
    tables, and for write-only tables unless `forced`. If no snapshot is due, the call costs a few small reads. An error
    of expiry does not affect the commit.

    `newest_id` is the snapshot that the caller has just made; if it is None, the newest snapshot is looked up.
    """
    write_only = schema.settings.compaction.write_only and not forced
    if write_only or schema.settings.bucket.count == POSTPONE_BUCKETS:
        return 0
    retention = Retention.of(schema.settings.retention)
    if not _is_due(Snapshots(io, root or path), retention, world, newest_id):
        return 0
    return expire_snapshots(io, path, schema, world, retention=retention, root=root, finishes=False).snapshots


def delete_tag(io: FileIO, path: str, schema: TableSchema, name: str, world: World, *, root: str | None = None) -> bool:
    """Removes a tag and the files that only this tag needs; returns False if there is no tag of that name. The tag is
    removed first, so that a crash leaves only orphan files.
    """
    tags = Tags(io, root or path)
    tag = tags.get(name)
    if tag is None:
        return False
    tags.delete(name)
    if schema.settings.tags.success_files:
        unmark_tag(io, root or path, name)
    drop_note(io, root or path, name)
    _Expiry(io, path, schema, world, root).release(tag.snapshot)
    return True


def move_tag(
    io: FileIO,
    path: str,
    schema: TableSchema,
    name: str,
    snapshot: Snapshot,
    world: World,
    *,
    root: str | None = None,
) -> None:
    """Creates or moves the tag that marks a writer's newest snapshot, and removes files that only the tag's old
    snapshot needs. The tag moves back only if its old snapshot was rolled back. A tag that the writer no longer moves
    expires after `MARKER_RETAINED_MS`.
    """
    tags = Tags(io, root or path)
    old = tags.get(name)
    if old is not None and old.snapshot.id > snapshot.id:
        published = Snapshots(io, root or path).get(old.snapshot.id)
        if published is not None and old.snapshot.is_same_as(published):
            return
    tags.replace(Tag(name, snapshot, created_local_ms=world.clock.local_ms(), retained_ms=MARKER_RETAINED_MS))
    if old is None:
        return  # If the snapshot expires, this tag is the last trace of the writer.
    if old.snapshot.id == snapshot.id or Snapshots(io, root or path).exists(old.snapshot.id):
        return  # While the previous snapshot exists, no later snapshot has lost a file.
    _take_back_if_expired(io, root or path, tags, name, snapshot, old)
    _Expiry(io, path, schema, world, root).release(old.snapshot)


def _take_back_if_expired(io: FileIO, root: str, tags: Tags, name: str, snapshot: Snapshot, old: Tag) -> None:
    """Moves a marker tag back to `old` if its snapshot is gone or being removed, and raises RemovalUnderWayError."""
    # The newest snapshot is never announced for removal. If this snapshot is no longer the newest, the process that
    # announces its removal sees the tag.
    if not Snapshots(io, root).exists(snapshot.id + 1):
        return
    pin, removals = pin_of(root, snapshot), Notebook(io, root).look().removals.values()
    is_going = removal_in_the_way(pin, [r for r in removals if r is not None]) is not None
    if not is_going and Snapshots(io, root).exists(snapshot.id):
        return
    tags.replace(old)
    raise RemovalUnderWayError(
        f"{root}: snapshot {snapshot.id} expired before tag '{name}' was created; a later batch will create the tag "
        "on its own snapshot",
        path=root,
        snapshot=snapshot.id,
    )


def _is_due(snapshots: Snapshots, retention: Retention, world: World, newest_id: int | None) -> bool:
    earliest = snapshots.earliest_id()
    latest = snapshots.latest_id() if newest_id is None else newest_id
    if earliest is None or latest is None or latest - earliest < retention.min_count:
        return False
    if latest - earliest >= retention.max_count:
        return True
    successor = snapshots.get(earliest + 1)
    return successor is None or successor.time_ms < world.clock.now_ms() - retention.time_ms


class _Expiry:
    """One run of expiry over the table at `path`, or over its branch with metadata at `root`.

    The attributes give access to all of the table's metadata, because any of it may say that a file is needed.
    """

    def __init__(self, io: FileIO, path: str, schema: TableSchema, world: World, root: str | None = None) -> None:
        self._io, self._path, self._schema, self._world = io, path, schema, world
        self._root = path if root is None else root
        self._manifests = Manifests(io, path, [f.type for f in schema.select(schema.partition_keys)])
        self._snapshots = Snapshots(io, self._root)
        self._tags = Tags(io, self._root)
        self._branches = Branches(io, path)
        self._notebook = Notebook(io, self._root)
        retention = schema.settings.retention
        # Source: Paimon 2.0 SnapshotDeletion: readers of a table without changelog files read its new data files.
        self._keeps_changelogs = longer_changelog(retention) is not None
        self._changelog_is_data = not schema.settings.changelog.producer.writes_files

    def run(self, retention: Retention, *, finishes: bool) -> ExpireResult:
        """Expires snapshots, and returns what was removed. If `finishes` is True, also removes the files that other
        runs have announced but not removed, even if no snapshot is due.
        """
        ended = self._end_tags()
        idle_ms = self._schema.settings.retention.consumers_ms
        if idle_ms is not None:
            drop_idle_consumers(self._io, self._root, idle_ms=idle_ms, world=self._world)
        with Announced(self._notebook, self._world) as own:
            for _ in range(_PLANS):
                begin, end = self._range(retention)
                if begin >= end and not finishes:
                    break
                if finishes:
                    # If a rollback to a tag was stopped, the tag's snapshot has a lower id than the hint EARLIEST.
                    begin = min([begin, *self._snapshots.ids()])
                if begin < end:
                    own.announce(end, self._snapshots.get(end - 1))
                # The order matters: if a process made a tag before the look at pins and removed the tag afterwards, its
                # pin is seen.
                tags = without_done_mark(self._snapshots, self._tags)
                notes = look_and_drop_left(self._io, self._notebook, self._world, own.name)
                end = self._end_among_others(end, notes)
                if begin >= end:
                    self._drop_done(notes)
                    return ExpireResult(begin, begin, tags=ended)
                steps = self._plan(begin, end, tags, notes.pins.values())
                # A tag that was made meanwhile may need files; a kept state that is missing was expired by another run.
                if (
                    steps is not None
                    and not self._leaves_markers(steps, tags)
                    and self._tags.names() == sorted(t.name for t in tags)
                ):
                    result = self._remove(begin, end, steps, ended, tags, own)
                    self._drop_done(notes)
                    return result
        return ExpireResult(tags=ended)

    def release(self, released: Snapshot) -> None:
        """Removes the files of an expired snapshot that no remaining snapshot, tag or branch needs.

        Does nothing unless the expired snapshot is older than every existing snapshot. A newer snapshot shares files
        with existing snapshots, or was rolled back, so that its files are orphan files.
        """
        # A snapshot whose own file exists is not older than the oldest snapshot.
        earliest = None if self._snapshots.exists(released.id) else self._snapshots.earliest_id()
        if earliest is None or released.id >= earliest:
            return
        oldest, others = self._snapshots.get(earliest), [t.snapshot for t in self._tags.list()]
        # The pins are read after the tag was removed. A process that has found the tag has written its pin before, so
        # the pin, or the reference made under it, is seen here.
        pins = self._notebook.look().pins.values()
        if oldest is None or None in pins or any(o.id == released.id for o in others):
            return
        before = [s for s in others if s.id < released.id]
        after = sorted((s for s in (*others, oldest) if s.id > released.id), key=lambda s: s.id)
        kept = [*before[-1:], after[0], *(s for _, s in self._branches.states_of_others(self._root))]
        kept += [s for pin in pins if pin is not None for s in pin.states]
        if any(s.base_manifest_list == released.base_manifest_list for s in kept):
            return
        try:
            entries = self._manifests.live_entries(released)
            footprint = footprint_of(self._manifests, self._schema, released)
        except StorageError as e:
            reraise_unless_missing(e)
            return
        needed = {key for state in kept for key in live_keys(self._manifests, state, entries)}
        dead = [e for e in entries if file_key(e) not in needed]
        gone = footprint.without(unite(footprint_of(self._manifests, self._schema, s) for s in kept))
        data = [p for e in dead for p in data_paths(self._path, self._schema, e)]
        remove_in_steps(self._io, self._schema, data, *metadata_steps(self._path, gone))

    def _end_tags(self) -> tuple[str, ...]:
        if not self._schema.settings.tags.end_by_time:
            return ()
        over = [t for t in self._tags.list() if t.is_over(self._world.clock.local_ms())]
        for tag in over:
            delete_tag(self._io, self._path, self._schema, tag.name, self._world, root=self._root)
        return tuple(t.name for t in over)

    def _range(self, retention: Retention) -> tuple[int, int]:
        # If the writer of the newest snapshot takes it back, the previous snapshot is needed, with the files that the
        # newest snapshot has deleted.
        earliest, latest = self._snapshots.earliest_id(), self._snapshots.settled_id(self._world.clock.now_ms())
        if earliest is None or latest is None:
            return 0, 0

        def time_of(snapshot_id: int) -> int | None:
            snapshot = self._snapshots.get(snapshot_id)
            return None if snapshot is None else snapshot.time_ms

        return earliest, expiry_end(
            earliest,
            latest,
            retention,
            now_ms=self._world.clock.now_ms(),
            next_of_consumers=self._next_of_consumers(),
            time_of=time_of,
        )

    def _end_among_others(self, end: int, notes: Notes) -> int:
        """Returns the id below which this run may remove snapshots while other processes are active. The id is `end`,
        or the higher end that another run has announced. A consumer or pin that needs an older snapshot lowers the id.
        """
        others = [r for r in notes.removals.values() if r is not None and r.history == self._notebook.history]
        announced = [r for r in others if r.end > end]
        further = [r.end for r in announced if r.is_of(self._snapshots.get(r.end - 1))]
        if further:
            latest = self._snapshots.settled_id(self._world.clock.now_ms())
            end = max(end, min(max(further), latest or 0))
        # This comes after the look at pins: a consumer that has registered since is in the plan, or is found now.
        return held_end(self._notebook.history, min([end, *self._next_of_consumers()]), notes.pins.values())

    def _drop_done(self, notes: Notes) -> None:
        """Removes the announcements of other runs if the announced snapshots are gone, or were replaced by a
        rollback.
        """
        for name, removal in notes.removals.items():
            if removal is None or removal.history != self._notebook.history:
                continue
            if not removal.is_of(self._snapshots.get(removal.end - 1)):
                self._notebook.drop(name)

    def _next_of_consumers(self) -> Iterable[int]:
        holds = not (self._keeps_changelogs and self._schema.settings.retention.consumers_hold_changelogs)
        return next_of_consumers(self._io, self._root).values() if holds else ()

    def _plan(self, begin: int, end: int, tags: Sequence[Tag], pins: Iterable[Pin | None]) -> list[_Step] | None:
        """Returns for each snapshot from the id `begin` to `end` - 1 the files that are removed together with it,
        oldest snapshot first. Returns None if a snapshot that is to stay was removed meanwhile.
        """
        snapshots = {i: s for i in range(begin, end + 1) if (s := self._snapshots.get(i)) is not None}
        oldest_kept = snapshots.pop(end, None)
        if oldest_kept is None:
            return None
        changing = [*((i, s) for i, s in sorted(snapshots.items()) if i > begin), (end, oldest_kept)]
        # One after the other: memory holds the changes of one snapshot, and those files that are removed.
        dead = dead_files((i, delta_or_nothing(self._manifests, s)) for i, s in changing)
        if self._keeps_changelogs and self._changelog_is_data:
            dead = {
                key: last_entry
                for key, last_entry in dead.items()
                if last_entry[1].file.file_source is FileSource.COMPACT
            }
        kept = Footprint()
        pinned = [(_PINNED, s) for pin in pins if pin is not None for s in pin.states]
        for name, state in [(f"snapshot {end}", oldest_kept), *self._sharing(begin, end, tags), *pinned]:
            try:
                kept = kept.union(footprint_of(self._manifests, self._schema, state))
                # The first kept snapshot has none of these files. A snapshot of a branch may have the same id.
                live = set()
                if not state.is_same_as(oldest_kept):
                    live = live_keys(self._manifests, state, [e for _, e in dead.values()])
            except StorageError as e:
                if e.missing and (name == _PINNED or is_marker(name)):
                    # A process that refers to the snapshot also finds that out; the marker has its stream's progress.
                    continue
                self._refuse_broken(name, e)
                return None
            for key in live & dead.keys():
                del dead[key]
        states = [s for _, s in pinned]
        snapshots = without_changelogs_of_others(self._io, self._path, self._root, snapshots, states)
        ordered = sorted(snapshots.items())
        gone = retire([(i, self._remains(s)) for i, s in ordered], kept)
        dead_with = defaultdict[int, list[ManifestEntry]](list)
        for last, entry in dead.values():
            dead_with[last].append(entry)
        return [self._step(s, dead_with[i], gone[i]) for i, s in ordered]

    def _leaves_markers(self, steps: Sequence[_Step], tags: Sequence[Tag]) -> bool:
        """Creates a marker tag (which refers to a stream's newest snapshot) for each stream that has no marker tag in
        `tags`, and whose last snapshots are removed in `steps`. Returns True if a tag was created.
        """
        going = [s.snapshot for s in steps]
        ends = self._schema.settings.tags.end_by_time
        return leave_markers(self._tags, self._snapshots, going, tags, self._world, ends=ends)

    def _sharing(self, begin: int, end: int, tags: Sequence[Tag]) -> list[tuple[str, Snapshot]]:
        """Returns the descriptions and snapshots of tags and branches that may need files of removed snapshots."""
        tagged = [(f"tag {t.name}", t.snapshot) for t in tags]
        sharing = sharing_tags([s for _, s in tagged], begin, end)
        return [(n, s) for n, s in tagged if s in sharing] + self._branches.states_of_others(self._root)

    def _remains(self, snapshot: Snapshot) -> Footprint:
        """Returns the files that are removed with a snapshot unless something else needs them. If changelogs are kept
        longer than their snapshots, the files that the changelog needs are not included.
        """
        if not self._keeps_changelogs:
            return remains_of(self._manifests, self._schema, snapshot)
        remains = remains_of(self._manifests, self._schema, replace(snapshot, changelog_manifest_list=None))
        return (
            replace(remains, lists=frozenset(), manifests=index_only(snapshot)) if self._changelog_is_data else remains
        )

    def _step(self, snapshot: Snapshot, dead: Sequence[ManifestEntry], gone: Footprint) -> _Step:
        changelog = [] if self._keeps_changelogs else changelog_or_nothing(self._manifests, snapshot)
        return _Step(
            snapshot,
            data=tuple(p for e in dead for p in data_paths(self._path, self._schema, e)),
            changelog=tuple(p for e in changelog for p in data_paths(self._path, self._schema, e)),
            metadata=metadata_steps(self._path, gone),
        )

    def _remove(
        self, begin: int, end: int, steps: Sequence[_Step], ended: tuple[str, ...], tags: Sequence[Tag], own: Announced
    ) -> ExpireResult:
        note_expired(self._io, self._root, tags, {s.snapshot.id: s.snapshot.commit_user for s in steps})
        names = sorted(t.name for t in tags)
        for number, step in enumerate(steps):
            # A tag made by Paimon may keep the next snapshot; the next run sees the tag. If the announcement is gone,
            # this run was stopped for so long that another run has taken over.
            if not own.goes_on() or (number > 0 and self._tags.names() != names):
                end, steps = step.snapshot.id, steps[:number]
                break
            if self._keeps_changelogs:
                keep_changelog(self._io, self._root, self._snapshots, step.snapshot.id)
            remove_in_steps(self._io, self._schema, (*step.data, *step.changelog), *step.metadata)
            self._io.delete(self._snapshots.path(step.snapshot.id))
        own.is_half_done = False
        self._snapshots.write_earliest_hint(end)
        return ExpireResult(
            begin,
            end,
            data_files=sum(len(s.data) for s in steps),
            changelog_files=sum(len(s.changelog) for s in steps),
            metadata_files=sum(len(paths) for s in steps for paths in s.metadata),
            tags=ended,
        )

    def _refuse_broken(self, name: str, error: StorageError) -> None:
        """Raises CorruptFileError if the snapshot or tag `name` could not be read (`error`) although it exists. Does
        nothing if another process has removed the snapshot or tag meanwhile.
        """
        reraise_unless_missing(error)
        states = [f"snapshot {i}" for i in self._snapshots.ids()] + [f"tag {n}" for n in self._tags.names()]
        if name in (*states, *(n for n, _ in self._branches.states_of_others(self._root))):
            raise CorruptFileError(
                f"{self._path}: {name} cannot be read, so no snapshot is expired: {error.message}; see what `doctor` "
                "says, and delete a tag or branch that is not needed",
                path=self._path,
                state=name,
            ) from error
