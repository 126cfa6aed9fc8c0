"""Makes a branch the newest history of its table: `main` gets the branch's schemas, snapshots and tags.

What `main` has beyond the last snapshot that both share is replaced. It begins with a rollback to that snapshot, and
then adds one snapshot after the other, so an interrupted run leaves `main` at a state of the branch, and is repeated.
No writer of `main` should commit at the same time. The branch stays as it is.
Source: Paimon 2.0 FileSystemBranchManager.fastForward; unlike there, tags of shared snapshots stay.
"""

from bucketline.conf.errors import OptionError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.snapshot_json import encode_snapshot
from bucketline.state.store.catalog.branches import MAIN, Branches
from bucketline.state.store.catalog.rollback import newest_to_write, rollback_to
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.storage.file_io import FileIO


def fast_forward(io: FileIO, path: str, branch: str) -> Snapshot:
    """The newest snapshot of the table at `path`, which is that of the branch. Raises OptionError for a branch that is
    not there, or has no snapshot."""
    branches = Branches(io, path)
    names = branches.known()
    if branch not in names:
        known = ", ".join([MAIN, *names])
        raise OptionError(f"Branch name '{branch}' doesn't exist; there are: {known}", key="branch", value=branch)
    io.require_publish()
    root = branches.path(branch)
    source, target = Snapshots(io, root), Snapshots(io, path)
    newest = newest_to_write(source)
    if newest is None:
        raise OptionError(
            f"Cannot fast forward branch {branch}, because it does not have snapshot.", key="branch", value=branch
        )
    if target.owner is not None:
        target.owner.fast_forward(branch)
        return newest
    own = newest_to_write(target)
    ids = source.ids()
    shared = _last_shared(source, target, ids)
    if shared is None:
        _replace(io, source, target, ids, None if own is None else own.id)
    elif own is not None and own.id > shared:
        rollback_to(io, path, shared)
    for tag in Tags(io, path).list():
        if tag.snapshot.id >= ids[0] and (shared is None or tag.snapshot.id > shared):
            Tags(io, path).delete(tag.name)
    _copy_schemas(io, root, path)
    for snapshot_id in ids:
        if shared is None or snapshot_id > shared:
            snapshot = source.get(snapshot_id)
            if snapshot is not None and target.get(snapshot_id) != snapshot:
                target.publish(snapshot)
    target.write_latest_hint(newest.id)
    if target.earliest_id() is None:
        target.write_earliest_hint(ids[0])
    for tag in Tags(io, root).list():
        Tags(io, path).replace(tag)
    return newest


def _last_shared(source: Snapshots, target: Snapshots, ids: list[int]) -> int | None:
    """The newest snapshot that both histories have; the shared ones are the first of the branch."""
    last = None
    for snapshot_id in ids:
        snapshot = source.get(snapshot_id)
        if snapshot is None or target.get(snapshot_id) != snapshot:
            break
        last = snapshot_id
    return last


def _replace(io: FileIO, source: Snapshots, target: Snapshots, ids: list[int], newest: int | None) -> None:
    """Puts the branch's snapshots in the place of others with their ids, and removes those that come after."""
    if newest is None or newest < ids[0]:
        return
    for snapshot_id in ids:
        snapshot = source.get(snapshot_id)
        if snapshot is not None and snapshot_id <= newest:
            io.overwrite(target.path(snapshot_id), encode_snapshot(snapshot))
    if newest > ids[-1]:
        rollback_to(io, target.root, ids[-1])


def _copy_schemas(io: FileIO, root: str, path: str) -> None:
    """Gives the table the schemas of the branch, and no others from the branch's first one on."""
    source, target = Schemas(io, root), Schemas(io, path)
    ids = source.ids()
    for schema_id in reversed([i for i in target.ids() if i > ids[-1]]):
        io.delete(target.path(schema_id))
    for schema_id in ids:
        wanted = io.read(source.path(schema_id))
        if io.read_optional(target.path(schema_id)) != wanted:
            io.overwrite(target.path(schema_id), wanted)
