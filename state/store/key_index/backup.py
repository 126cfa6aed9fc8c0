"""Copies a key index to the checkpoint folder, so that another machine can start with the copy.

Files of sorted entries never change, so a backup copies only the files that the previous backup does not have. Copies
have new names. `current.json` lists the files of the index, and is replaced last, so an interrupted backup leaves the
previous backup complete. A list next to the index records which local files are in the backup.
"""

import json
import logging
import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import RawIOBase
from pathlib import Path

from rocksdict import Checkpoint

from bucketline.state.determinism import World
from bucketline.state.errors import StorageError
from bucketline.state.store.key_index.index_scope import IndexScope
from bucketline.state.store.key_index.key_index import KeyIndex, remove_index
from bucketline.state.store.key_index.rocks import rocks_errors
from bucketline.state.store.storage.errors import local_disk, storage_errors
from bucketline.state.store.storage.file_io import FileIO

_LOG = logging.getLogger(__name__)

FORMAT = 1

_CURRENT = "current.json"
_COPIED = "copied.json"
_CHUNK_BYTES = 4 << 20
# RocksDB creates these files again. Its log files are not part of the index.
_LEFT_OUT = ("LOCK", "LOG", "IDENTITY")


@dataclass(frozen=True, slots=True)
class BackupFolder:
    """The folder for backups. It is in the checkpoint folder, on any storage."""

    io: FileIO
    path: str

    def of(self, scope: IndexScope) -> str:
        return scope.directory(self.path)


@dataclass(frozen=True, slots=True)
class _Copy:
    """One file of the index: its name in the database, its name in the backup folder, its size and its checksum."""

    name: str
    stored: str
    size: int
    crc32: int


def back_up(index: KeyIndex, folder: BackupFolder, world: World) -> None:
    """Copies the new files of an open index to the backup folder. Raises StorageError if the folder cannot be written;
    the files that were copied are removed then, and the previous backup stays complete.
    """
    target = folder.of(index.scope)
    before = _read_current(folder, index.scope) or []
    there = {c.stored for c in before}
    known = {name: copy for name, copy in _read_copied(index.directory).items() if copy.stored in there}
    frozen = f"{index.directory}/frozen"
    shutil.rmtree(frozen, ignore_errors=True)
    with rocks_errors(index.directory):
        Checkpoint(index.database).create_checkpoint(frozen)
    copies: list[_Copy] = []
    try:
        with local_disk(frozen):
            paths = sorted(p for p in Path(frozen).iterdir() if not p.name.startswith(_LEFT_OUT))
        for path in paths:
            old = known.get(path.name)
            if old is not None and path.suffix == ".sst" and path.stat().st_size == old.size:
                copies.append(old)
                continue
            copies.append(_copy_out(folder.io, path, f"{target}/{world.ids.new_uuid()}"))
        said = {"format": FORMAT, "scope": asdict(index.scope), "label": asdict(index.label)}
        said["files"] = [asdict(c) for c in copies]
        folder.io.overwrite(f"{target}/{_CURRENT}", json.dumps(said, indent=1, sort_keys=True).encode())
    except StorageError:
        for copy in copies:
            if copy.stored not in there:
                with suppress(StorageError):
                    folder.io.delete(f"{target}/{copy.stored}")
        raise
    finally:
        shutil.rmtree(frozen, ignore_errors=True)
    _write_copied(index.directory, copies)
    used = {c.stored for c in copies}
    for copy in before:
        if copy.stored not in used:
            folder.io.delete(f"{target}/{copy.stored}")


def restore_index(folder: BackupFolder, directory: str, scope: IndexScope, world: World) -> bool:
    """Restores an index from the backup; there must be no local index. Returns False if there is no complete backup, or
    if the backup cannot be read.

    Raises StorageError if reading the folder fails but may succeed later, or if the local disk is full.
    """
    try:
        copies = _read_current(folder, scope)
    except StorageError as e:
        if e.retryable:
            raise
        _LOG.warning(
            "key index %s is built from the table, because its backup cannot be read: %s", directory, e.message
        )
        return False
    if copies is None:
        return False
    building = f"{directory}.{world.ids.new_uuid()}.restoring"
    try:
        with local_disk(directory):
            os.makedirs(f"{building}/db")
        for copy in copies:
            if not _copy_in(folder.io, f"{folder.of(scope)}/{copy.stored}", f"{building}/db/{copy.name}", copy):
                return False
        _write_copied(building, copies)
        remove_index(directory)
        with local_disk(directory):
            os.rename(building, directory)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return True


def _copy_out(io: FileIO, path: Path, target: str) -> _Copy:
    crc32 = size = 0
    with storage_errors(target), path.open("rb") as source, io.open_output(target) as out:
        while chunk := source.read(_CHUNK_BYTES):
            out.write(chunk)
            crc32 = zlib.crc32(chunk, crc32)
            size += len(chunk)
    return _Copy(path.name, target.rpartition("/")[2], size, crc32)


def _copy_in(io: FileIO, source: str, path: str, copy: _Copy) -> bool:
    """Copies one file of an index back from the backup. Returns False if the file is missing, or is not the file that
    was backed up.
    """
    crc32 = size = 0
    try:
        with io.open_input(source) as stream, _local_file(path) as out:
            while chunk := stream.read(_CHUNK_BYTES):
                with local_disk(path):
                    _write_all(out, chunk)
                crc32 = zlib.crc32(chunk, crc32)
                size += len(chunk)
    except StorageError as e:
        if e.missing:
            return False
        raise
    return (size, crc32) == (copy.size, copy.crc32)


def _local_file(path: str) -> RawIOBase:
    """Returns a new unbuffered file, so that a full disk causes an error when bytes are written, and not when the file
    is closed.
    """
    with local_disk(path):
        return open(path, "wb", buffering=0)


def _write_all(out: RawIOBase, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[out.write(rest) or 0 :]


def _read_current(folder: BackupFolder, scope: IndexScope) -> list[_Copy] | None:
    data = folder.io.read_optional(f"{folder.of(scope)}/{_CURRENT}")
    if data is None:
        return None
    try:
        said = json.loads(data)
        if said["format"] != FORMAT or IndexScope(**said["scope"]) != scope:
            return None
        return [_Copy(**c) for c in said["files"]]
    except (ValueError, KeyError, TypeError):
        return None


def _read_copied(directory: str) -> Mapping[str, _Copy]:
    path = Path(f"{directory}/{_COPIED}")
    try:
        return {c["name"]: _Copy(**c) for c in json.loads(path.read_text())} if path.is_file() else {}
    except (ValueError, KeyError, TypeError):
        return {}


def _write_copied(directory: str, copies: list[_Copy]) -> None:
    with local_disk(directory):
        Path(f"{directory}/{_COPIED}").write_text(json.dumps([asdict(c) for c in copies]))
