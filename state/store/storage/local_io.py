"""Access to files on a POSIX file system. A file is published by a hard link, because a hard link never replaces a
file.

Paimon publishes a local file by a rename. A rename replaces an existing file, so of two commits at the same time one
can be lost.
"""

import errno
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import StorageError
from bucketline.state.format.paths import temporary_name
from bucketline.state.store.storage.errors import storage_error, storage_errors
from bucketline.state.store.storage.file_info import FileInfo

_TRIES = 3
"""How often a temporary file is written again if the removal of orphan files has taken it while this process was
stopped.
"""

_OUTPUT_BUFFER_BYTES = 128 << 10

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


@dataclass(frozen=True, slots=True)
class LocalIO:
    """The local file system, or a mounted one. Paths are absolute. The methods raise the errors that `FileIO`
    describes.
    """

    world: World = SYSTEM_WORLD

    @staticmethod
    def absolute(path: str) -> str:
        """Returns the absolute path without dots and double slashes."""
        return os.path.abspath(path)

    def require_publish(self) -> None:
        return

    def read(self, path: str) -> bytes:
        with _storage_errors(path), open(path, "rb") as file:
            return file.read()

    def read_optional(self, path: str) -> bytes | None:
        with _storage_errors(path):
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def read_unchanging(self, path: str) -> bytes:
        return self.read(path)

    def write_new(self, path: str, data: bytes) -> None:
        with _storage_errors(path):
            _write_synced(path, data)
            _sync_folder(os.path.dirname(path))

    def publish(self, path: str, data: bytes) -> bool:
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, temporary_name(name, self.world.ids.new_uuid()))
        with _storage_errors(path):
            try:
                if not _placed(temporary, path, data):
                    return False
                _sync_folder(folder)
                return True
            finally:
                with suppress(OSError):
                    os.unlink(temporary)

    def overwrite(self, path: str, data: bytes) -> None:
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, temporary_name(name, self.world.ids.new_uuid()))
        with _storage_errors(path):
            try:
                for left in reversed(range(_TRIES)):
                    _write_synced(temporary, data)
                    try:
                        os.replace(temporary, path)
                        break
                    except FileNotFoundError:
                        if not left:
                            raise
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary)
                raise

    def list_names(self, directory: str) -> list[str]:
        with _storage_errors(directory):
            try:
                return sorted(os.listdir(directory))
            except FileNotFoundError:
                return []

    def list_files(self, directory: str) -> list[FileInfo]:
        with _storage_errors(directory):
            return sorted(_walk(directory), key=lambda f: f.path)

    def exists(self, path: str) -> bool:
        with _storage_errors(path):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def size(self, path: str) -> int:
        with _storage_errors(path):
            return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        with _storage_errors(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def delete(self, path: str) -> None:
        with _storage_errors(path), suppress(FileNotFoundError):
            os.unlink(path)

    def move(self, path: str, target: str) -> bool:
        """Renames a file or folder on the same file system in one step; returns False if there is no such file or
        folder.
        """
        with _storage_errors(path):
            try:
                os.rename(path, target)
            except FileNotFoundError:
                return False
            return True

    def move_folder(self, directory: str, target: str) -> bool:
        """Renames a folder as described for `HasFolders.move_folder`."""
        self.make_folder(target.rpartition("/")[0])
        return self.move(directory, target)

    def make_folder(self, directory: str) -> None:
        """Creates a folder and its parents, durably. A folder that exists is no error."""
        with _storage_errors(directory):
            _make_folders(directory)

    def delete_folder(self, directory: str) -> None:
        with _storage_errors(directory), suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def open_input(self, path: str) -> pa.NativeFile:
        with _storage_errors(path):
            return pa.OSFile(path, "rb")

    def open_output(self, path: str) -> pa.NativeFile:
        with _storage_errors(path):
            try:
                file = _SyncedFile(path, "xb")
            except FileNotFoundError:
                _make_folders(os.path.dirname(path))
                file = _SyncedFile(path, "xb")
            # The output is buffered, because a Parquet writer writes headers and small pages one by one, and each write
            # goes through Python.
            return pa.BufferedOutputStream(pa.PythonFile(file, mode="w"), _OUTPUT_BUFFER_BYTES)


class _SyncedFile(io.FileIO):
    """A file whose content and name are durable once it is closed."""

    def write(self, data: Any) -> int:
        """Writes all of the bytes, and returns their number. The system may write only a part at a time, and callers do
        not check that.
        """
        rest = memoryview(data).cast("B")
        total = len(rest)
        while len(rest):
            rest = rest[super().write(rest) or 0 :]
        return total

    def close(self) -> None:
        try:
            if not self.closed:
                os.fsync(self.fileno())
                _sync_folder(os.path.dirname(str(self.name)))
        finally:
            super().close()


def _write_synced(path: str, data: bytes) -> None:
    """Writes a new file whose content is durable afterwards. Raises FileExistsError if the file exists. After a failure
    the new file is removed.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        _make_folders(os.path.dirname(path))
        descriptor = os.open(path, flags, 0o666)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) or 0 :]
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise


def _write_unpublished(temporary: str, path: str, data: bytes) -> None:
    """Writes the new file `temporary` as `_write_synced` does. The error of a failure names `path`, and says that
    nothing has been published.
    """
    try:
        _write_synced(temporary, data)
    except OSError as e:
        raise storage_error(path, e, published=False) from e


def _placed(temporary: str, path: str, data: bytes) -> bool:
    """Writes a temporary file and gives it the name `path`; returns False if a file has this name already."""
    for _ in range(_TRIES):
        _write_unpublished(temporary, path, data)
        with suppress(FileNotFoundError):
            return _link(temporary, path)
    raise StorageError(
        f"{path}: its temporary file was removed {_TRIES} times before it could be published; find the program that "
        "removes files from this folder, then write again",
        path=path,
        retryable=True,
        published=False,
    )


def _link(temporary: str, path: str) -> bool:
    """Gives a temporary file the name `path`; returns False if another file has this name already."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # A network file system may have made the link, lost the answer, and tried again. Then the file has two names.
        return os.stat(temporary).st_nlink == 2
    except OSError as e:
        if e.errno in _NO_LINKS:
            raise StorageError(
                f"{path}: this file system has no hard links, so a commit cannot be published safely; put the table "
                "on a file system that has them, or, if the folder is mounted from another storage, use the URI of "
                "that storage",
                path=path,
                retryable=False,
            ) from e
        raise
    return True


def _make_folders(folder: str) -> None:
    """Creates a folder and its parents, durably."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for made in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(made)
        _sync_folder(os.path.dirname(made))


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as e:
        # Some mounted file systems make folders durable by themselves and refuse the call.
        if e.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _walk(directory: str) -> Iterator[FileInfo]:
    """Yields the files below a folder. Files that other processes remove during the walk are left out."""
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
            continue
        with suppress(FileNotFoundError):
            status = entry.stat()
            yield FileInfo(entry.path, status.st_size, status.st_mtime_ns // 1_000_000)


@contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    try:
        with storage_errors(path):
            yield
    except ValueError as e:  # The path contains a null byte.
        raise StorageError(f"{path!r}: {e}", path=path, retryable=False, missing=False) from e
