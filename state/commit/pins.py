"""Decides which of two processes gives way if one is about to refer to a snapshot, for example by a tag, and the other
is about to remove it.

The first process writes a file called a pin, and the second a file that announces the removal. Each process writes its
file before it looks for the files of others, so at least one of the two sees the other. A process that wants to refer
to a snapshot gives up if the removal of the snapshot is announced, and a process that removes snapshots keeps the
pinned snapshots. A fast-forward does both, so its pin is also the announcement of what it removes.
`docs/care-beside-history.md` explains why this is safe.
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
    """A pin keeps all snapshots from an id on. Returns an announced removal of one of these snapshots; None if there is
    none. The process that has written the pin must then give up.

    After a rollback to a tag, ids are used again, and snapshot files are removed by their ids. So a removal of any
    snapshot from this id on is in the way.
    """
    for removal in removals:
        if any(hold.history == removal.history and hold.first < removal.end for hold in pin.holds):
            return removal
    return None


def excludes(pin: Pin, other: Pin) -> bool:
    """Returns True if the processes that have written these two pins must not run at the same time. (A pin is a file
    that stops other processes from removing snapshots.) A process gives up if it sees a pin that excludes its own pin.

    A rollback removes snapshots by their ids, and a fast-forward gives these ids to other snapshots. So a fast-forward
    excludes rollbacks of the table and fast-forwards to other branches. If a fast-forward also removes snapshots that
    are older than the branch, it excludes all processes that are about to refer to a snapshot of the table.
    Fast-forwards to the same branch do not exclude each other, because a fast-forward that died is repeated.
    """
    return _excludes(pin, other) or _excludes(other, pin)


def _excludes(forward: Pin, other: Pin) -> bool:
    if not forward.forwards or forward.forwards == other.forwards:
        return False
    if other.forwards:
        return True
    return (other.rolls_back or forward.replaces) and any(not hold.history for hold in other.holds)


def held_end(history: str, end: int, pins: Iterable[Pin | None]) -> int:
    """Returns the id up to which (not included) the snapshots of a table or branch may be removed. `end` is the id that
    the caller wants; the result is lower if a pin (a file by which a process keeps snapshots from removal) keeps an
    earlier snapshot.

    `history` is the folder of the branch, or "" for the table itself. A pin that cannot be read is passed as None; then
    the result is 0, and nothing may be removed.
    """
    for pin in pins:
        if pin is None:
            return 0
        end = min([end, *(hold.first for hold in pin.holds if hold.history == history)])
    return end
