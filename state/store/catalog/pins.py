"""Pins, announcements of removals, and notes of deleted branches. They are files in the folder `bucketline/` of a
table. The table and its branches share this folder.

A pin keeps a snapshot for a process that is about to refer to the snapshot. An announcement says that a process is
about to remove snapshots or a branch. Each of these files has a new name, and is never changed. The process that wrote
a pin or an announcement removes it. Files that a dead process has left are removed by the next process that removes
files (`maintenance/left_pins`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from bucketline.state.commit.pins import PIN_LEFT_MS, WHOLE_BRANCH, excludes, removal_in_the_way
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
from bucketline.state.store.storage.storage_clock import modified_or_unknown, storage_now_ms

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_PIN, _REMOVAL, _DELETED = "pin-", "removal-", "deleted-"
_WAITS_MS = (10, 20, 50, 100, 200, 400, 800)
"""The pauses between two looks at announcements, in milliseconds. In all, a process that wants to refer to a snapshot
waits a second and a half for a removal to end.
"""


@dataclass(frozen=True, slots=True)
class Notes:
    """The content of the files that one listing of a folder has found, by file name: pins (files that protect
    snapshots from removal), announcements of removals, and notes of deleted branches.

    None stands for a file that cannot be read. The caller must then behave as if the file forbade everything.
    """

    pins: Mapping[str, Pin | None] = field(default_factory=dict)
    removals: Mapping[str, Removal | None] = field(default_factory=dict)
    deleted: Mapping[str, Removal | None] = field(default_factory=dict)
    """Branches that were deleted. If such a branch has a folder without a schema, the table is not damaged."""


class Notebook:
    """Reads and writes the files with which processes that use a table tell each other what they are about to do. A pin
    says that a process is about to refer to a snapshot; an announcement says that a process is about to remove
    snapshots or a branch. `root` is the metadata folder of the table, or of one of its branches.
    """

    def __init__(self, io: FileIO, root: str) -> None:
        self._io = io
        self.table, self.history = history_of(root)
        self._folder = f"{self.table}/{OWN_DIR}"

    def look(self, own: str | None = None) -> Notes:
        """Lists the folder once, and returns what it holds: pins (which keep snapshots), announcements of removals, and
        notes of deleted branches. The file `own` is left out. Raises StorageError.
        """
        names = [name for name in self._io.list_names(self._folder) if name != own]
        return Notes(
            self._read(names, _PIN, decode_pin),
            self._read(names, _REMOVAL, decode_removal),
            self._read(names, _DELETED, decode_removal),
        )

    def deleted(self) -> set[str]:
        """Returns the metadata folders of deleted branches, relative to the table. Only branches for which a note of
        the deletion exists are returned. The call costs one listing, and one read for each note.
        """
        notes = self._read(self._io.list_names(self._folder), _DELETED, decode_removal)
        return {note.history for note in notes.values() if note is not None}

    def note_deleted(self, world: World) -> None:
        """Writes a note that this branch was deleted. Without the note, a folder without a schema would look
        damaged.
        """
        name = f"{_DELETED}{world.ids.new_uuid()}"
        self._io.publish(self.path(name), encode_removal(Removal(self.history, WHOLE_BRANCH)))

    def pin(self, pin: Pin, world: World) -> str:
        """Writes a pin, a file that stops other processes from removing snapshots. Returns the name of the file. Raises
        StorageError.
        """
        name = f"{_PIN}{world.ids.new_uuid()}"
        self._io.publish(self.path(name), encode_pin(pin))
        return name

    def announce(self, removal: Removal, world: World) -> str:
        """Writes a file that announces the removal of snapshots, so that other processes do not begin to refer to these
        snapshots. Returns the name of the file. Raises StorageError.
        """
        name = f"{_REMOVAL}{world.ids.new_uuid()}"
        self._io.publish(self.path(name), encode_removal(removal))
        return name

    def is_there(self, name: str) -> bool:
        return self._io.exists(self.path(name))

    def drop(self, name: str) -> None:
        """Removes a pin or an announcement. A missing file is no error."""
        self._io.delete(self.path(name))

    def path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def left(self, names: Iterable[str], world: World) -> set[str]:
        """Returns the names of the files that are more than an hour old. The processes that have written these files
        are assumed to be dead.

        The age is measured by the storage's clock. The storage is asked for its time only if a file seems old by the
        clock of `world`.
        """
        written = {name: at for name in names if (at := self._written_ms(name)) is not None}
        before_ms = world.clock.now_ms() - PIN_LEFT_MS
        if not any(at < before_ms for at in written.values()):
            return set()
        before_ms = storage_now_ms(self._io, self.table, world) - PIN_LEFT_MS
        return {name for name, at in written.items() if at < before_ms}

    def _written_ms(self, name: str) -> int | None:
        try:
            return modified_or_unknown(self._io, self.path(name))
        except StorageError as e:
            if e.missing:
                return None
            raise

    def _read(self, names: Iterable[str], kind: str, decode: Callable[[str, bytes], T]) -> dict[str, T | None]:
        """Reads those of the files `names` whose name begins with `kind`: pins, which keep snapshots, or announcements
        of removals. Returns the decoded content by name, with None for a file whose content is damaged. Files that no
        longer exist are left out.
        """
        found: dict[str, T | None] = {}
        for name in names:
            path = self.path(name)
            data = self._io.read_optional(path) if name.startswith(kind) else None
            if data is None:
                continue
            try:
                found[name] = decode(path, data)
            except CorruptFileError as e:
                _LOG.warning(
                    "%s; until this file is an hour old, it blocks removals and new references to snapshots", e
                )
                found[name] = None
        return found


@dataclass(frozen=True, slots=True)
class HeldPin:
    """A pin that this process has written: a file that keeps other processes from removing some snapshots. When the pin
    was written, no process was removing these snapshots.
    """

    notebook: Notebook
    name: str
    pin: Pin

    def is_there(self) -> bool:
        """Returns False if another process has removed the pin."""
        return self.notebook.is_there(self.name)

    def check(self) -> None:
        """Checks that the pin file still exists. As long as it exists, no process removes the snapshots that the pin
        keeps.

        Raises RemovalUnderWayError if this process was paused for so long that another process has removed the pin.
        """
        if not self.is_there():
            raise RemovalUnderWayError(
                f"{self.notebook.table}: this process was paused for more than an hour, so the snapshot that it was "
                "about to refer to may have been removed; nothing has been changed; try again",
                path=self.notebook.path(self.name),
            )


@contextmanager
def pinned(io: FileIO, root: str, pin: Pin, world: World, *, heeds_pins: bool = True) -> Iterator[HeldPin]:
    """Holds a pin while a `with` block runs: a file that keeps the snapshots that it names from being removed. `root`
    is the metadata folder of the table or of a branch.

    The block may publish something that refers to a pinned snapshot, such as a tag. It must check before and afterwards
    that the snapshot still exists.

    Raises RemovalUnderWayError if another process has announced a removal that the pin excludes, or has a pin that
    excludes this pin, and is not done within some seconds. With `heeds_pins=False`, pins of other processes do not
    matter, because the caller already has a pin that excludes these processes.
    """
    notebook = Notebook(io, root)
    name = notebook.pin(pin, world)
    try:
        _wait_for_others(notebook, name, pin, world, heeds_pins=heeds_pins)
        yield HeldPin(notebook, name, pin)
    except BaseException:
        # If the pin cannot be removed, it only keeps files for longer.
        with suppress(StorageError):
            notebook.drop(name)
        raise
    notebook.drop(name)


def pin_of(root: str, snapshot: Snapshot, *, first: int | None = None) -> Pin:
    """Returns a pin, which stops other processes from removing snapshots. The pin keeps the snapshot `snapshot` and all
    later snapshots of the history at `root` (the table or a branch). If `first` is an earlier id, all snapshots from
    this id on are kept.
    """
    history = history_of(root)[1]
    return Pin((Hold(history, snapshot.id if first is None else min(first, snapshot.id)),), (snapshot,))


def _wait_for_others(notebook: Notebook, own: str, pin: Pin, world: World, *, heeds_pins: bool) -> None:
    """Waits until no other process is doing work that must not run at the same time as the work of this process. `pin`
    is the pin of this process, and `own` is the name of its file. The other work is a removal of snapshots that `pin`
    keeps. With `heeds_pins`, it is also work whose pin excludes `pin` (see `excludes`).

    Raises RemovalUnderWayError if the other work has not ended after the last wait.
    """
    for wait_ms in (*_WAITS_MS, None):
        notes = notebook.look(own)
        removal = _in_the_way(pin, list(notes.removals.values()))
        others = _excluded(pin, notes.pins) if heeds_pins else {}
        if others:
            others = _without_left(notebook, others, world)
        if removal is None and not others:
            return
        if wait_ms is not None:
            world.pause.wait_ms(wait_ms)
            continue
        if removal is None:
            name, other = next(iter(others.items()))
            raise RemovalUnderWayError(
                f"{notebook.table}: {_running(other, notebook.path(name))}",
                path=notebook.table,
                pin=notebook.path(name),
            )
        raise RemovalUnderWayError(
            f"{notebook.table}: {_going(removal)} by another process, so nothing is done; try again. If that "
            "process has died, `expire_snapshots` finishes what it began",
            path=notebook.table,
            history=removal.history,
            end=removal.end,
        )


def _excluded(pin: Pin, others: Mapping[str, Pin | None]) -> dict[str, Pin | None]:
    """Returns the pins whose processes must not run beside the process of `pin`, by the names of their files. A pin
    that cannot be read may be one of them.
    """
    return {n: o for n, o in others.items() if (bool(pin.holds) if o is None else excludes(pin, o))}


def _without_left(notebook: Notebook, pins: Mapping[str, Pin | None], world: World) -> dict[str, Pin | None]:
    """Processes whose pins are an hour old are assumed to have died. Removes the files of these pins, and returns all
    other pins, by the name of the file.
    """
    left = notebook.left(pins, world)
    for name in sorted(left):
        pin = pins[name]
        if pin is not None and pin.forwards:
            _LOG.warning(
                "%s: a fast-forward to branch '%s' did not end within an hour, and is assumed to be dead; if the table "
                "has only a part of the branch, repeat it with fast_forward('%s')",
                notebook.table,
                pin.forwards,
                pin.forwards,
            )
        notebook.drop(name)
    return {name: pin for name, pin in pins.items() if name not in left}


def _running(other: Pin | None, path: str) -> str:
    """Returns the part of an error message that says what another process is doing, and what the user can do. `other`
    is the pin of the other process; None if the pin cannot be read. `path` is the file of the pin.
    """
    if other is None:
        return f"{path} cannot be read, so nothing is done; try again when this file is an hour old"
    if other.forwards:
        return (
            f"another process is fast-forwarding the table to branch '{other.forwards}', so nothing is done; try "
            f"again. If that process has died, `fast_forward('{other.forwards}')` finishes what it began; if nobody "
            "repeats it, the table is free again after an hour"
        )
    doing = "is rolling the table back" if other.rolls_back else "is about to refer to a snapshot of the table"
    return (
        f"another process {doing}, so the table is not fast-forwarded; try again. If that process has died, the table "
        "can be fast-forwarded an hour after it began"
    )


def _in_the_way(pin: Pin, removals: Sequence[Removal | None]) -> Removal | None:
    if pin.holds and None in removals:
        return Removal(pin.holds[0].history, WHOLE_BRANCH)
    return removal_in_the_way(pin, [r for r in removals if r is not None])


def _going(removal: Removal) -> str:
    where = f" of {removal.history}" if removal.history else ""
    if removal.end >= WHOLE_BRANCH:
        return f"everything{where} is being removed"
    return f"the snapshots before {removal.end}{where} are being removed"
