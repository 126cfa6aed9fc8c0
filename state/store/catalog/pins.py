"""Pins, announcements of removals, and notes of deleted branches, in the folder `bucketline/` of a table, which its
branches share.

A pin keeps a snapshot for a process that is about to refer to it. Each pin, announcement or note is a file with a new
name: created if absent, never changed. Pins and announcements are removed by the process that wrote them; old ones are
removed by the next process that removes files (`maintenance/left_pins`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from bucketline.state.commit.pins import WHOLE_BRANCH, removal_in_the_way
from bucketline.state.determinism import World
from bucketline.state.errors import CorruptFileError, RemovalUnderWayError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.pin_json import (
    Hold,
    Pin,
    Removal,
    decode_pin,
    decode_removal,
    encode_pin,
    encode_removal,
)
from bucketline.state.format.paths import OWN_DIR, history_of
from bucketline.state.store.storage.file_io import FileIO

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_PIN, _REMOVAL, _DELETED = "pin-", "removal-", "deleted-"
_WAITS_MS = (10, 20, 50, 100, 200, 400, 800)
"""Pauses between looks at announcements. A process that refers to a snapshot waits a second and a half for a removal to
end."""


@dataclass(frozen=True, slots=True)
class Notes:
    """The pins, announcements and notes of deleted branches that one listing has found, each by the name of its file.
    None stands for a file that cannot be read: it must be assumed to forbid everything.
    """

    pins: Mapping[str, Pin | None] = field(default_factory=dict)
    removals: Mapping[str, Removal | None] = field(default_factory=dict)
    deleted: Mapping[str, Removal | None] = field(default_factory=dict)
    """Branches that were deleted. If such a branch has a folder without a schema, the table is not damaged."""


class Notebook:
    """The pins and announcements of a table, found from the metadata folder of the table or of a branch of it."""

    def __init__(self, io: FileIO, root: str) -> None:
        self._io = io
        self.table, self.history = history_of(root)
        self._folder = f"{self.table}/{OWN_DIR}"

    def look(self, own: str | None = None) -> Notes:
        """Lists the folder once, and returns each pin, announcement of a removal and note except `own`. Raises
        StorageError.
        """
        names = [name for name in self._io.list_names(self._folder) if name != own]
        return Notes(
            self._read(names, _PIN, decode_pin),
            self._read(names, _REMOVAL, decode_removal),
            self._read(names, _DELETED, decode_removal),
        )

    def deleted(self) -> set[str]:
        """Returns the histories of branches that were deleted lately. Costs one listing, and a read of the note of
        each.
        """
        notes = self._read(self._io.list_names(self._folder), _DELETED, decode_removal)
        return {note.history for note in notes.values() if note is not None}

    def note_deleted(self, world: World) -> None:
        """Writes a note that this branch was deleted. Without it a folder without a schema would look damaged."""
        name = f"{_DELETED}{world.ids.new_uuid()}"
        self._io.publish(self.path(name), encode_removal(Removal(self.history, WHOLE_BRANCH)))

    def pin(self, pin: Pin, world: World) -> str:
        """Writes a pin; returns its name. Raises StorageError."""
        name = f"{_PIN}{world.ids.new_uuid()}"
        self._io.publish(self.path(name), encode_pin(pin))
        return name

    def announce(self, removal: Removal, world: World) -> str:
        """Writes an announcement; returns its name. Raises StorageError."""
        name = f"{_REMOVAL}{world.ids.new_uuid()}"
        self._io.publish(self.path(name), encode_removal(removal))
        return name

    def is_there(self, name: str) -> bool:
        return self._io.exists(self.path(name))

    def drop(self, name: str) -> None:
        """Removes a pin or announcement; a missing one is no error."""
        self._io.delete(self.path(name))

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _read(self, names: Iterable[str], kind: str, decode: Callable[[str, bytes], T]) -> dict[str, T | None]:
        """Returns the files of one kind, by name."""
        found: dict[str, T | None] = {}
        for name in names:
            path = self.path(name)
            data = self._io.read_optional(path) if name.startswith(kind) else None
            if data is None:
                continue
            try:
                found[name] = decode(path, data)
            except CorruptFileError as e:
                _LOG.warning("%s; it counts against everything until it is an hour old", e)
                found[name] = None
        return found


@dataclass(frozen=True, slots=True)
class HeldPin:
    """A pin that has been written, while no process is removing what the pin keeps."""

    notebook: Notebook
    name: str

    def check(self) -> None:
        """Checks that the pin still exists, so that removers respect it.

        Raises RemovalUnderWayError if this process was paused for so long that the pin was dropped.
        """
        if not self.notebook.is_there(self.name):
            raise RemovalUnderWayError(
                f"{self.notebook.table}: this process was paused for more than an hour, so the snapshot that it was "
                "about to refer to may have been removed; nothing has been changed; try again",
                path=self.notebook.path(self.name),
            )


@contextmanager
def pinned(io: FileIO, root: str, pin: Pin, world: World) -> Iterator[HeldPin]:
    """Holds a pin while the block runs, so that the snapshots that the pin names are kept; `root` is the metadata
    folder of the table, or of a branch. Code that publishes a reference inside of the block checks before and after it
    that the source still exists. Raises RemovalUnderWayError if a removal has been announced and does not end within
    some seconds.
    """
    notebook = Notebook(io, root)
    name = notebook.pin(pin, world)
    try:
        _wait_for_removals(notebook, pin, world)
        yield HeldPin(notebook, name)
    except BaseException:
        # A pin that is left behind only keeps files for longer.
        with suppress(StorageError):
            notebook.drop(name)
        raise
    notebook.drop(name)


def pin_of(root: str, snapshot: Snapshot, *, first: int | None = None) -> Pin:
    """Returns a pin for a snapshot of the history at `root`, and for later ones; `first` is an earlier id from which on
    snapshots are kept.
    """
    history = history_of(root)[1]
    return Pin((Hold(history, snapshot.id if first is None else min(first, snapshot.id)),), (snapshot,))


def _wait_for_removals(notebook: Notebook, pin: Pin, world: World) -> None:
    for wait_ms in (*_WAITS_MS, None):
        removal = _in_the_way(pin, list(notebook.look().removals.values()))
        if removal is None:
            return
        if wait_ms is None:
            raise RemovalUnderWayError(
                f"{notebook.table}: {_going(removal)} by another process, so nothing is done; try again. If that "
                "process has died, `expire_snapshots` finishes what it began",
                path=notebook.table,
                history=removal.history,
                end=removal.end,
            )
        world.pause.wait_ms(wait_ms)


def _in_the_way(pin: Pin, removals: Sequence[Removal | None]) -> Removal | None:
    if pin.holds and None in removals:
        return Removal(pin.holds[0].history, WHOLE_BRANCH)
    return removal_in_the_way(pin, [r for r in removals if r is not None])


def _going(removal: Removal) -> str:
    where = f" of {removal.history}" if removal.history else ""
    if removal.end >= WHOLE_BRANCH:
        return f"everything{where} is being removed"
    return f"the snapshots before {removal.end}{where} are being removed"
