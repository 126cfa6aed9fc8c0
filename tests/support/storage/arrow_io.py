"""A FileIO over a file system of pyarrow: storage of which a test says where it is, and whether commits are safe there.

Without an operation that makes a file only if there is none, commits are refused before anything is written.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.store.storage.errors import unless_missing
from bucketline.state.store.storage.file_info import FileInfo

PutIfAbsent = Callable[[str, bytes], bool]
"""(path, data) -> False if there is such an object already; one atomic operation of the store."""


@dataclass(frozen=True, slots=True)
class ArrowIO:
    """A pyarrow file system; paths are its own (`bucket/key`, `/path`). Errors as in FileIO."""

    filesystem: fs.FileSystem
    put_if_absent: PutIfAbsent | None = None

    def require_publish(self) -> None:
        if self.put_if_absent is None:
            raise UnsupportedTableError(
                f"cannot commit safely on '{self.filesystem.type_name}': pyarrow offers no put-if-absent there, so two "
                "writers could lose each other's commits",
                filesystem=self.filesystem.type_name,
            )

    def read(self, path: str) -> bytes:
        with self.open_input(path) as source, _storage_errors(path):
            data: bytes = source.read()
            return data

    def read_optional(self, path: str) -> bytes | None:
        return unless_missing(self.read, path)

    def read_unchanging(self, path: str) -> bytes:
        return self.read(path)

    def write_new(self, path: str, data: bytes) -> None:
        with self.open_output(path) as sink, _storage_errors(path):
            sink.write(data)

    def publish(self, path: str, data: bytes) -> bool:
        self.require_publish()
        assert self.put_if_absent is not None
        with _storage_errors(path):
            return self.put_if_absent(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        with _storage_errors(path):
            self._make_folder(path)
            with self.filesystem.open_output_stream(path) as sink:
                sink.write(data)

    def list_names(self, directory: str) -> list[str]:
        return sorted(info.base_name for info in self._list(directory, recursive=False))

    def list_files(self, directory: str) -> list[FileInfo]:
        found = [i for i in self._list(directory, recursive=True) if i.type is fs.FileType.File]
        return sorted((FileInfo(i.path, i.size, _millis(i)) for i in found), key=lambda f: f.path)

    def exists(self, path: str) -> bool:
        with _storage_errors(path):
            return bool(self.filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def size(self, path: str) -> int:
        return int(self._existing(path).size)

    def modified_ms(self, path: str) -> int:
        return _millis(self._existing(path))

    def delete(self, path: str) -> None:
        with _storage_errors(path), suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    def delete_folder(self, directory: str) -> None:
        with _storage_errors(directory), suppress(FileNotFoundError):
            self.filesystem.delete_dir(directory)

    def open_input(self, path: str) -> pa.NativeFile:
        with _storage_errors(path):
            return self.filesystem.open_input_file(path)

    def open_output(self, path: str) -> pa.NativeFile:
        if self.exists(path):
            raise StorageError(f"{path}: exists already", path=path, retryable=False, missing=False)
        with _storage_errors(path):
            self._make_folder(path)
            return self.filesystem.open_output_stream(path)

    def _make_folder(self, path: str) -> None:
        self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)

    def _existing(self, path: str) -> fs.FileInfo:
        with _storage_errors(path):
            found = self.filesystem.get_file_info(path)
            if found.type is fs.FileType.NotFound:
                raise FileNotFoundError(2, "no such file")
            return found

    def _list(self, directory: str, *, recursive: bool) -> list[fs.FileInfo]:
        with _storage_errors(directory):
            selector = fs.FileSelector(directory, recursive=recursive, allow_not_found=True)
            return list(self.filesystem.get_file_info(selector))


def _millis(info: fs.FileInfo) -> int:
    return -1 if info.mtime_ns is None else int(info.mtime_ns) // 1_000_000


@contextmanager
def _storage_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as e:
        raise StorageError(f"{path}: no such file", path=path, retryable=False, missing=True) from e
    except (OSError, pa.ArrowException) as e:
        raise StorageError(f"{path}: {e}", path=path, retryable=True, missing=False) from e
