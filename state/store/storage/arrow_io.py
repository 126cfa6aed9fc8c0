"""Files on HDFS, and on whatever else pyarrow can open.

Publishing needs a store operation that makes a file only if there is none: HDFS refuses to rename onto an existing
file. Elsewhere a caller may pass one in, and without it commits are refused before anything is written.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from bucketline.conf.errors import OptionError
from bucketline.conf.storage_options import hadoop_settings
from bucketline.state.determinism import SYSTEM_IDS, IdSource
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.format.paths import temporary_name
from bucketline.state.store.storage.file_info import FileInfo

PutIfAbsent = Callable[[str, bytes], bool]
"""(path, data) -> False if there is such an object already; one atomic operation of the store."""


class Rename(Enum):
    """What a store does when a file is renamed onto an existing one."""

    REPLACES = "replaces"
    REFUSES = "refuses"


_RENAME_OF = {"hdfs": Rename.REFUSES}
_HAS_FOLDERS = frozenset({"hdfs", "local", "mock", "subtree"})
_HDFS_SCHEMES = frozenset({"hdfs", "viewfs"})
_ARROW_SCHEMES = frozenset({*_HDFS_SCHEMES, "mock"})


@dataclass(frozen=True, slots=True)
class ArrowIO:
    """A pyarrow file system; paths are its own (`bucket/key`, `/path`). Errors as in FileIO."""

    filesystem: fs.FileSystem
    rename: Rename = Rename.REPLACES
    put_if_absent: PutIfAbsent | None = None
    ids: IdSource = SYSTEM_IDS

    def require_publish(self) -> None:
        if self.put_if_absent is None and self.rename is not Rename.REFUSES:
            raise UnsupportedTableError(
                f"cannot commit safely on '{self.filesystem.type_name}': pyarrow offers no put-if-absent there, so two "
                "writers could lose each other's commits. Put the table on a local, mounted or HDFS path, or pass a "
                "conditional put of the store as put_if_absent; reading works as it is",
                filesystem=self.filesystem.type_name,
            )

    def read(self, path: str) -> bytes:
        with self.open_input(path) as source, _storage_errors(path):
            data: bytes = source.read()
            return data

    def read_optional(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except StorageError as e:
            if e.fields["missing"]:
                return None
            raise

    def read_unchanging(self, path: str) -> bytes:
        return self.read(path)

    def write_new(self, path: str, data: bytes) -> None:
        with self.open_output(path) as sink, _storage_errors(path):
            sink.write(data)

    def publish(self, path: str, data: bytes) -> bool:
        self.require_publish()
        if self.put_if_absent is not None:
            with _storage_errors(path):
                return self.put_if_absent(path, data)
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/{temporary_name(name, self.ids.new_uuid())}"
        try:
            self.write_new(temporary, data)
            return self._rename_if_absent(temporary, path)
        finally:
            with suppress(StorageError):
                self.delete(temporary)

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

    def move_folder(self, directory: str, target: str) -> None:
        """Gives a folder another name, in one step where the file system can."""
        with _storage_errors(directory):
            self._make_folder(target)
            self.filesystem.move(directory, target)

    def open_input(self, path: str) -> pa.NativeFile:
        with _storage_errors(path):
            return self.filesystem.open_input_file(path)

    def open_output(self, path: str) -> pa.NativeFile:
        if self.exists(path):
            raise StorageError(f"{path}: exists already", path=path, retryable=False, missing=False)
        with _storage_errors(path):
            self._make_folder(path)
            return self.filesystem.open_output_stream(path)

    def _rename_if_absent(self, temporary: str, path: str) -> bool:
        try:
            with _storage_errors(path):
                self.filesystem.move(temporary, path)
        except StorageError:
            # A refusal and a failure look alike; only the file itself shows which it was.
            if self.exists(temporary) and self.exists(path):
                return False
            raise
        return True

    def _make_folder(self, path: str) -> None:
        if self.filesystem.type_name in _HAS_FOLDERS:
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


def arrow_io_for(uri: str, storage: Mapping[str, str]) -> tuple[ArrowIO, str]:
    """The ArrowIO for a URI and the path inside it; `storage` are storage options that have been checked.

    Raises OptionError when pyarrow cannot open such a URI.
    """
    scheme = uri.partition(":")[0]
    if scheme in _HDFS_SCHEMES and hadoop_settings(storage):
        return _hdfs(uri, hadoop_settings(storage))
    if scheme not in _ARROW_SCHEMES:
        raise OptionError(f"{uri}: there is no file system for the scheme '{scheme}'", uri=uri, scheme=scheme)
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError) as e:
        raise OptionError(f"{uri}: pyarrow cannot open it: {_first_line(e)}", uri=uri, scheme=scheme) from e
    return ArrowIO(filesystem, _RENAME_OF.get(filesystem.type_name, Rename.REPLACES)), path.rstrip("/")


def _hdfs(uri: str, settings: Mapping[str, str]) -> tuple[ArrowIO, str]:
    """HDFS with Hadoop's settings for this job; `hdfs:///path` means the default file system."""
    parts = urlsplit(uri)
    host = f"viewfs://{parts.hostname}" if parts.scheme == "viewfs" else parts.hostname or "default"
    try:
        files = fs.HadoopFileSystem(host, parts.port or 0, user=parts.username, extra_conf=dict(settings))
    except (pa.ArrowException, OSError) as e:
        raise OptionError(f"{uri}: pyarrow cannot open it: {_first_line(e)}", uri=uri, scheme=parts.scheme) from e
    return ArrowIO(files, Rename.REFUSES), parts.path.rstrip("/")


def _first_line(error: Exception) -> str:
    """Arrow lists every place where it has looked for a library, line by line."""
    return str(error).partition("\n")[0]


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
