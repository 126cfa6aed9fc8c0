"""Pins and announcements of removals: small JSON files. A process that refers to a state writes a pin, a process that
removes a state writes an announcement, and each looks for the files of the other. `docs/care-beside-history.md` says in
which order they do so, and why that is safe.
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
    """The snapshots from `first` on of one history. `history` is "" for the table itself, else the branch's folder
    below the table's.
    """

    history: str
    first: int


@dataclass(frozen=True, slots=True)
class Pin:
    """The content of a pin: the snapshots that a process is about to refer to (`holds`), and states whose files have to
    stay, like those of tags.
    """

    holds: tuple[Hold, ...] = ()
    states: tuple[Snapshot, ...] = ()
    forwards: str = ""
    """The branch to which the table is being fast-forwarded, which has to be done again if its process dies."""
    takes_schemas: bool = False
    """Whether that fast-forward removes or replaces schemas of the table."""


@dataclass(frozen=True, slots=True)
class Removal:
    """An announcement: the snapshots before `end` of one history are about to go.

    `last` is the base manifest list of snapshot `end` - 1. It identifies the snapshot, since a rollback can give the id
    to another one. It is empty where a whole branch goes.
    """

    history: str
    end: int
    last: str = ""

    def is_of(self, last: Snapshot | None) -> bool:
        """Whether `last`, the present snapshot `end` - 1, exists and is the one that was announced."""
        return last is not None and last.base_manifest_list == self.last


def encode_pin(pin: Pin) -> bytes:
    """Returns the bytes of a pin's file."""
    holds = [{"history": h.history, "first": h.first} for h in pin.holds]
    states = [json.loads(encode_snapshot(s)) for s in pin.states]
    members: dict[str, Any] = {"version": _VERSION, "holds": holds, "states": states}
    if pin.forwards:
        members |= {"forwards": pin.forwards, "takesSchemas": pin.takes_schemas}
    return json.dumps(members).encode()


def decode_pin(path: str, data: bytes) -> Pin:
    """Returns the pin in a file. Raises CorruptFileError."""
    members = _members(path, data)
    try:
        holds = tuple(Hold(str(h["history"]), int(h["first"])) for h in members["holds"])
        states = tuple(decode_snapshot(json.dumps(s).encode()) for s in members["states"])
    except (KeyError, ValueError, TypeError) as e:
        raise CorruptFileError(f"{path}: no pin: {e!r}", path=path) from e
    return Pin(holds, states, str(members.get("forwards", "")), members.get("takesSchemas") is True)


def encode_removal(removal: Removal) -> bytes:
    """Returns the bytes of the file that announces a removal of snapshots."""
    members = {"version": _VERSION, "history": removal.history, "end": removal.end, "last": removal.last}
    return json.dumps(members).encode()


def decode_removal(path: str, data: bytes) -> Removal:
    """Returns the removal of snapshots that a file announces. Raises CorruptFileError."""
    members = _members(path, data)
    try:
        return Removal(str(members["history"]), int(members["end"]), str(members["last"]))
    except (KeyError, ValueError, TypeError) as e:
        raise CorruptFileError(f"{path}: no announcement of a removal: {e!r}", path=path) from e


def _members(path: str, data: bytes) -> dict[str, Any]:
    try:
        members = json.loads(data)
    except ValueError as e:
        raise CorruptFileError(f"{path}: not JSON: {e}", path=path) from e
    if not isinstance(members, dict) or members.get("version") != _VERSION:
        raise CorruptFileError(f"{path}: not of version {_VERSION}", path=path)
    return members
