"""The files that a table needs: the files that its snapshots, tags, changelogs, branches and compaction plans name."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from bucketline.state.commit.replay import is_marker
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.entries import ManifestEntry, Snapshot
from bucketline.state.format.paths import OWN_DIR
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.changelogs import changelog_ids, read_changelog
from bucketline.state.store.catalog.kept_files import reraise_unless_missing
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.pins import Notebook
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.plans.plan_files import named_by_plans
from bucketline.state.store.storage.file_io import FileIO

Progress = Callable[[int, int], None]
"""A function that is called with the number of steps that are done, and the number of all steps."""


class NamedFiles:
    """The names of all files that some snapshot, tag, changelog, branch or plan of a table names. Each manifest is read
    once.
    """

    def __init__(self, io: FileIO, path: str, manifests: Manifests) -> None:
        self._io, self._path, self._manifests = io, path, manifests
        self.names: set[str] = set()
        self._newest: dict[str, Snapshot] = {}

    def collect(self, progress: Progress) -> None:
        """Collects the names of all files that a snapshot, tag, changelog, branch or plan of the table names.
        `progress` is called after each snapshot. Raises CorruptFileError if a snapshot or tag exists but cannot be
        read.
        """
        self._add_pinned()
        roots = self._roots()
        total = sum(len(Snapshots(self._io, root).ids()) for _, root in roots)
        done = 0
        for branch, root in roots:
            for state in self._added(branch, root, _states(self._io, root)):
                if state.startswith("snapshot "):
                    done += 1
                    progress(done, max(done, total))
            self.names |= named_by_plans(self._io, root)
            for snapshot_id in changelog_ids(self._io, root):
                old = read_changelog(self._io, root, snapshot_id)
                if old is None:
                    continue
                for name_of_list in (old.base_manifest_list, old.delta_manifest_list, old.changelog_manifest_list):
                    self._add_changelog(name_of_list)

    def follow(self) -> None:
        """Adds the names of files that are needed by snapshots published since the last call, and by the present tags,
        branches and compaction plans.
        """
        # Pins are read before the new snapshots, because a process removes its pin after it has published its snapshot.
        # Whatever a pin refers to was named before by another snapshot, which an earlier call has seen.
        self._add_pinned()
        for branch, root in self._roots():
            known = self._newest.get(root)
            snapshots = Snapshots(self._io, root)
            # After a rollback, other snapshots may have the same ids.
            is_same = known is not None and snapshots.get(known.id) == known
            after = known.id if is_same and known is not None else 0
            for _ in self._added(branch, root, _states(self._io, root, after)):
                pass
            self.names |= named_by_plans(self._io, root)

    def _roots(self) -> list[tuple[str | None, str]]:
        """Returns the metadata folders of the table (with None) and of its branches (with their names)."""
        branches = Branches(self._io, self._path)
        return [(None, self._path), *((n, branches.path(n)) for n in branches.names())]

    def _added(self, branch: str | None, root: str, states: Iterable[tuple[str, Snapshot]]) -> Iterator[str]:
        """Adds the names of the files that snapshots and tags need. `states` has each snapshot with its description,
        for example "snapshot 7". Adds the names for one snapshot after the other, and yields the description of each
        snapshot after its names were added.
        """
        branches = Branches(self._io, self._path)
        if Schemas(self._io, root).latest_id() is None and (branch is None or not branches.is_going(branch)):
            raise CorruptFileError(
                f"{root}: there is no schema, so it is not known which files are in use; restore the schema files "
                "from a copy",
                path=root,
            )
        # If the snapshot's own file is missing, its other files are needed in case that file is restored.
        Snapshots(self._io, root).check_complete() if branch is None else branches.check_complete(branch)
        where = "" if branch is None else f" of branch {branch}"
        for name, snapshot in states:
            self._add_state(f"{name}{where}", root, name, snapshot)
            self._add_changelog(snapshot.changelog_manifest_list)
            if name == f"snapshot {snapshot.id}":
                self._newest[root] = snapshot
            yield name

    def _add_pinned(self) -> None:
        """Adds the snapshots and files to which other processes are about to refer. Raises CorruptFileError for a pin
        that cannot be read, because it is not known which files the process of the pin needs.
        """
        notes = Notebook(self._io, self._path).look()
        for name, pin in notes.pins.items():
            if pin is None:
                raise CorruptFileError(
                    f"{self._path}: {name} in the folder '{OWN_DIR}' cannot be read, so it is not known which files "
                    "are in use; expiry removes this file once it is an hour old",
                    path=self._path,
                )
            for state in pin.states:
                with suppress(CorruptFileError):
                    self._add_state(name, self._path, name, state)
                self._add_changelog(state.changelog_manifest_list)

    def _add_state(self, shown: str, root: str, name: str, snapshot: Snapshot) -> None:
        try:
            self._add_lists(snapshot)
        except StorageError as e:
            reraise_unless_missing(e)
            if is_marker(name) or name not in (n for n, _ in _states(self._io, root)):
                # The snapshot has expired or the tag was deleted meanwhile; or the tag is a marker tag, which records
                # how far its stream has got even without the snapshot.
                return
                # even without the snapshot
            if name == f"snapshot {snapshot.id}" and self._is_going(root, snapshot):
                return  # an expiry has removed a part of its files, and removes the snapshot too
            raise CorruptFileError(
                f"{self._path}: {shown} cannot be read, so it is not known which files are in use: {e.message}; "
                f"expire or delete {shown}, or see what `doctor` says",
                path=self._path,
                state=shown,
            ) from e

    def _is_going(self, root: str, snapshot: Snapshot) -> bool:
        """Returns True if the removal of a snapshot of the history at `root` has been announced."""
        notebook, snapshots = Notebook(self._io, root), Snapshots(self._io, root)
        removals = [r for r in notebook.look().removals.values() if r is not None and r.history == notebook.history]
        return any(snapshot.id < r.end and r.is_of(snapshots.get(r.end - 1)) for r in removals)

    def _add_lists(self, snapshot: Snapshot) -> None:
        self._add_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        self._add_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)
        if snapshot.statistics is not None:
            self.names.add(snapshot.statistics)
        if snapshot.index_manifest is not None and snapshot.index_manifest not in self.names:
            self.names |= {e.file_name for e in self._manifests.read_index(snapshot.index_manifest)}
            self.names.add(snapshot.index_manifest)

    def _add_changelog(self, list_name: str | None) -> None:
        """Adds the names of the files that a changelog needs: the manifest list `list_name`, its manifests, and their
        files. The list and the manifests may be missing: they are removed with the changelog's snapshot unless a tag
        keeps the snapshot.
        """
        if list_name is None:
            return
        try:
            self._add_list(list_name, None)
        except StorageError as e:
            reraise_unless_missing(e)
            self.names.add(list_name)

    def _add_list(self, name: str, size: int | None) -> None:
        if name in self.names:
            return
        for meta in self._manifests.read_list(name, size):
            if meta.file_name not in self.names:
                self.names.update(_data_names(self._manifests.read(meta)))
                self.names.add(meta.file_name)
        self.names.add(name)


def _states(io: FileIO, root: str, after: int = 0) -> Iterator[tuple[str, Snapshot]]:
    """Yields the snapshots with an id above `after`, in ascending order, and then all tags, each with a description."""
    snapshots = Snapshots(io, root)
    for snapshot_id in snapshots.ids():
        snapshot = snapshots.get(snapshot_id) if snapshot_id > after else None
        if snapshot is not None:
            yield f"snapshot {snapshot_id}", snapshot
    known = snapshots.without_file()
    if known is not None:
        yield f"snapshot {known.id} of the catalog", known
    for tag in Tags(io, root).list():
        yield f"tag {tag.name}", tag.snapshot


def _data_names(entries: Iterable[ManifestEntry]) -> Iterator[str]:
    for entry in entries:
        yield entry.file.file_name
        yield from entry.file.extra_files
