"""The announcement of one run of an expiry, from before its look at pins until its last file is removed."""

from contextlib import suppress
from typing import Self

from bucketline.state.determinism import World
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.pin_json import Removal
from bucketline.state.store.catalog.pins import Notebook


class Announced:
    """What a run has announced. `name` is its file; None if it only does what others have announced."""

    def __init__(self, notebook: Notebook, world: World) -> None:
        self._notebook, self._world = notebook, world
        self._removal: Removal | None = None
        self.name: str | None = None
        self.is_half_done = False
        """Whether some files are gone and others are not yet: then the announcement stays, for the next run."""

    def announce(self, end: int, last: Snapshot | None) -> None:
        """Announces that the snapshots before `end` go, of which `last` is the last."""
        removal = Removal(self._notebook.history, end, "" if last is None else last.base_manifest_list)
        if removal == self._removal:
            return
        before, self.name = self.name, self._notebook.announce(removal, self._world)
        self._removal = removal
        if before is not None:
            self._notebook.drop(before)

    def goes_on(self) -> bool:
        """Whether files may be removed, from now on: False once another run has dropped the announcement."""
        if self.name is not None and not self._notebook.is_there(self.name):
            return False
        self.is_half_done = True
        return True

    def withdraw(self) -> None:
        """Removes the announcement, unless the next run has to finish what it says. Raises StorageError; one that stays
        is dropped by a later run."""
        if self.name is not None and not self.is_half_done:
            self._notebook.drop(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with suppress(*(() if error is None else (StorageError,))):
            self.withdraw()
