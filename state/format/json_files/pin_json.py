"""Small JSON files that keep two processes from disturbing each other: pins and removals.

A process that is about to refer to a snapshot, for example by a tag, writes a pin. A process that is about to remove
snapshots, for example by expiry, writes a file that announces the removal. Each process looks for the files of the
other process. `docs/care-beside-history.md` says in which order processes write and look for files, and why this order
is safe.
"""

import json
from dataclasses import dataclass
from typing import Any

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot, encode_snapshot

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Hold:
    """The snapshots that a pin keeps in one history: all snapshots from id `first` on. `history` is "" for the table
    itself; for a branch it is the branch's folder, relative to the folder of the table.
    """

    history: str
    first: int


@dataclass(frozen=True, slots=True)
class Pin:
    """The content of a pin file, which protects snapshots from removal. `holds` are the snapshots that a process is
    about to use. `states` are snapshots whose files must stay although the snapshots themselves may have expired, for
    example the snapshots of tags.
    """

    holds: tuple[Hold, ...] = ()
    states: tuple[Snapshot, ...] = ()
    forwards: str = ""
    """The branch to which the table is being fast-forwarded, or "". If the process that does it dies, the fast-forward
    must be repeated.
    """
    takes_schemas: bool = False
    """True if the fast-forward removes or replaces schemas of the table."""
    replaces: bool = False
    """True if the fast-forward removes all snapshots of the table that the branch does not have, also those that are
    older than the branch's first snapshot.
    """
    rolls_back: bool = False
    """True if the process rolls the table, or a branch, back to the snapshot that the pin holds."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Announces that a process is about to remove the snapshots with an id below `end` of a table or branch (`history`,
    as in `Hold`).

    `last` is the name of the base manifest list of snapshot `end` - 1. This name identifies the snapshot, because after
    a rollback another snapshot can have the same id. The name is empty if a whole branch is removed.
    """

    history: str
    end: int
    last: str = ""

    def is_of(self, last: Snapshot | None) -> bool:
        """Returns True if `last` is the snapshot that had the id `end` - 1 when the removal was announced. `last` is
        the snapshot that has this id now, or None if there is none.
        """
        return last is not None and last.base_manifest_list == self.last


def encode_pin(pin: Pin) -> bytes:
    """Returns the bytes of a pin file."""
    holds = [{"history": h.history, "first": h.first} for h in pin.holds]
    states = [json.loads(encode_snapshot(s)) for s in pin.states]
    members: dict[str, Any] = {"version": _VERSION, "holds": holds, "states": states}
    if pin.forwards:
        members |= {"forwards": pin.forwards, "takesSchemas": pin.takes_schemas, "replaces": pin.replaces}
    if pin.rolls_back:
        members |= {"rollsBack": True}
    return json.dumps(members).encode()


def decode_pin(path: str, data: bytes) -> Pin:
    """Returns the content of a pin file: the snapshots to which a process is about to refer, and which must not be
    removed. `path` is the path of the file, for error messages. Raises CorruptFileError if the file is not a pin file.
    """
    members = _members(path, data)
    try:
        holds = tuple(Hold(str(h["history"]), int(h["first"])) for h in members["holds"])
        states = tuple(decode_snapshot(json.dumps(s).encode()) for s in members["states"])
    except (KeyError, ValueError, TypeError) as e:
        raise CorruptFileError(f"{path} is no pin file: {e!r}", path=path) from e
    return Pin(
        holds,
        states,
        forwards=str(members.get("forwards", "")),
        takes_schemas=members.get("takesSchemas") is True,
        replaces=members.get("replaces") is True,
        rolls_back=members.get("rollsBack") is True,
    )


def encode_removal(removal: Removal) -> bytes:
    """Returns the bytes of a file that announces the removal of snapshots."""
    members = {"version": _VERSION, "history": removal.history, "end": removal.end, "last": removal.last}
    return json.dumps(members).encode()


def decode_removal(path: str, data: bytes) -> Removal:
    """Returns the removal of snapshots that a file announces. `path` is the path of the file, for errors. Raises
    CorruptFileError if the file announces no removal.
    """
    members = _members(path, data)
    try:
        return Removal(str(members["history"]), int(members["end"]), str(members["last"]))
    except (KeyError, ValueError, TypeError) as e:
        raise CorruptFileError(f"{path} is no file that announces a removal of snapshots: {e!r}", path=path) from e


def _members(path: str, data: bytes) -> dict[str, Any]:
    try:
        members = json.loads(data)
    except ValueError as e:
        raise CorruptFileError(f"{path} is no valid JSON: {e}", path=path) from e
    if not isinstance(members, dict) or members.get("version") != _VERSION:
        raise CorruptFileError(
            f"{path} does not have version {_VERSION}, the only version that this release reads", path=path
        )
    return members
