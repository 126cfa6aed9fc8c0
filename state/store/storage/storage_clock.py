"""The storage's clock, by which the storage records when files were written. The clock of this machine may differ, and
the age of a file must be measured with one clock.
"""

from contextlib import suppress

from bucketline.state.determinism import World
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.format.paths import SCHEMA_DIR, temporary_name
from bucketline.state.store.storage.file_io import FileIO


def storage_now_ms(io: FileIO, path: str, world: World) -> int:
    """Writes a file into the table at `path`, and returns the time that the storage records for the file, in
    milliseconds since 1970. The result is the present time by the storage's clock.

    The file is removed again; after a crash, an orphan file with a temporary name is left. Raises StorageError if the
    file cannot be written, UnsupportedTableError for storage that records no times.
    """
    probe = f"{path}/{SCHEMA_DIR}/{temporary_name('clock', world.ids.new_uuid())}"
    io.write_new(probe, b"clock")
    try:
        now_ms = io.modified_ms(probe)
    finally:
        with suppress(StorageError):
            io.delete(probe)
    if now_ms < 0:
        raise UnsupportedTableError(
            f"{path}: this storage does not record when a file was written, so the age of files is unknown and no "
            "file is removed",
            path=path,
        )
    return now_ms


def modified_or_unknown(io: FileIO, path: str) -> int | None:
    """Returns the time at which a file was written, by the storage's clock, in milliseconds since 1970; None if the
    storage does not record it. Raises the errors of `FileIO.modified_ms`.
    """
    modified_ms = io.modified_ms(path)
    return modified_ms if modified_ms >= 0 else None
