"""Access to files on HDFS. A file is published in two steps: it is written under a temporary name, and then renamed,
because renaming never replaces another file.
"""

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import StorageError
from bucketline.state.format.paths import temporary_name
from bucketline.state.store.storage.errors import exists_already, unless_missing
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.forks import check_not_forked
from bucketline.state.store.storage.hdfs_client import (
    HdfsAddress,
    HdfsClient,
    HdfsStatus,
    HdfsWriter,
    hdfs_address,
    native_client,
)
from bucketline.state.store.storage.hdfs_errors import hdfs_errors
from bucketline.state.store.storage.ranged_reader import TAIL_BYTES, RangedReader


@dataclass(frozen=True, slots=True)
class HdfsIO:
    """The files of a cluster. Paths are absolute. Errors are those of FileIO.

    When a name node fails, the client repeats the request by itself. The second answer may be an error because the
    first request was carried out: the file to rename is gone, or the file to create exists.
    """

    answers_late: ClassVar[bool] = True

    address: HdfsAddress
    world: World = SYSTEM_WORLD
    connect: Callable[[HdfsAddress], HdfsClient] = native_client

    def require_publish(self) -> None:
        return

    def read(self, path: str) -> bytes:
        client = self._client(path)
        with hdfs_errors(path):
            reader = client.read(path)
            return bytes(reader.read_range(0, len(reader)))

    def read_optional(self, path: str) -> bytes | None:
        return unless_missing(self.read, path)

    def read_unchanging(self, path: str) -> bytes:
        return self.read(path)

    def write_new(self, path: str, data: bytes) -> None:
        client = self._client(path)
        try:
            with hdfs_errors(path):
                writer = client.create(path)
        except StorageError:
            # The client may have repeated its own request, because the answer was lost.
            if self.read_optional(path) == data:
                return
            raise
        try:
            with hdfs_errors(path):
                writer.write(data)
                writer.close()
        except StorageError:
            with suppress(StorageError):
                self.delete(path)
            raise

    def publish(self, path: str, data: bytes) -> bool:
        temporary = self._temporary(path)
        try:
            self.write_new(temporary, data)
        except StorageError as e:
            raise e.reworded(e.message, missing=False, published=False) from e
        try:
            with hdfs_errors(path):
                self._client(path).rename(temporary, path, False)
            return True
        except StorageError as e:
            # If the client repeated the request, the temporary file is gone, and the final file is in place.
            stored = self.read_optional(path)
            if stored == data:
                return True
            if stored is None or not self.exists(temporary):
                raise e.reworded(e.message, retryable=e.retryable or e.missing, missing=False) from e
        with suppress(StorageError):
            self.delete(temporary)
        return False

    def overwrite(self, path: str, data: bytes) -> None:
        temporary = self._temporary(path)
        self.write_new(temporary, data)
        try:
            with hdfs_errors(path):
                self._client(path).rename(temporary, path, True)
        except StorageError:
            if self.read_optional(path) == data:
                return
            with suppress(StorageError):
                self.delete(temporary)
            raise

    def list_names(self, directory: str) -> list[str]:
        return sorted(status.path.rpartition("/")[2] for status in self._list(directory))

    def list_files(self, directory: str) -> list[FileInfo]:
        return sorted(self._walk(directory), key=lambda f: f.path)

    def exists(self, path: str) -> bool:
        return unless_missing(self._status, path) is not None

    def size(self, path: str) -> int:
        return int(self._status(path).length)

    def modified_ms(self, path: str) -> int:
        return int(self._status(path).modification_time)

    def delete(self, path: str) -> None:
        with hdfs_errors(path), suppress(FileNotFoundError):
            self._client(path).delete(path, False)

    def delete_folder(self, directory: str) -> None:
        with hdfs_errors(directory), suppress(FileNotFoundError):
            self._client(directory).delete(directory, True)

    def make_folder(self, directory: str) -> None:
        """Creates a folder and its parents. A folder that exists is no error."""
        with hdfs_errors(directory):
            self._client(directory).mkdirs(directory)

    def move(self, path: str, target: str) -> bool:
        """Renames a file in one step; returns False if there is no such file. A file that already
        has the new name is replaced.
        """
        return self._renamed(path, target, overwrite=True)

    def move_folder(self, directory: str, target: str) -> bool:
        """Renames a folder in one step; returns False if there is no such folder. Raises StorageError if the new name
        is in use.
        """
        self.make_folder(target.rpartition("/")[0])
        return self._renamed(directory, target, overwrite=False)

    def open_input(self, path: str) -> pa.NativeFile:
        client = self._client(path)
        with hdfs_errors(path):
            reader = client.read(path)
            size = len(reader)

        def fetch(start: int, end: int) -> memoryview:
            with hdfs_errors(path):
                return memoryview(reader.read_range(start, end - start))

        return pa.PythonFile(RangedReader(size, fetch(max(0, size - TAIL_BYTES), size), fetch), mode="r")

    def open_output(self, path: str) -> pa.NativeFile:
        client = self._client(path)
        with hdfs_errors(path):
            return pa.PythonFile(_NewFile(path, client.create(path)), mode="w")

    def _client(self, path: str) -> HdfsClient:
        check_not_forked(path)
        return self.connect(self.address)

    def _temporary(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{folder}/{temporary_name(name, self.world.ids.new_uuid())}"

    def _status(self, path: str) -> HdfsStatus:
        with hdfs_errors(path):
            return self._client(path).get_file_info(path)

    def _renamed(self, path: str, target: str, *, overwrite: bool) -> bool:
        try:
            with hdfs_errors(path):
                self._client(path).rename(path, target, overwrite)
        except StorageError as e:
            if e.missing:
                # If the client repeated the request, the file has been renamed already.
                return self.exists(target)
            if not overwrite and not e.retryable and self.exists(target):
                raise exists_already(target) from e
            raise
        return True

    def _list(self, directory: str) -> list[HdfsStatus]:
        """Returns the files and folders in a folder; an empty list if there is no such folder."""
        with hdfs_errors(directory), suppress(FileNotFoundError):
            statuses = list(self._client(directory).list_status(directory))
            # The listing of a file contains the file itself.
            return [] if [f.path for f in statuses] == [directory] else statuses
        return []

    def _walk(self, directory: str) -> Iterator[FileInfo]:
        """Yields the files below a folder. Files that other processes remove during the walk are left out."""
        for status in self._list(directory):
            if status.isdir:
                yield from self._walk(status.path)
            else:
                yield FileInfo(status.path, int(status.length), int(status.modification_time))


class _NewFile(io.RawIOBase):
    """A file on HDFS that is being written. Its methods raise the errors that `FileIO` describes."""

    def __init__(self, path: str, writer: HdfsWriter) -> None:
        self._path, self._writer, self._written = path, writer, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        """Writes all of the bytes, and returns their number."""
        view = memoryview(data).cast("B")
        with hdfs_errors(self._path):
            self._writer.write(view)
        self._written += len(view)
        return len(view)

    def close(self) -> None:
        if self.closed:
            return
        try:
            with hdfs_errors(self._path):
                self._writer.close()
        finally:
            super().close()


def hdfs_io_for(uri: str, storage: Mapping[str, str], world: World) -> tuple[HdfsIO, str]:
    """Returns the HdfsIO for a URI, and the path on the cluster. `storage` are storage options that have been checked.

    Raises OptionError for settings that do not fit, and if hdfs-native is not installed. Sends no request.
    """
    address, path = hdfs_address(uri, storage)
    native_client(address)
    return HdfsIO(address, world), path
