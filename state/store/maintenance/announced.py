"""The file by which one run of expiry announces to other processes that it removes snapshots. The run writes this file
before it looks at pins (files by which other processes keep snapshots from removal), and removes it when the files of
all snapshots are removed.
"""

from contextlib import suppress
from typing import Self

from bucketline.state.determinism import World
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.pin_json import Removal
from bucketline.state.store.catalog.pins import Notebook


class Announced:
    """An announcement that one run of expiry is about to remove snapshots. `name` is the name of its file; None if this
    run only finishes what other runs have announced.
    """

    def __init__(self, notebook: Notebook, world: World) -> None:
        self._notebook, self._world = notebook, world
        self._removal: Removal | None = None
        self.name: str | None = None
        self.is_half_done = False
        """True when some files are removed and others are not yet. Then the announcement stays, so that the next run of
        expiry completes the removal.
        """

    def announce(self, end: int, last: Snapshot | None) -> None:
        """Announces that the snapshots before the id `end` are about to be removed. `last` is the newest of these
        snapshots.
        """
        removal = Removal(self._notebook.history, end, "" if last is None else last.base_manifest_list)
        if removal == self._removal:
            return
        before, self.name = self.name, self._notebook.announce(removal, self._world)
        self._removal = removal
        if before is not None:
            self._notebook.drop(before)

    def goes_on(self) -> bool:
        """Returns True if this run of expiry may remove files. Returns False if another run has removed the file by
        which this run announces to other processes that it removes snapshots.
        """
        if self.name is not None and not self._notebook.is_there(self.name):
            return False
        self.is_half_done = True
        return True

    def withdraw(self) -> None:
        """Removes the announcement, unless the next run has to complete the removal. Raises StorageError; a later run
        then removes the announcement.
        """
        if self.name is not None and not self.is_half_done:
            self._notebook.drop(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with suppress(*(() if error is None else (StorageError,))):
            self.withdraw()
