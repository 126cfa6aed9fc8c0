"""Pins and announcements of a table on a local disk, and how they grow old."""

import os
from pathlib import Path

from bucketline.state.commit.pins import PIN_LEFT_MS
from bucketline.state.store.table.table import Table


def notes_of(table: Table) -> list[Path]:
    """The files of all pins and announcements of the table."""
    return list(Path(table.path, "bucketline").glob("*"))


def make_notes_old(table: Table) -> None:
    """Makes all pins and announcements of the table an hour older, so that their processes count as dead."""
    for note in notes_of(table):
        then = note.stat().st_mtime_ns - (PIN_LEFT_MS + 1000) * 1_000_000
        os.utime(note, ns=(then, then))
