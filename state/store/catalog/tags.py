"""The tags of a table: named snapshots, which are kept when the snapshots themselves expire. Deleting or replacing a
tag here changes only the tag's file; `expiry.delete_tag` also removes the files that only the tag needs.

Source: Paimon 2.0 TagManager.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.commit.not_there import no_snapshot, no_tag
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.pin_json import Pin
from bucketline.state.format.json_files.tag_json import Tag, decode_tag, encode_tag
from bucketline.state.format.paths import TAG_DIR, parse_tag, tag_name
from bucketline.state.store.catalog.pins import pin_of, pinned
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.rest_table_io import owner_of


class Tags:
    """The tags of the table, or of the branch, at `path`."""

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._owner = owner_of(io, path)
        self._directory = f"{path}/{TAG_DIR}"

    def names(self) -> list[str]:
        """Returns the names of all tags, sorted."""
        names = [parse_tag(name) for name in self._io.list_names(self._directory)]
        return sorted(name for name in names if name is not None)

    def get(self, name: str) -> Tag | None:
        """Returns the tag of that name; None if there is no such tag. Raises CorruptFileError."""
        path = self.path(name)
        data = self._io.read_optional(path)
        if data is None:
            return None
        with naming_file(path):
            return decode_tag(name, data)

    def list(self) -> list[Tag]:
        """Returns all tags, ordered by snapshot id and name."""
        tags = [self.get(name) for name in self.names()]
        return sorted((t for t in tags if t is not None), key=lambda t: (t.snapshot.id, t.name))

    def create(self, tag: Tag) -> bool:
        """Creates a tag; returns False if a tag of that name exists. Raises OptionError for an invalid name."""
        check_tag_name(tag.name)
        if self._owner is not None:
            return self._owner.create_tag(tag)
        return self.create_by_file(tag)

    def create_by_file(self, tag: Tag) -> bool:
        """Creates a tag as `create` does, but writes the tag's file even if a catalog stores the tags. The marker tags
        of streams are always files.
        """
        check_tag_name(tag.name)
        return self._io.publish(self.path(tag.name), encode_tag(tag))

    def replace(self, tag: Tag) -> None:
        """Creates a tag, or replaces the tag with that name, in one step. The tag's file is written even if a catalog
        stores the tags, because a catalog cannot replace a tag in one step.
        """
        check_tag_name(tag.name)
        self._io.overwrite(self.path(tag.name), encode_tag(tag))

    def delete(self, name: str) -> None:
        """Removes the tag's file; a missing file is ignored."""
        if self._owner is not None:
            # The catalog may not know the tag, because a tag that was replaced through its file need not be in the
            # catalog.
            self._owner.delete_tag(name)
        self._io.delete(self.path(name))

    def path(self, name: str) -> str:
        """Returns the path of a tag's file, which need not exist."""
        return f"{self._directory}/{tag_name(name)}"


def tag_snapshot(
    io: FileIO,
    path: str,
    name: str,
    snapshot_id: int | None = None,
    *,
    retained_ms: int | None = None,
    world: World = SYSTEM_WORLD,
    check: Callable[[Snapshot], None] = lambda _: None,
) -> Tag:
    """Creates a tag of a snapshot, by default of the newest snapshot, and returns it. The tag stays until it is
    deleted, or for `retained_ms` milliseconds if this is not None.

    `check` raises an error if files of the snapshot are missing. `check` is called when the tag exists; if `check`
    fails, the tag is deleted again. Raises OptionError for an existing or invalid name, VersionNotFoundError for a
    snapshot that does not exist, RemovalUnderWayError for a snapshot that is being expired.
    """
    check_tag_name(name)
    snapshots, tags = Snapshots(io, path), Tags(io, path)
    tag = _tag_of(snapshots, name, snapshot_id, retained_ms, world)
    with pinned(io, path, pin_of(path, tag.snapshot), world) as pin:
        check_kept(snapshots, tag)
        if not tags.create(tag):
            raise OptionError(f"Tag '{name}' already exists.", key="tag", value=name)
        with undone(lambda: tags.delete(name)):
            check_kept(snapshots, tag)
            check(tag.snapshot)
            pin.check()
    return tag


