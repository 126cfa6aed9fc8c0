"""Pins and announcements that processes left when they died are dropped by whoever removes files next."""

from collections.abc import Iterable

from bucketline.state.commit.pins import PIN_LEFT_MS
from bucketline.state.determinism import Clock
from bucketline.state.errors import StorageError
from bucketline.state.store.catalog.pins import Notebook, Notes
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.storage_clock import modified_or_unknown, storage_now_ms


def look_and_drop_left(io: FileIO, notebook: Notebook, clock: Clock, own: str | None = None) -> Notes:
    """What one look shows beside `own`, without the pins and announcements that are an hour old, which are removed.

    The storage's clock, which decides, is asked only if one seems to be old by `clock`.
    """
    notes = notebook.look(own)
    left = _left(io, notebook, [*notes.pins, *notes.removals], clock)
    for name in left:
        notebook.drop(name)
    if not left:
        return notes
    return Notes(
        {name: pin for name, pin in notes.pins.items() if name not in left},
        {name: removal for name, removal in notes.removals.items() if name not in left},
    )


def _left(io: FileIO, notebook: Notebook, names: Iterable[str], clock: Clock) -> set[str]:
    written = {name: at for name in names if (at := _written_ms(io, notebook.path(name))) is not None}
    before_ms = clock.now_ms() - PIN_LEFT_MS
    if not any(at < before_ms for at in written.values()):
        return set()
    before_ms = storage_now_ms(io, notebook.table) - PIN_LEFT_MS
    return {name for name, at in written.items() if at < before_ms}


def _written_ms(io: FileIO, path: str) -> int | None:
    try:
        return modified_or_unknown(io, path)
    except StorageError as e:
        if e.missing:
            return None
        raise
