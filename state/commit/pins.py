"""Pins and announcements: decides what a process that refers to a snapshot, and one that removes it, do about each
other.

A pin and an announcement are each written before the other side is looked for, so at least one of two sees the other.
Whoever refers gives way to an announcement, and whoever removes gives way to a pin. `docs/care-beside-history.md` has
the argument.
"""

from collections.abc import Iterable

from bucketline.state.format.json_files.pin_json import Pin, Removal

PIN_LEFT_MS = 3_600_000
"""A pin or announcement this old, by the storage's clock, is taken for one of a dead process: an hour. One that was
only stopped looks for its own before it goes on."""

WHOLE_BRANCH = 2**62
"""The end of an announcement that a branch goes with all its snapshots."""


def removal_in_the_way(pin: Pin, removals: Iterable[Removal]) -> Removal | None:
    """An announcement that the pin gives way to: snapshots of a history that it holds, or ids before them, are going.

    Ids before count as well: a rollback to a tag gives ids anew, and the files of snapshots are removed by their ids.
    """
    for removal in removals:
        if any(hold.history == removal.history and hold.first < removal.end for hold in pin.holds):
            return removal
    return None


def held_end(history: str, end: int, pins: Iterable[Pin | None]) -> int:
    """Up to where snapshots of a history may go beside these pins; None is a pin that cannot be read: nothing goes."""
    for pin in pins:
        if pin is None:
            return 0
        end = min([end, *(hold.first for hold in pin.holds if hold.history == history)])
    return end
