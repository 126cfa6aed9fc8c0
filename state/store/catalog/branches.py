"""The branches of a table. Each branch has its own metadata folder, and shares data files, manifests and index files
with the table.

Source: Paimon 2.0 FileSystemBranchManager.
"""

from collections.abc import Callable
from contextlib import suppress

from bucketline.conf.errors import OptionError
from bucketline.state.commit.not_there import no_branch
from bucketline.state.commit.pins import WHOLE_BRANCH
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import BranchNotFoundError, RemovalUnderWayError, UnsupportedTableError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.pin_json import Hold, Pin, Removal
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.format.paths import BRANCH_DIR, SCHEMA_DIR, branch_at, branch_folder, history_of, parse_branch
from bucketline.state.store.catalog.pins import Notebook, Notes, pinned
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags, undone
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.rest_table_io import owner_of

MAIN = "main"

_LISTINGS = 5
"""How often the folder of a deleted branch is listed again, for files of writers that have not noticed the deletion
yet. A writer gives up when it no longer finds the schema.
"""


class Branches:
    """The branches of the table at `path`, except `main`."""

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._owner = owner_of(io, path)
        self._directory = f"{path}/{BRANCH_DIR}"

    def names(self) -> list[str]:
        """Returns the names of the branches that have a folder, sorted.

        A folder is left out if its branch was deleted and late processes have written files there again: such a folder
        has no schema, and a note in the table says that the branch was deleted.
        """
        found = sorted(filter(None, map(parse_branch, self._io.list_names(self._directory))))
        deleted = Notebook(self._io, self._path).deleted() if found else set()
        return [n for n in found if self._history(n) not in deleted or self._has_schema(n)]

    def known(self) -> list[str]:
        """Returns the names of the branches, sorted. If a catalog manages the branches, the catalog is asked."""
        return self.names() if self._owner is None else self._owner.branches()

    def path(self, name: str) -> str:
        """Returns the metadata folder of a branch."""
        return branch_folder(self._path, name)

    def create(
        self,
        name: str,
        tag: Tag | None = None,
        *,
        world: World = SYSTEM_WORLD,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Creates a branch: with the snapshot of a tag, or, if `tag` is None, without snapshots and with the newest
        schema.

        `check` raises an error if the tag's files may be removed by now. `check` is called before the branch is created
        and again afterwards; if the second call fails, the branch is removed again. Raises OptionError for an existing
        or invalid name, RemovalUnderWayError while a branch of that name is being removed.
        """
        check_branch_name(name)
        if self._owner is not None:
            self._owner.create_branch(name, None if tag is None else tag.name)
            return
        if name in self.names():
            raise _name_taken(name)
        self._clear_for(name, world)
        pin = Pin((Hold(self._history(name), 0),), () if tag is None else (tag.snapshot,))
        with pinned(self._io, self._path, pin, world) as pins:
            check()
            self._publish(name, tag)
            with undone(lambda: self._take_back(name, world)):
                check()
                if not self._has_schema(name):
                    raise OptionError(
                        f"Branch '{name}' was deleted meanwhile; create it again", key="branch", value=name
                    )
                pins.check()

    def _publish(self, name: str, tag: Tag | None) -> None:
        schemas, root = Schemas(self._io, self._path), self.path(name)
        newest = schemas.latest_id()
        assert newest is not None, "a table has a schema"
        last = newest if tag is None else tag.snapshot.schema_id
        branch_schemas = Schemas(self._io, root)
        ids = range(last + 1) if tag is not None else (last,)
        for schema_id in ids:
            # If two processes create the same branch at the same time, only one of them succeeds in creating its first
            # file.
            if not branch_schemas.create(schemas.get(schema_id)) and schema_id == ids[0]:
                raise _name_taken(name)
        if tag is not None:
            # A tag does not keep changelog files: they were removed if the tag's snapshot has expired.
            is_there = tag.snapshot.is_same_as(Snapshots(self._io, self._path).get(tag.snapshot.id))
            # The snapshot comes first, because a tag without its snapshot would look as if the branch had lost the
            # snapshot.
            Snapshots(self._io, root).publish(tag.snapshot if is_there else tag.snapshot.without_changelog())
            Tags(self._io, root).create(tag)

    def delete(self, name: str, *, world: World = SYSTEM_WORLD) -> bool:
        """Removes the metadata of a branch. Returns False if there is no branch of that name. Afterwards, files that
        only this branch used are orphan files.
        """
        if name not in self.known():
            return False
        if self._owner is not None:
            self._owner.delete_branch(name)
            return True
        notebook = Notebook(self._io, self.path(name))
        announced = notebook.announce(Removal(notebook.history, WHOLE_BRANCH), world)
        self._remove(name, world, lambda: notebook.is_there(announced))
        # This also removes files that an earlier, interrupted removal of the branch has left.
        for note, removal in notebook.look(announced).removals.items():
            if removal is not None and removal.history == notebook.history:
                notebook.drop(note)
        notebook.drop(announced)
        return True

    def rename(self, name: str, to: str, *, world: World = SYSTEM_WORLD) -> None:
        """Gives a branch another name: its metadata is copied, and then removed under the old name. No writer may write
        to the branch meanwhile. Raises VersionNotFoundError for a branch that does not exist, OptionError for a name
        that is taken, and the errors of `create`.
        """
        if self._owner is not None:
            raise UnsupportedTableError(
                "the catalog manages the branches of this table, and cannot rename a branch; create a branch with "
                "the new name",
                branch=name,
            )
        check_branch_name(to)
        if name not in self.names():
            raise no_branch(name, self.names())
        if to in self.names():
            raise _name_taken(to)
        self._clear_for(to, world)
        source, target = self.path(name), self.path(to)
        with pinned(self._io, self._path, Pin((Hold(self._history(to), 0),)), world) as pins:
            files = self._io.list_files(source)
            with undone(lambda: self._take_back(to, world)):
                # The schema is copied last, because readers ignore a copy without a schema, and `delete` removes it.
                for file in sorted(files, key=lambda f: f.path.startswith(f"{source}/{SCHEMA_DIR}/")):
                    place = f"{target}{file.path.removeprefix(source)}"
                    self._io.overwrite(place, self._io.read(file.path))
                pins.check()
        self.delete(name, world=world)

    def finish_removals(self, notes: Notes, world: World) -> None:
        """Completes the interrupted removals of branches that are announced in `notes`, and removes the announcements.
        Also removes files that late processes have written into the folders of deleted branches.
        """
        notebook = Notebook(self._io, self._path)
        for note, removal in notes.removals.items():
            name = self._of_whole(removal)
            if name is not None:
                self._remove(name, world, lambda note=note: notebook.is_there(note))  # type: ignore[misc]
                notebook.drop(note)
        for name in sorted({n for removal in notes.deleted.values() if (n := self._of_whole(removal)) is not None}):
            self._clear(name, world)

    def _clear_for(self, name: str, world: World) -> None:
        """Prepares for a new branch with the name of a deleted branch.

        Raises RemovalUnderWayError if another process is removing files of the old branch.
        """
        notebook = Notebook(self._io, self.path(name))
        if not self._clear(name, world):
            raise RemovalUnderWayError(
                f"{self._path}: files of the deleted branch '{name}' are being removed by another process, so "
                "nothing is done; try again",
                path=self.path(name),
            )
        # From now on, a folder with that name and without a schema means a branch that has lost its schema.
        for note, removal in notebook.look().deleted.items():
            if removal is not None and removal.history == notebook.history:
                notebook.drop(note)

    def _clear(self, name: str, world: World) -> bool:
        """Removes the folder of a branch that has no schema. Returns False if another process is creating a branch with
        that name.
        """
        if self._has_schema(name) or not self._io.list_files(self.path(name)):
            return True
        notebook = Notebook(self._io, self.path(name))
        announced = notebook.announce(Removal(notebook.history, WHOLE_BRANCH), world)
        try:
            pins = notebook.look(announced).pins.values()
            is_held = any(pin is None or any(h.history == notebook.history for h in pin.holds) for pin in pins)
            if not is_held and not self._has_schema(name):
                self._remove(name, world, lambda: notebook.is_there(announced))
            return not is_held
        finally:
            notebook.drop(announced)

    def _take_back(self, name: str, world: World) -> None:
        """Removes a branch that this process has just created. If this process dies meanwhile, the next process that
        removes files completes the removal.
        """
        notebook = Notebook(self._io, self.path(name))
        announced = notebook.announce(Removal(notebook.history, WHOLE_BRANCH), world)
        self._remove(name, world, lambda: notebook.is_there(announced))
        notebook.drop(announced)

    def _remove(self, name: str, world: World, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Removes the files of a branch, until `goes_on` returns False because another process has finished the
        removal.
        """
        root = self.path(name)
        Notebook(self._io, root).note_deleted(world)
        for _ in range(_LISTINGS):
            files = self._io.list_files(root)
            # A branch without a schema stops every removal of orphan files, so the schema is removed last. A writer
            # looks for the schema after its commit. Snapshots that were committed before the schema was removed are
            # found by the next listing.
            for file in sorted(files, key=lambda f: f.path.startswith(f"{root}/{SCHEMA_DIR}/")):
                if not goes_on():
                    return
                self._io.delete(file.path)
            if not files:
                break
        self._io.delete_folder(root)

    def _of_whole(self, removal: Removal | None) -> str | None:
        """Returns the name of the branch if the removal is the removal of a whole branch; None for any other
        removal.
        """
        if removal is None or removal.end < WHOLE_BRANCH:
            return None
        return branch_at(self._path, f"{self._path}/{removal.history}")

    def _history(self, name: str) -> str:
        return history_of(self.path(name))[1]

    def _has_schema(self, name: str) -> bool:
        return Schemas(self._io, self.path(name)).latest_id() is not None

    def states(self) -> list[tuple[str, Snapshot]]:
        """Returns snapshots of all branches, each with a description for messages. Together, these snapshots have all
        files that the branches share with the table (see `states_of`). Raises MissingSnapshotError for a branch that
        has lost snapshots.
        """
        for name in self.names():
            self.check_complete(name)
        return [state for name in self.names() for state in self.states_of(name)]

    def check_complete(self, name: str) -> None:
        """Raises MissingSnapshotError for a branch that has lost snapshots.

        A branch that is being deleted, or whose deletion was interrupted, raises no error, because its snapshots are
        removed before its schema.
        """
        with suppress(BranchNotFoundError):
            Snapshots(self._io, self.path(name)).check_complete()

    def is_going(self, name: str) -> bool:
        """Returns True if a branch is being deleted, or was deleted."""
        return self._history(name) in Notebook(self._io, self._path).deleted()

    def states_of_others(self, root: str) -> list[tuple[str, Snapshot]]:
        """Returns snapshots of all histories except the history at `root`, each with a description for messages.
        Together, these snapshots have all files that the other histories share with the history at `root`.

        A history is the sequence of snapshots of the table or of a branch. `root` is the metadata folder of the table
        or of a branch. Raises the errors of `states`.
        """
        if root == self._path:
            return self.states()
        for name in self.names():
            if self.path(name) != root:
                self.check_complete(name)
        others = [(f"branch {n}", self.path(n)) for n in self.names() if self.path(n) != root]
        states: list[tuple[str, Snapshot]] = []
        for where, other in (("'main'", self._path), *others):
            states += [(f"{subject} of {where}", state) for subject, state in self._shared(other, root)]
            states += [(f"tag {t.name} of {where}", t.snapshot) for t in Tags(self._io, other).list()]
        return states

    def roots_of_others(self, root: str) -> list[str]:
        """Returns the metadata folders of the table and its branches, except the folder `root`."""
        return [other for other in (self._path, *map(self.path, self.names())) if other != root]

    def snapshots_of_others(self, root: str, first: int, last: int) -> list[Snapshot]:
        """Returns the snapshots with ids from `first` to `last` (both included) of the table and all its branches. The
        snapshots in the metadata folder `root`, which belongs to the table or to one branch, are left out.
        """
        histories = [Snapshots(self._io, other) for other in self.roots_of_others(root)]
        found = [(s, i) for s in histories for i in s.ids() if first <= i <= last]
        return [snapshot for s, i in found if (snapshot := s.get(i)) is not None]

    def states_of(self, name: str) -> list[tuple[str, Snapshot]]:
        """Returns snapshots of a branch, each with a description for messages. Together, these snapshots have all files
        that the branch shares with the table.

        These snapshots are the oldest snapshot of the branch, the tags of the branch (which may be older), and, if the
        table was fast-forwarded to the branch, the later snapshots that the table got from the branch. Other snapshots
        are not needed: a file that is older than the branch and still is in a later snapshot is also in the oldest
        snapshot.
        """
        tags = Tags(self._io, self.path(name)).list()
        return self.snapshots_of(name) + [(f"tag {t.name} of branch {name}", t.snapshot) for t in tags]

    def snapshots_of(self, name: str) -> list[tuple[str, Snapshot]]:
        """Returns the snapshots that `states_of` returns, without the tags."""
        return [(f"{subject} of branch {name}", state) for subject, state in self._shared(self.path(name), self._path)]

    def _shared(self, other: str, root: str) -> list[tuple[str, Snapshot]]:
        """Returns snapshots of the history in the folder `other`, each with a description. Together they name all files
        that the history at `other` has in common with the history at `root`: these files must stay when files of the
        history at `root` are removed.
        """
        snapshots = Snapshots(self._io, other)
        ids = snapshots.ids()
        states: list[tuple[str, Snapshot]] = []
        for snapshot_id in dict.fromkeys([*ids[:1], *self._forwarded(snapshots, ids[1:], root)]):
            state = snapshots.get(snapshot_id)
            if state is not None:
                states.append((f"snapshot {snapshot_id}", state))
        known = snapshots.without_file()
        return states if known is None else [*states, (f"snapshot {known.id}", known)]

    def _forwarded(self, branch: Snapshots, ids: list[int], root: str) -> list[int]:
        """Returns the ids of the snapshots of a branch, in ascending order, that the history at `root` also has or had.

        The shared snapshots are the first snapshots of the branch, so bisection finds the last of them. Snapshots of
        the branch that are older than every snapshot at `root` may have expired at `root`. The newest of these older
        snapshots counts as shared, so that its files are kept.
        """
        main = Snapshots(self._io, root)
        # An interrupted fast-forward to a branch with older snapshots leaves a hint EARLIEST that is too high.
        earliest = min(main.ids(), default=None)
        expired = [i for i in ids if earliest is None or i < earliest]
        known = ids[len(expired) :]
        low, high = 0, len(known)
        while low < high:
            middle = (low + high) // 2
            own = main.get(known[middle])
            if own is not None and own == branch.get(known[middle]):
                low = middle + 1
            else:
                high = middle
        # Common snapshots may have expired on one side. The table itself has a longer history than its branches.
        return [*(expired if branch.root == self._path else expired[-1:]), *known[:low]]


def _name_taken(name: str) -> OptionError:
    return OptionError(f"Branch name '{name}' already exists.", key="branch", value=name)


def check_branch_name(name: str) -> None:
    """Raises OptionError if a branch cannot have this name."""
    if not name.strip():
        raise OptionError("Branch name shouldn't be blank.", key="branch", value=name)
    if name in (".", ".."):
        raise OptionError(f"branch name {name!r}: '.' and '..' are not allowed", key="branch", value=name)
    if name == MAIN or name.isdigit():
        raise OptionError(f"Branch name {name!r}: '{MAIN}' and numbers are not allowed", key="branch", value=name)
    if "/" in name or "\x00" in name:
        raise OptionError(
            f"branch name {name!r}: a branch is a folder, so its name cannot hold '/'", key="branch", value=name
        )
