"""Makes a branch the newest history of its table: `main` gets the branch's schemas, snapshots and tags.

The snapshots of `main` after the last snapshot that `main` shares with the branch are replaced. A fast-forward first
rolls `main` back to this shared snapshot, and then adds the branch's snapshots one after the other. So an interrupted
fast-forward leaves `main` at a state of the branch, and can be repeated. If `main` and the branch share no snapshot,
because the beginning of the branch has expired, the history of the branch replaces the history of `main`. No writer of
`main` should commit at the same time. The branch stays unchanged.

The pin of a fast-forward also announces what it removes (`state.commit.pins.excludes`). So no rollback runs at the same
time, and nobody begins to refer to a snapshot that is removed.

Source: Paimon 2.0 FileSystemBranchManager.fastForward; unlike there, tags of shared snapshots stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bucketline.conf.errors import OptionError
from bucketline.state.commit.not_there import no_branch
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import (
    BranchNotFoundError,
    CommitConflictError,
    CorruptFileError,
    RemovalUnderWayError,
    StorageError,
)
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from bucketline.state.format.json_files.pin_json import Hold, Pin
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.metadata_records import Encoding
from bucketline.state.format.paths import history_of
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.kept_files import reraise_unless_missing
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.pins import HeldPin, pinned
from bucketline.state.store.catalog.rollback import newest_to_write, rollback_to
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.storage.file_io import FileIO

_USER = "bucketline-fast-forward"
"""The commit user of a snapshot without changes that a fast-forward adds."""

_TRIES = 5
"""How often a snapshot is removed that a writer has committed during the fast-forward, before the fast-forward gives
up.
"""


def fast_forward(io: FileIO, path: str, branch: str, *, world: World = SYSTEM_WORLD) -> Snapshot:
    """Makes the branch the newest history of the table at `path`, and returns the newest snapshot of the branch. If the
    table loses schemas, a snapshot without changes follows (see `_take_next_id`).

    Raises VersionNotFoundError for a branch that does not exist, OptionError for a branch that has no snapshot,
    RemovalUnderWayError while snapshots of the table or the branch are being removed, or while the table is being
    rolled back or fast-forwarded to another branch.
    """
    branches = Branches(io, path)
    names = branches.known()
    if branch not in names:
        raise no_branch(branch, names)
    io.require_publish()
    root = branches.path(branch)
    source, target = Snapshots(io, root), Snapshots(io, path)
    newest = _newest_of(branch, source, world)
    if newest is None:
        raise OptionError(
            f"branch '{branch}' has no snapshot, so the table cannot be fast-forwarded to this branch; write to the "
            "branch first",
            key="branch",
            value=branch,
        )
    if target.owner is not None:
        target.owner.fast_forward(branch)
        return newest
    own = newest_to_write(target, world)
    copied = _Copied.of(io, root)
    shared = _last_shared(copied.snapshots, target)
    first = min(copied.snapshots) if shared is None else shared
    manifests = _manifests(io, path, Schemas(io, root).get(max(copied.schemas)), world)
    pin = Pin(
        (Hold("", first), Hold(history_of(root)[1], min(copied.snapshots))),
        (*(s for s in copied.snapshots.values() if s.id >= first), *(t.snapshot for t in copied.tags)),
        forwards=branch,
        takes_schemas=_takes_schemas(io, path, copied.schemas),
        replaces=shared is None or _has_unrelated(target, copied.snapshots[min(copied.snapshots)], manifests),
    )
    with pinned(io, path, pin, world) as pins:
        # The whole branch is in memory now, and it was complete while the pin existed.
        if _Copied.of(io, root) != copied or _last_shared(copied.snapshots, target) != shared:
            raise RemovalUnderWayError(
                f"{path}: branch '{branch}' or the table changed meanwhile; try again", path=path, branch=branch
            )
        pins.check()
        others = pins.notebook.look(pins.name).pins
        begun = [name for name, other in others.items() if other is not None and other.forwards == branch]
        was_begun = bool(begun) or None in others.values() or (own is not None and own.commit_user == _USER)
        _forward(_Target(target, pins, manifests, world), copied, shared, own, was_begun=was_begun)
        for name in begun:
            # What the process of this pin has begun is complete now. If the process was only stopped, it ends when it
            # finds no pin.
            pins.notebook.drop(name)
    return newest


def _newest_of(name: str, source: Snapshots, world: World) -> Snapshot | None:
    """Returns the newest snapshot of a branch. Raises RemovalUnderWayError if a deletion of the branch has removed the
    snapshot.
    """
    try:
        return newest_to_write(source, world)
    except BranchNotFoundError as e:
        raise RemovalUnderWayError(
            f"{source.root}: branch '{name}' is being deleted, or its deletion was interrupted; the table is not "
            f"changed. Finish the deletion with `delete_branch('{name}')`, or fast-forward to another branch",
            path=source.root,
            branch=name,
        ) from e


def unfinished(io: FileIO, path: str, pins: Iterable[Pin | None]) -> set[str]:
    """Returns the branches to which a fast-forward of the table at `path` has begun but not ended, whether the
    fast-forward still runs or its process has died. `pins` are the pins of the table.

    If a process died at the very end, right before it removed its pin, the branch of the pin is included although the
    fast-forward is complete. Repeating the fast-forward then removes no commit, because there is no commit after the
    newest snapshot of the branch.
    """
    branches = Branches(io, path)
    known = set(branches.names())
    begun = [pin for pin in pins if pin is not None and pin.forwards in known]
    return {pin.forwards for pin in begun if not _is_done(io, path, branches.path(pin.forwards), pin)}


def _is_done(io: FileIO, path: str, root: str, pin: Pin) -> bool:
    """Returns True if a fast-forward is complete: the table at `path` has everything that it gets from the branch at
    `root`.

    The table then has the newest snapshot of the branch, and at least one later snapshot. If the fast-forward removes
    schemas of the table, the snapshot right after the branch's newest snapshot must be the snapshot that the
    fast-forward adds as its last step. Any other snapshot there can come from a writer that began under a removed
    schema.
    """
    try:
        newest, target = Snapshots(io, root).latest(), Snapshots(io, path)
        if newest is None:
            return True
        after = target.get(newest.id + 1)
        is_forwarded = target.get(newest.id) == newest and after is not None
    except (BranchNotFoundError, CorruptFileError):
        return False
    return is_forwarded and (not pin.takes_schemas or (after is not None and after.commit_user == _USER))


@dataclass(frozen=True, slots=True)
class _Copied:
    """What a fast-forward copies from a branch to the table: the snapshots by id, the tags, and the content of the
    schema files by id. The ids ascend.
    """

    snapshots: Mapping[int, Snapshot]
    tags: Sequence[Tag]
    schemas: Mapping[int, bytes]

    @classmethod
    def of(cls, io: FileIO, root: str) -> "_Copied":
        """Reads the snapshots, tags and schema files of the branch at `root`. A fast-forward gives these to the table.
        Raises OptionError if the branch was removed meanwhile, and StorageError.
        """
        snapshots, schemas = Snapshots(io, root), Schemas(io, root)
        read = {i: s for i in snapshots.ids() if (s := snapshots.get(i)) is not None}
        files = {i: data for i in schemas.ids() if (data := io.read_optional(schemas.path(i))) is not None}
        if not read or not files:
            raise OptionError(f"{root} was removed meanwhile", key="branch")
        return cls(read, Tags(io, root).list(), files)


@dataclass(frozen=True, slots=True)
class _Target:
    """The table that is being fast-forwarded. `pin` is the pin file of this process, which shows that the
    fast-forward still goes on.
    """

    snapshots: Snapshots
    pin: HeldPin
    manifests: Manifests
    world: World

    def check_goes_on(self) -> None:
        """Raises CommitConflictError if the pin of this fast-forward is gone: another process has completed the
        fast-forward, or this process was stopped for more than an hour. Must be called before each removal of files,
        because other processes may have written these files in the meantime.
        """
        if not self.pin.is_there():
            raise CommitConflictError(
                f"{self.snapshots.root}: this fast-forward to branch '{self.pin.pin.forwards}' was given up, because "
                "another process has repeated it meanwhile, or this process was paused for more than an hour; "
                "fast-forward again if the table does not have the snapshots of the branch",
                path=self.snapshots.root,
            )

    def roll_back(self, snapshot_id: int) -> None:
        io, path = self.snapshots.io, self.snapshots.root
        rollback_to(io, path, snapshot_id, world=self.world, check=lambda _: self.check_goes_on(), part_of=self.pin)


def _forward(on: _Target, copied: _Copied, shared: int | None, own: Snapshot | None, *, was_begun: bool) -> None:
    target, ids = on.snapshots, list(copied.snapshots)
    tags, schemas = Tags(target.io, target.root), Schemas(target.io, target.root)
    if shared is None:
        _replace(on, copied.snapshots, None if own is None else own.id)
    elif own is not None and own.id > shared:
        on.roll_back(shared)
    tagged = [t for t in tags.list() if t.snapshot.id >= ids[0] and (shared is None or t.snapshot.id > shared)]
    # If this process was stopped until the end of another one, it may just have removed a snapshot of the branch by its
    # id. So the loop below publishes what is missing, before this process ends.
    for tag in tagged if tagged and on.pin.is_there() else ():
        tags.delete(tag.name)
    takes_schemas = _copy_schemas(target.io, schemas, copied.schemas)
    before = None if shared is None else copied.snapshots[shared]
    for snapshot in copied.snapshots.values():
        if shared is None or snapshot.id > shared:
            _publish(on, snapshot, before)
            before = snapshot
    newest = copied.snapshots[ids[-1]]
    _name_newest(target, newest)
    if on.pin.pin.replaces:
        _drop_oldest(on, [i for i in target.ids() if i < ids[0]])
    later = [i for i in schemas.ids() if i > max(copied.schemas)]
    if later:
        on.check_goes_on()
    for schema_id in reversed(later):
        target.io.delete(schemas.path(schema_id))
    if target.exists(ids[-1] + 1):
        # A writer has committed this snapshot meanwhile. Its schema may be one that has just been removed.
        on.roll_back(ids[-1])
    # The branch may have older snapshots than the table had.
    target.write_earliest_hint(min(target.ids(), default=ids[0]))
    _copy_tags(target, newest, copied.tags)
    if takes_schemas or later or was_begun:
        # This must be the last step, because `_is_done` looks for its result.
        _take_next_id(on, newest)


def _copy_tags(target: Snapshots, newest: Snapshot, copied: Iterable[Tag]) -> None:
    """Gives the table the tags `copied` of the branch. `newest` is the newest snapshot of the branch, which is the
    table's newest snapshot after the fast-forward.

    Raises CommitConflictError if the table was rolled back meanwhile. The new tags that the rollback would have removed
    are then deleted again.
    """
    tags = Tags(target.io, target.root)
    for tag in copied:
        tags.replace(tag)
    if _is_rolled_back(target, newest):
        for tag in copied:
            if _is_rolled_back(target, tag.snapshot) and tags.get(tag.name) == tag:
                tags.delete(tag.name)
        raise _rolled_back(target)


def _take_next_id(on: _Target, newest: Snapshot) -> None:
    """Publishes a snapshot without changes after the newest snapshot.

    A writer may have begun under a schema that has been removed or replaced, and may still be about to publish its
    snapshot. If the writer published this snapshot and then died, the table could not be read. The snapshot without
    changes prevents this: it takes the id that the writer needs. So the writer loses the race for the id, and then sees
    that its schema no longer exists. Raises CommitConflictError if a rollback has removed the newest snapshot.
    """
    target, manifests, world = on.snapshots, on.manifests, on.world
    if _is_rolled_back(target, newest):
        raise _rolled_back(target)
    base_list, base_bytes = manifests.write_list(manifests.base_and_delta(newest))
    delta_list, delta_bytes = manifests.write_list(())
    empty = Snapshot(
        id=newest.id + 1,
        schema_id=newest.schema_id,
        base_manifest_list=base_list,
        base_manifest_list_size=base_bytes,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_bytes,
        index_manifest=newest.index_manifest,
        commit_user=_USER,
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=CommitKind.COMPACT,
        time_ms=world.clock.now_ms(),
        total_record_count=newest.total_record_count,
        delta_record_count=0,
        watermark=newest.watermark,
        statistics=newest.statistics,
        next_row_id=newest.next_row_id,
        uuid=world.ids.new_uuid(),
    )
    _publish(on, empty, newest)
    _name_newest(target, empty)


def _manifests(io: FileIO, path: str, schema: TableSchema, world: World) -> Manifests:
    settings = schema.settings.commit
    keys = [f.type for f in schema.select(schema.partition_keys)]
    encoding = Encoding(settings.manifest_format, settings.manifest_codec)
    return Manifests(io, path, keys, world=world, encoding=encoding)


def _last_shared(source: Mapping[int, Snapshot], target: Snapshots) -> int | None:
    """Returns the id of the newest snapshot that a branch has in common with its table; None if there is none. `source`
    are the snapshots of the branch by id, and `target` are the snapshots of the table. The common snapshots are always
    the first snapshots of the branch.
    """
    last = None
    for snapshot_id, snapshot in source.items():
        if target.get(snapshot_id) != snapshot:
            break
        last = snapshot_id
    return last


def _publish(on: _Target, snapshot: Snapshot, before: Snapshot | None) -> None:
    """Publishes a snapshot of the branch after the snapshot `before`. If a writer has taken the id of the snapshot
    meanwhile, the snapshot of the writer is removed first.

    Raises CommitConflictError if a rollback has removed the snapshot `before`, because there would be a gap in the ids
    before the published snapshot. The snapshots of the table then stay as the rollback and later writers have left
    them.
    """
    target = on.snapshots
    if before is not None and _is_rolled_back(target, before):
        raise _rolled_back(target)
    for _ in range(_TRIES):
        is_there = target.get(snapshot.id) == snapshot or target.publish(snapshot)
        if before is not None and _is_rolled_back(target, before):
            if target.get(snapshot.id) == snapshot:
                target.delete(snapshot.id)
            raise _rolled_back(target)
        if is_there:
            return
        if target.exists(snapshot.id - 1):
            on.roll_back(snapshot.id - 1)
        else:
            on.check_goes_on()
            target.io.overwrite(target.path(snapshot.id), encode_snapshot(snapshot))
    raise CommitConflictError(
        f"{target.root}: writers commit while the table is fast-forwarded to a branch; stop the writers, and "
        "fast-forward again",
        path=target.root,
    )


def _name_newest(target: Snapshots, newest: Snapshot) -> None:
    """Makes the hint LATEST name this snapshot. Raises CommitConflictError if a rollback has removed the snapshot.

    Readers trust a hint that is too high, so the hint is lowered again if the rollback came while the hint was written.
    """
    if not _is_rolled_back(target, newest):
        target.write_latest_hint(newest.id)
        if not _is_rolled_back(target, newest):
            return
        target.write_latest_hint(max(target.ids(), default=newest.id))
    raise _rolled_back(target)


def _is_rolled_back(target: Snapshots, snapshot: Snapshot) -> bool:
    """Returns True if a rollback has removed this snapshot of the table. Returns False if the snapshot exists or has
    expired; the table has no older snapshot after an expiry.
    """
    return not snapshot.is_same_as(target.get(snapshot.id)) and any(i <= snapshot.id for i in target.ids())


def _rolled_back(target: Snapshots) -> CommitConflictError:
    return CommitConflictError(
        f"{target.root}: the table was rolled back while it was fast-forwarded to a branch, so the fast-forward has "
        "ended; fast-forward again if the table is to get the branch",
        path=target.root,
    )


def _replace(on: _Target, source: Mapping[int, Snapshot], newest: int | None) -> None:
    """Replaces the table's snapshots by the branch's snapshots with the same ids, and removes the table's other
    snapshots. If all snapshots of the table are older than the snapshots of the branch, the newest snapshot of the
    table stays for now, so that the table always has a snapshot. `newest` is the id of the newest snapshot of the
    table.
    """
    target, first = on.snapshots, min(source)
    older = [i for i in target.ids() if i < first]
    has_later = newest is not None and newest >= first
    _drop_oldest(on, older if has_later else older[:-1])
    if newest is None or not has_later:
        return
    for snapshot_id, snapshot in source.items():
        if snapshot_id <= newest:
            on.check_goes_on()
            target.io.overwrite(target.path(snapshot_id), encode_snapshot(snapshot))
    if newest > max(source):
        on.roll_back(max(source))


def _has_unrelated(target: Snapshots, first: Snapshot, manifests: Manifests) -> bool:
    """Returns True if the table has snapshots that are older than the branch's first snapshot (`first`) and do not
    belong to the history of the branch. An interrupted fast-forward has left these snapshots: there is a gap between
    the older ids and the id of `first`, or `first` was not made from the newest of the older snapshots.
    """
    older = [i for i in target.ids() if i < first.id]
    return bool(older) and not _follows(target.get(older[-1]), first, manifests)


def _follows(before: Snapshot | None, after: Snapshot, manifests: Manifests) -> bool:
    """Returns True if the snapshot `after` was made from the snapshot `before`. Reads all manifests of both snapshots
    if the commit of `after` has merged manifests. Also returns True if an expiry has removed files of
    `before`: the expiry will remove the snapshot as well.
    """
    if before is None or before.id != after.id - 1:
        return False
    new = manifests.read_list(after.base_manifest_list)
    try:
        old = manifests.base_and_delta(before)
        if {m.file_name for m in old} == {m.file_name for m in new}:
            return True
        live = {e.identity for e in manifests.live_in(old)}
    except StorageError as e:
        reraise_unless_missing(e)
        return True
    return live == {e.identity for e in manifests.live_in(new)}


def _drop_oldest(on: _Target, ids: Sequence[int]) -> None:
    """Removes the table's oldest snapshots, oldest first. Their files stay, because tags may need them. The removal of
    orphan files later removes the files that nothing needs.
    """
    target = on.snapshots
    for snapshot_id in ids:
        on.check_goes_on()
        target.delete(snapshot_id)
    if ids:
        target.write_earliest_hint(min(target.ids(), default=ids[-1] + 1))


def _takes_schemas(io: FileIO, path: str, schemas: Mapping[int, bytes]) -> bool:
    """Returns True if the table loses schemas when it gets the schemas of a branch."""
    target, last = Schemas(io, path), max(schemas)
    return any(i > last or (i in schemas and io.read_optional(target.path(i)) != schemas[i]) for i in target.ids())


def _copy_schemas(io: FileIO, target: Schemas, schemas: Mapping[int, bytes]) -> bool:
    """Gives the table the schemas of the branch. Returns True if schemas of the table were replaced."""
    has_replaced = False
    for schema_id, wanted in schemas.items():
        known = io.read_optional(target.path(schema_id))
        if known != wanted:
            io.overwrite(target.path(schema_id), wanted)
            has_replaced |= known is not None
    return has_replaced