def move_tag(
    io: FileIO,
    path: str,
    name: str,
    snapshot_id: int | None = None,
    *,
    retained_ms: int | None = None,
    world: World = SYSTEM_WORLD,
    check: Callable[[Snapshot], None] = lambda _: None,
) -> None:
    """Moves an existing tag to a snapshot, by default to the newest snapshot, in one step. Files that only the tag
    needed become orphan files.

    `check` raises an error if files of the snapshot are missing. `check` is called when the tag has been moved; if
    `check` fails, the tag is moved back. Raises VersionNotFoundError for a tag or a snapshot that does not exist,
    OptionError for tags that a catalog stores, RemovalUnderWayError for a snapshot that is being expired.

    Source: Paimon 2.0 TagManager.replaceTag.
    """
    snapshots, tags = Snapshots(io, path), Tags(io, path)
    before = tags.get(name)
    if before is None:
        raise no_tag(name, tags.names())
    if snapshots.owner is not None:
        raise OptionError(
            f"tag '{name}' is kept by the catalog, which cannot move it; delete the tag and create it again",
            key="tag",
            value=name,
        )
    tag = _tag_of(snapshots, name, snapshot_id, retained_ms, world)
    pins = pin_of(path, tag.snapshot)
    # The old snapshot is pinned too, until it is certain that the tag does not move back to it.
    with pinned(io, path, replace(pins, states=(*pins.states, before.snapshot)), world) as pin:
        check_kept(snapshots, tag)
        if tags.get(name) is None:
            raise OptionError(f"Tag '{name}' doesn't exist any more; create it instead", key="tag", value=name)
        tags.replace(tag)
        with undone(lambda: tags.replace(before)):
            check_kept(snapshots, tag)
            check(tag.snapshot)
            pin.check()


def rename_tag(io: FileIO, path: str, name: str, to: str, *, world: World = SYSTEM_WORLD) -> None:
    """Renames a tag. No file that the tag needs is removed. Raises VersionNotFoundError for a tag that does not exist,
    OptionError for a name that is taken or invalid.
    """
    tags = Tags(io, path)
    tag = tags.get(name)
    if tag is None:
        raise no_tag(name, tags.names())
    with pinned(io, path, Pin(states=(tag.snapshot,)), world) as pin:
        check_still_there(tags, tag)
        if not tags.create(replace(tag, name=to)):
            raise OptionError(f"Tag '{to}' already exists.", key="tag", value=to)
        with undone(lambda: tags.delete(to)):
            check_still_there(tags, tag)
            pin.check()
    tags.delete(name)


def check_still_there(tags: Tags, tag: Tag) -> None:
    """Raises OptionError if a tag has been deleted or moved since it was read. The caller must hold a pin: a process
    that deletes the tag after this check respects the pin.
    """
    found = tags.get(tag.name)
    if found is None or found.snapshot.base_manifest_list != tag.snapshot.base_manifest_list:
        gone = "doesn't exist any more" if found is None else "was moved meanwhile"
        raise OptionError(f"Tag '{tag.name}' {gone}.", key="tag", value=tag.name)


@contextmanager
def undone(undo: Callable[[], None]) -> Iterator[None]:
    """Runs a `with` block that checks something that was just published. If the block raises a BucketlineError, calls
    `undo`, and raises the error again.
    """
    try:
        yield
    except BucketlineError:
        undo()
        raise


def _tag_of(snapshots: Snapshots, name: str, snapshot_id: int | None, retained_ms: int | None, world: World) -> Tag:
    """Returns a new tag for the snapshot, by default for the newest snapshot; the tag is not written. Raises
    VersionNotFoundError for a snapshot that does not exist.
    """
    snapshot = snapshots.latest() if snapshot_id is None else snapshots.get(snapshot_id)
    if snapshot is None:
        raise no_snapshot(snapshots.root, snapshot_id, snapshots.ids())
    created = None if retained_ms is None else world.clock.local_ms()
    return Tag(name, snapshot, created_local_ms=created, retained_ms=retained_ms)


def check_kept(snapshots: Snapshots, tag: Tag) -> None:
    """Raises OptionError if the snapshot of the tag has expired or was rolled back."""
    found = snapshots.get(tag.snapshot.id)
    if found is None or found.base_manifest_list != tag.snapshot.base_manifest_list:
        wanted = tag.snapshot.id
        raise OptionError(
            f"{snapshots.root} has no snapshot {wanted} any more; choose another snapshot", key="snapshot", value=wanted
        )


def check_tag_name(name: str) -> None:
    """Raises OptionError if a tag cannot have this name."""
    if not name.strip():
        raise OptionError("Tag name shouldn't be blank.", key="tag", value=name)
    if name in (".", ".."):
        raise OptionError(f"tag name {name!r}: '.' and '..' are not allowed", key="tag", value=name)
    if "/" in name or "\x00" in name:
        raise OptionError(f"tag name {name!r}: a tag is a file, so its name cannot hold '/'", key="tag", value=name)
