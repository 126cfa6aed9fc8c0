"""Decides which of two processes gives way if one is about to refer to a snapshot, for example by a tag, and the other
is about to remove it.

The first process writes a file called a pin, and the second a file that announces the removal. Each process writes its
file before it looks for the files of others, so at least one of the two sees the other. A process that wants to refer
to a snapshot gives up if the removal of the snapshot is announced, and a process that removes snapshots keeps the
pinned snapshots. `docs/care-beside-history.md` explains why this is safe.
"""

from collections.abc import Iterable

from bucketline.state.format.json_files.pin_json import Pin, Removal

PIN_LEFT_MS = 3_600_000
"""A pin or announced removal that is at least this old (one hour, by the storage's clock) is assumed to be left by a
dead process. A process that was only paused checks that its own file still exists before it goes on.
"""

WHOLE_BRANCH = 2**62
"""The `end` of a Removal that announces the removal of a whole branch."""


def removal_in_the_way(pin: Pin, removals: Iterable[Removal]) -> Removal | None:
    """Returns an announced removal of snapshots that the pin would keep; None if there is none. The process of the pin
    must then give up.

    A pin keeps all snapshots from an id on, so a removal of any snapshot from this id on is in the way. After a
    rollback to a tag, ids are used again, and snapshot files are removed by their ids.
    """
    for removal in removals:
        if any(hold.history == removal.history and hold.first < removal.end for hold in pin.holds):
            return removal
    return None


def held_end(history: str, end: int, pins: Iterable[Pin | None]) -> int:
    """Returns the id up to which (not included) the snapshots of a table or branch may be removed although these pins
    exist. `history` is the folder of the branch, or "" for the table itself. `end` is the id that the caller wants. A
    pin that cannot be read is passed as None; then the result is 0, and nothing may be removed.
    """
    for pin in pins:
        if pin is None:
            return 0
        end = min([end, *(hold.first for hold in pin.holds if hold.history == history)])
    return end
