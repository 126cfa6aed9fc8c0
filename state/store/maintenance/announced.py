"""The announcement of one run of an expiry, which exists from before the run looks at pins until the last file is
removed.
"""

from contextlib import suppress
from typing import Self

from bucketline.state.determinism import World
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.pin_json import Removal
from bucketline.state.store.catalog.pins import Notebook


class Announced:
    """An announcement of removals by one run of expiry. `name` is the file of the announcement; None if this run only
    finishes what other runs have announced.
    """

    def __init__(self, notebook: Notebook, world: World) -> None:
        self._notebook, self._world = notebook, world
        self._removal: Removal | None = None
        self.name: str | None = None
        self.is_half_done = False
        """True once some files are gone and others still exist: then the announcement of the removal stays, for the
        next run of expiry.
        """

    def announce(self, end: int, last: Snapshot | None) -> None:
        """Announces that the snapshots before `end` are about to be removed, of which `last` is the newest."""
        removal = Removal(self._notebook.history, end, "" if last is None else last.base_manifest_list)
        if removal == self._removal:
            return
        before, self.name = self.name, self._notebook.announce(removal, self._world)
        self._removal = removal
        if before is not None:
            self._notebook.drop(before)

    def goes_on(self) -> bool:
        """Whether this run of expiry may remove files: False once another run has dropped the announcement of the
        removal.
        """
        if self.name is not None and not self._notebook.is_there(self.name):
            return False
        self.is_half_done = True
        return True

    def withdraw(self) -> None:
        """Removes the announcement, unless the next run has to finish the removal. Raises StorageError; a later run
        then drops the announcement.
        """
        if self.name is not None and not self.is_half_done:
            self._notebook.drop(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with suppress(*(() if error is None else (StorageError,))):
            self.withdraw()
