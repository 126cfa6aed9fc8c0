"""Reads the snapshots that tags and branches refer to, one by one."""

from collections.abc import Iterator
from dataclasses import dataclass

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.replay import is_marker
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.doctor.problem import passable


@dataclass(frozen=True, slots=True)
class NamedState:
    """The snapshot of a tag or branch. If it cannot be read, `snapshot` is None, and `message` and `path` say why."""

    name: str
    snapshot: Snapshot | None
    branch: str | None = None
    path: str = ""
    message: str = ""


def named_states(table: TableHandle) -> Iterator[NamedState]:
    """Yields every snapshot that a tag or a branch refers to. For a snapshot that cannot be read, yields the reason.

    If a snapshot expired just before a stream wrote its marker tag on the snapshot, the tag is left out: it still
    records how far the stream has got, so nothing is wrong.
    """
    yield from _tags(table, None)
    branches = Branches(table.io, table.path)
    for branch in branches.names():
        try:
            for name, snapshot in branches.snapshots_of(branch):
                yield NamedState(name, snapshot, branch)
        except BucketlineError as e:
            message = passable(e)
            path = e.path or branches.path(branch)
            yield NamedState(f"branch {branch}", None, branch, path, message)
        yield from _tags(table, branch)


def _tags(table: TableHandle, branch: str | None) -> Iterator[NamedState]:
    where, root = "", table.metadata_path
    if branch is not None:
        where, root = f" of branch {branch}", Branches(table.io, table.path).path(branch)
    tags = Tags(table.io, root)
    for tag_name in tags.names():
        name = f"tag {tag_name}{where}"
        try:
            tag = tags.get(tag_name)
        except BucketlineError as e:
            yield NamedState(name, None, branch, tags.path(tag_name), passable(e))
            continue
        if tag is not None and not (is_marker(name) and _has_expired(table, tag.snapshot)):
            yield NamedState(name, tag.snapshot, branch)


def _has_expired(table: TableHandle, snapshot: Snapshot) -> bool:
    """Returns True if a snapshot has expired: both manifest lists that only this snapshot uses are missing."""
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    return not any(table.manifests.exists(name) for name in lists)
