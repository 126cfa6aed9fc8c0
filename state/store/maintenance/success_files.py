"""Writes and reads `_SUCCESS` files, which say that a partition is done, or that a tag was created.

Source: Paimon 2.0 SuccessFile, SuccessFileMarkDoneAction, SuccessFileTagCallback.
"""

import json
from collections.abc import Iterable

from bucketline.state.determinism import World
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import TAG_DIR, TAG_SUCCESS_DIR, partition_path
from bucketline.state.store.storage.file_io import FileIO

_NAME = "_SUCCESS"
_CREATED, _MODIFIED = "creationTime", "modificationTime"


def mark_done(io: FileIO, path: str, schema: TableSchema, partitions: Iterable[bytes], world: World) -> list[str]:
    """Writes the `_SUCCESS` file of each partition, and returns the names of the partitions' folders.

    If the file exists, its creation time is kept, and only its modification time changes. Raises CorruptFileError if
    the existing file is not a `_SUCCESS` file.
    """
    names = []
    for partition in partitions:
        folder = partition_path(schema, partition)
        _write(io, f"{path}/{folder}{_NAME}", world)
        names.append(folder.rstrip("/"))
    return names


def marked_ms(io: FileIO, path: str, schema: TableSchema, partition: bytes) -> int | None:
    """Returns the time at which a partition was last marked as done, in milliseconds since 1970; None if it was not
    marked.
    """
    file = f"{path}/{partition_path(schema, partition)}{_NAME}"
    data = io.read_optional(file)
    return None if data is None else _times(file, data)[1]


def mark_tag(io: FileIO, path: str, tag: str, world: World) -> None:
    """Writes the `_SUCCESS` file of a tag."""
    _write(io, _of_tag(path, tag), world)


def unmark_tag(io: FileIO, path: str, tag: str) -> None:
    """Removes the `_SUCCESS` file of a tag. Does nothing if there is no such file."""
    io.delete(_of_tag(path, tag))


def _of_tag(path: str, tag: str) -> str:
    return f"{path}/{TAG_DIR}/{TAG_SUCCESS_DIR}/{tag}{_NAME}"


def _write(io: FileIO, file: str, world: World) -> None:
    now = world.clock.now_ms()
    data = io.read_optional(file)
    created = now if data is None else _times(file, data)[0]
    text = json.dumps({_CREATED: created, _MODIFIED: now}, indent=2, separators=(",", " : "))
    io.overwrite(file, text.encode())


def _times(file: str, data: bytes) -> tuple[int, int]:
    try:
        times = json.loads(data)
        return int(times[_CREATED]), int(times[_MODIFIED])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as e:
        raise CorruptFileError(f"{file} is not a {_NAME} file: {e!r}; remove it", path=file) from e
