"""HDFS in memory, at the seam of its client: for tests without a cluster. It answers as hdfs-native 0.14.7 and Hadoop
3.4.1 do, and treats chosen requests in the ways that a name node which goes away can.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from threading import RLock
from typing import Any, TypeVar

from bucketline.conf.storage_options import hdfs_settings
from bucketline.state.store.storage.hdfs_client import HdfsAddress, HdfsClient
from bucketline.state.store.storage.hdfs_io import HdfsIO

T = TypeVar("T")

ADDRESS = HdfsAddress("hdfs://fake", hdfs_settings({}))
NOT_A_FOLDER = (
    'RPCError("org.apache.hadoop.fs.ParentNotDirectoryException", "{} (is not a directory)\\n\\tat org.apache...")'
)


class Trouble(Enum):
    """What becomes of a request."""

    REPEATED = "the answer is lost, and the client sends it again: the second answer is given"
    ANSWER_LOST = "it is done, and the client gives up"
    REQUEST_LOST = "it is not done, and the client gives up"


Choose = Callable[[str, str], Trouble | None]
"""(request, path) -> what becomes of it; None: nothing special"""


@dataclass
class FakeStatus:
    """As hdfs-native's FileStatus."""

    path: str
    isdir: bool
    length: int
    modification_time: int


@dataclass
class FakeHdfs:
    """One cluster. `files` are those that are complete; folders stay when they are empty."""

    choose: Choose = lambda request, path: None
    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {"/"})
    being_written: dict[str, bytearray] = field(default_factory=dict)
    now_ms: Callable[[], int] = lambda: 1
    _times: dict[str, int] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    def io(self) -> HdfsIO:
        """A FileIO of this cluster."""
        return HdfsIO(ADDRESS, connect=self._connect)

    def get_file_info(self, path: str) -> FakeStatus:
        return self._do("get_file_info", path, lambda: self._status(path))

    def list_status(self, path: str) -> Iterator[FakeStatus]:
        def listed() -> list[FakeStatus]:
            if path not in self.folders:
                return [self._status(path)]
            start = path.rstrip("/") + "/"
            below = [*self.files, *self.being_written, *self.folders]
            names = {p.removeprefix(start).partition("/")[0] for p in below if p.startswith(start) and p != start}
            return [self._status(start + name) for name in sorted(names)]

        return iter(self._do("list_status", path, listed))

    def read(self, path: str) -> "FakeReader":
        def opened() -> FakeReader:
            self._status(path)
            return FakeReader(self.files.get(path, b""))

        return self._do("read", path, opened)

    def create(self, path: str) -> "FakeWriter":
        def made() -> FakeWriter:
            if path in self.files or path in self.being_written or path in self.folders:
                raise FileExistsError(f"{path} for client 127.0.0.1 already exists\n\tat org.apache...")
            self._make_folders(path.rpartition("/")[0])
            self.being_written[path] = bytearray()
            self._times[path] = self.now_ms()
            return FakeWriter(self, path)

        return self._do("create", path, made)

    def complete(self, path: str) -> None:
        def closed() -> None:
            if path not in self.being_written:
                raise FileNotFoundError(f"File does not exist: {path} (inode 1) Holder does not have any open files.")
            self.files[path] = bytes(self.being_written.pop(path))
            self._times[path] = self.now_ms()

        self._do("complete", path, closed)

    def mkdirs(self, path: str) -> None:
        self._do("mkdirs", path, lambda: self._make_folders(path))

    def rename(self, src: str, dst: str, overwrite: bool) -> None:
        def renamed() -> None:
            self._status(src, "rename source {} is not found.")
            if dst.rpartition("/")[0] not in self.folders:
                raise FileNotFoundError(f"rename destination parent {dst} not found.\n\tat org.apache...")
            if dst in self.files or dst in self.folders:
                if not overwrite:
                    raise FileExistsError(f"rename destination {dst} already exists\n\tat org.apache...")
                self.files.pop(dst, None)
            for kept in (self.files, self._times, self.being_written):
                moved = {p: v for p, v in kept.items() if p == src or p.startswith(f"{src}/")}
                for path, value in moved.items():
                    del kept[path]  # type: ignore[attr-defined] # of either of them
                    kept[dst + path.removeprefix(src)] = value  # type: ignore[index]
            moved_folders = {p for p in self.folders if p == src or p.startswith(f"{src}/")}
            self.folders = self.folders - moved_folders | {dst + p.removeprefix(src) for p in moved_folders}

        self._do("rename", src, renamed)

    def delete(self, path: str, recursive: bool) -> bool:
        def deleted() -> bool:
            start = f"{path}/"
            below = [p for p in (*self.files, *self.being_written, *self.folders) if p.startswith(start)]
            if below and not recursive:
                raise RuntimeError('RPCError("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", "not empty")')
            found = {*below, path}
            was = bool(found & (set(self.files) | set(self.being_written) | self.folders))
            for gone in found:
                self.files.pop(gone, None)
                self.being_written.pop(gone, None)
            self.folders -= found
            return was

        return self._do("delete", path, deleted)

    def _connect(self, address: HdfsAddress) -> HdfsClient:
        assert address == ADDRESS
        return self

    def _do(self, request: str, path: str, work: Callable[[], T]) -> T:
        with self._lock:
            trouble = self.choose(request, path)
            if trouble is Trouble.REQUEST_LOST:
                raise OSError("Connection reset by peer (os error 104)")
            if trouble is None:
                return work()
            try:
                work()
            except (OSError, RuntimeError):
                if trouble is Trouble.ANSWER_LOST:
                    raise OSError("Connection reset by peer (os error 104)") from None
            if trouble is Trouble.ANSWER_LOST:
                raise OSError("Connection reset by peer (os error 104)")
            return work()

    def _status(self, path: str, missing: str = "File does not exist: {}") -> FakeStatus:
        if path in self.folders:
            return FakeStatus(path, True, 0, 0)
        if path not in self.files and path not in self.being_written:
            raise FileNotFoundError(missing.format(path))
        return FakeStatus(path, False, len(self.files.get(path, b"")), self._times.get(path, 0))

    def _make_folders(self, folder: str) -> None:
        parts = folder.strip("/").split("/")
        for path in ("/" + "/".join(parts[: n + 1]) for n in range(len(parts))):
            if path in self.files:
                raise RuntimeError(NOT_A_FOLDER.format(path))
            self.folders.add(path)


class FakeReader:
    """As hdfs-native's reader, which ends the process where a range reaches past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read_range(self, offset: int, len: int) -> bytes:
        assert offset + len <= self.__len__(), "Cannot read past end of the file"
        return self._data[offset : offset + len]


class FakeWriter:
    """As hdfs-native's writer."""

    def __init__(self, cluster: FakeHdfs, path: str) -> None:
        self._cluster, self._path = cluster, path

    def write(self, buf: Any) -> int:
        self._cluster.being_written[self._path] += buf
        return len(buf)

    def close(self) -> None:
        self._cluster.complete(self._path)
