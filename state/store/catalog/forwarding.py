"""Makes a branch the newest history of its table: `main` gets the branch's schemas, snapshots and tags.

The snapshots of `main` after the last one that it shares with the branch are replaced. The forward begins with a
rollback to that snapshot, and then adds one snapshot after the other, so an interrupted run leaves `main` at a state of
the branch, and can be repeated. If they share no snapshot, because the beginning of the branch has expired, `main` gets
the history of the branch in place of its own. No writer of `main` should commit at the same time. The branch stays as
it is.
Source: Paimon 2.0 FileSystemBranchManager.fastForward; unlike there, tags of shared snapshots stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bucketline.conf.errors import OptionError
from bucketline.state.commit.not_there import no_branch
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CommitConflictError, CorruptFileError, MissingSnapshotError, RemovalUnderWayError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.pin_json import Hold, Pin
from bucketline.state.format.json_files.snapshot_json import encode_snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.paths import history_of
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.pins import pinned
from bucketline.state.store.catalog.rollback import newest_to_write, rollback_to
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.storage.file_io import FileIO

_TRIES = 5
"""How often the snapshot of a writer that commits meanwhile is removed before giving up."""


def fast_forward(io: FileIO, path: str, branch: str, *, world: World = SYSTEM_WORLD) -> Snapshot:
    """Makes the branch the newest history of the table at `path`, and returns the newest snapshot, which is then
    the same in both. Raises VersionNotFoundError for a branch that does not exist, OptionError for one that has
    no snapshot, RemovalUnderWayError while snapshots of the table or the branch are being removed.
    """
    branches = Branches(io, path)
    names = branches.known()
    if branch not in names:
        raise no_branch(branch, names)
    io.require_publish()
    root = branches.path(branch)
    source, target = Snapshots(io, root), Snapshots(io, path)
    newest = _newest_of(branches, branch, source, world)
    if newest is None:
        raise OptionError(
            f"Cannot fast forward branch {branch}, because it does not have snapshot.", key="branch", value=branch
        )
    if target.owner is not None:
        target.owner.fast_forward(branch)
        return newest
    own = newest_to_write(target, world)
    copied = _Copied.of(io, root)
    shared = _last_shared(copied.snapshots, target)
    first = min(copied.snapshots) if shared is None else shared
    pin = Pin(
        (Hold("", first), Hold(history_of(root)[1], min(copied.snapshots))),
        (*(s for s in copied.snapshots.values() if s.id >= first), *(t.snapshot for t in copied.tags)),
        forwards=branch,
    )
    with pinned(io, path, pin, world) as pins:
        # The whole branch is in memory, and it was complete while the pin existed.
        if _Copied.of(io, root) != copied or _last_shared(copied.snapshots, target) != shared:
            raise RemovalUnderWayError(
                f"{path}: branch '{branch}' or the table changed meanwhile; try again", path=path, branch=branch
            )
        pins.check()
        _forward(io, path, copied, shared, None if own is None else own.id, world)
    return newest


def _newest_of(branches: Branches, name: str, source: Snapshots, world: World) -> Snapshot | None:
    """Returns the newest snapshot of a branch. Raises RemovalUnderWayError if a deletion has removed it."""
    try:
        return newest_to_write(source, world)
    except MissingSnapshotError as e:
        if not branches.is_going(name):
            raise
        raise RemovalUnderWayError(
            f"{source.root}: branch '{name}' is being deleted, or its deletion was interrupted; the table is not "
            f"changed. Finish that by `delete_branch('{name}')`; fast-forward to another branch",
            path=source.root,
            branch=name,
        ) from e


def unfinished(io: FileIO, path: str, pins: Iterable[Pin | None]) -> set[str]:
    """Returns the branches to which the table at `path` is being fast-forwarded, or was when the process died, by its
    pins.

    The table's newest snapshot is not yet the newest snapshot of the branch.
    """
    branches = Branches(io, path)
    begun = {pin.forwards for pin in pins if pin is not None and pin.forwards}
    return {name for name in begun & set(branches.names()) if not _same_newest(io, path, branches.path(name))}


def _same_newest(io: FileIO, path: str, root: str) -> bool:
    try:
        return Snapshots(io, path).latest() == Snapshots(io, root).latest()
    except CorruptFileError:
        return False


@dataclass(frozen=True, slots=True)
class _Copied:
    """Everything that the table gets from a branch: snapshots by id, ascending, tags, and schema files by id,
    ascending.
    """

    snapshots: Mapping[int, Snapshot]
    tags: Sequence[Tag]
    schemas: Mapping[int, bytes]

    @classmethod
    def of(cls, io: FileIO, root: str) -> "_Copied":
        """Reads a branch. Raises StorageError; OptionError if the branch was removed meanwhile."""
        snapshots, schemas = Snapshots(io, root), Schemas(io, root)
        read = {i: s for i in snapshots.ids() if (s := snapshots.get(i)) is not None}
        files = {i: data for i in schemas.ids() if (data := io.read_optional(schemas.path(i))) is not None}
        if not read or not files:
            raise OptionError(f"{root} was removed meanwhile", key="branch")
        return cls(read, Tags(io, root).list(), files)


def _forward(io: FileIO, path: str, copied: _Copied, shared: int | None, own: int | None, world: World) -> None:
    target, ids = Snapshots(io, path), list(copied.snapshots)
    if shared is None:
        _replace(io, copied.snapshots, target, own, world)
    elif own is not None and own > shared:
        rollback_to(io, path, shared, world=world)
    for tag in Tags(io, path).list():
        if tag.snapshot.id >= ids[0] and (shared is None or tag.snapshot.id > shared):
            Tags(io, path).delete(tag.name)
    _copy_schemas(io, copied.schemas, path)
    for snapshot in copied.snapshots.values():
        if shared is None or snapshot.id > shared:
            _publish(target, snapshot, world)
    target.write_latest_hint(ids[-1])
    _drop_unrelated(target, ids[0], is_all=shared is None)
    schemas = Schemas(io, path)
    for schema_id in reversed([i for i in schemas.ids() if i > max(copied.schemas)]):
        io.delete(schemas.path(schema_id))
    if target.exists(ids[-1] + 1):
        # A writer has committed this snapshot meanwhile. Its schema may just have been removed.
        rollback_to(io, path, ids[-1], world=world)
    if target.earliest_id() is None:
        target.write_earliest_hint(ids[0])
    for tag in copied.tags:
        Tags(io, path).replace(tag)


def _last_shared(source: Mapping[int, Snapshot], target: Snapshots) -> int | None:
    """Returns the newest snapshot that both histories have; the shared ones are the first of the branch."""
    last = None
    for snapshot_id, snapshot in source.items():
        if target.get(snapshot_id) != snapshot:
            break
        last = snapshot_id
    return last


def _publish(target: Snapshots, snapshot: Snapshot, world: World) -> None:
    """Publishes a snapshot of the branch; the snapshot of a writer that has taken its id meanwhile is removed."""
    for _ in range(_TRIES):
        if target.get(snapshot.id) == snapshot or target.publish(snapshot):
            return
        if target.exists(snapshot.id - 1):
            rollback_to(target.io, target.root, snapshot.id - 1, world=world)
        else:
            target.io.overwrite(target.path(snapshot.id), encode_snapshot(snapshot))
    raise CommitConflictError(
        f"{target.root}: writers commit while it is taken to a branch; stop them, and fast-forward again",
        path=target.root,
    )


def _replace(io: FileIO, source: Mapping[int, Snapshot], target: Snapshots, newest: int | None, world: World) -> None:
    """Puts the branch's snapshots in the place of the table's snapshots with the same ids, and removes the table's
    other snapshots. If all snapshots of the table are older than the branch's, the newest of them stays for now, so
    that the table always has one.
    """
    first = min(source)
    older = [i for i in target.ids() if i < first]
    has_later = newest is not None and newest >= first
    _drop_oldest(target, older if has_later else older[:-1])
    if newest is None or not has_later:
        return
    for snapshot_id, snapshot in source.items():
        if snapshot_id <= newest:
            io.overwrite(target.path(snapshot_id), encode_snapshot(snapshot))
    if newest > max(source):
        rollback_to(io, target.root, max(source), world=world)


def _drop_unrelated(target: Snapshots, first: int, *, is_all: bool) -> None:
    """Removes the table's snapshots that are older than those of the branch and do not belong to its history: all of
    them if `is_all`, else only if an interrupted run has left a gap between them and the branch's first.
    """
    older = [i for i in target.ids() if i < first]
    if older and (is_all or older[-1] < first - 1):
        _drop_oldest(target, older)


def _drop_oldest(target: Snapshots, ids: Sequence[int]) -> None:
    """Removes the table's oldest snapshots, oldest first. Their files stay, since tags may need them; the removal of
    orphan files takes those that nothing needs.
    """
    for snapshot_id in ids:
        target.delete(snapshot_id)
    if ids:
        target.write_earliest_hint(min(target.ids(), default=ids[-1] + 1))


def _copy_schemas(io: FileIO, schemas: Mapping[int, bytes], path: str) -> None:
    """Gives the table the schemas of the branch."""
    target = Schemas(io, path)
    for schema_id, wanted in schemas.items():
        if io.read_optional(target.path(schema_id)) != wanted:
            io.overwrite(target.path(schema_id), wanted)
