"""What time it is on the storage: the clock by which it says when files were written.

The clock of the machine that asks may be another; ages of files are differences of times of one clock.
"""

from contextlib import suppress

from bucketline.state.determinism import SYSTEM_IDS, IdSource
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.format.paths import SCHEMA_DIR, temporary_name
from bucketline.state.store.storage.file_io import FileIO


def storage_now_ms(io: FileIO, path: str, *, ids: IdSource = SYSTEM_IDS) -> int:
    """Milliseconds since the epoch by the storage of the table at `path`: when a file made now was written.

    The file is removed again; one that a crash leaves is an orphan with a temporary file's name.
    Raises StorageError when it cannot be made, UnsupportedTableError for storage that keeps no times.
    """
    probe = f"{path}/{SCHEMA_DIR}/{temporary_name('clock', ids.new_uuid())}"
    io.write_new(probe, b"clock")
    try:
        found = io.modified_ms(probe)
    finally:
        with suppress(StorageError):
            io.delete(probe)
    if found < 0:
        raise UnsupportedTableError(
            f"{path}: this storage does not tell when a file was written, so the age of files is not known and none is "
            "removed",
            path=path,
        )
    return found


def modified_or_unknown(io: FileIO, path: str) -> int | None:
    """When a file was written, by the storage's clock; None where it does not tell. Raises as `FileIO.modified_ms`."""
    found = io.modified_ms(path)
    return found if found >= 0 else None
