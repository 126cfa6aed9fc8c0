"""Pins and announcements: decides what a process that refers to a snapshot, and one that removes it, do about each
other.

Each process writes its pin or announcement before it looks for those of others, so at least one of two processes sees
the other. A process that refers to a snapshot gives way to the announcement of a removal, and a process that removes
snapshots gives way to a pin. `docs/care-beside-history.md` has the argument.
"""

from collections.abc import Iterable

from bucketline.state.format.json_files.pin_json import Pin, Removal

PIN_LEFT_MS = 3_600_000
"""A pin or announcement this old, by the storage's clock, counts as left by a dead process: an hour. A process that was
only paused checks that its own still exists before it goes on.
"""

WHOLE_BRANCH = 2**62
"""The `end` in the announcement that a whole branch is removed."""


def removal_in_the_way(pin: Pin, removals: Iterable[Removal]) -> Removal | None:
    """Returns an announcement of a removal to which the pin gives way, because snapshots that the pin holds, or earlier
    snapshots, are being removed.

    Earlier ids count too: a rollback to a tag uses ids again, and the files of snapshots are removed by their ids.
    """
    for removal in removals:
        if any(hold.history == removal.history and hold.first < removal.end for hold in pin.holds):
            return removal
    return None


def held_end(history: str, end: int, pins: Iterable[Pin | None]) -> int:
    """Returns up to which id snapshots of a history may be removed, given these pins. None stands for a pin that cannot
    be read: then none may be removed.
    """
    for pin in pins:
        if pin is None:
            return 0
        end = min([end, *(hold.first for hold in pin.holds if hold.history == history)])
    return end
