"""The storage of a world as one process reaches it, through the FileIO of the kind that it stands for.

Every call is a turn. What goes wrong is what the faults of the process's operation say, within the storage's contract.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from bucketline.state.errors import StorageError
from bucketline.state.store.server.rest_client import NotThereError, TakenError
from bucketline.state.store.storage.errors import exists_already
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.local_io import LocalIO
from tests.simulation.disk import Disk
from tests.simulation.faults import Fault, FaultKind, Store, Trouble
from tests.simulation.scheduler import KilledError, Process
from tests.simulation.sources import machine_of

T = TypeVar("T")

_OBJECTS = frozenset({Store.OBJECTS, Store.REST})
_WRITES = frozenset({"write_new", "publish", "overwrite", "open_output", "close_output"})
_LATE = frozenset({"write_new", "publish", "overwrite", "close_output", "delete", "request"})
"""Requests that may arrive late."""
_TWICE = frozenset({"write_new", "overwrite"})
"""Requests that a client sends again, so that both may arrive."""


class SimIO:
    """A FileIO of one process. Not for threads."""

    def __init__(self, disk: Disk, process: Process, store: Store, trouble: Trouble) -> None:
        self.disk, self.process, self.store, self.trouble = disk, process, store, trouble

    def require_publish(self) -> None:
        return

    def read(self, path: str) -> bytes:
        return self._call("read", path, lambda: self._data(path))

    def read_optional(self, path: str) -> bytes | None:
        def read() -> bytes | None:
            found = self.disk.files.get(path)
            return None if found is None else found.data

        return self._call("read_optional", path, read)

    def read_unchanging(self, path: str) -> bytes:
        return self.read(path)

    def write_new(self, path: str, data: bytes) -> None:
        owner = self.trouble.owner

        def write(part: bytes = data) -> None:
            if not self.disk.create(path, part, owner):
                raise exists_already(path)

        self._call("write_new", path, write, lambda: write(data[: len(data) // 2]))

    def publish(self, path: str, data: bytes) -> bool:
        owner = self.trouble.owner

        def publish() -> bool:
            made = self.disk.create(path, data, owner)
            # A store that repeats requests takes a file with the same bytes for its own.
            return made or (self.store is not Store.POSIX and self.disk.files[path].data == data)

        return self._call("publish", path, publish)

    def overwrite(self, path: str, data: bytes) -> None:
        owner = self.trouble.owner
        self._call("overwrite", path, lambda: self.disk.put(path, data, owner))

    def list_names(self, directory: str) -> list[str]:
        return self._call("list_names", directory, lambda: self._listed(lambda: self.disk.names(directory)))

    def list_files(self, directory: str) -> list[FileInfo]:
        def by_path() -> list[FileInfo]:
            return self.disk.below(directory)

        return self._call("list_files", directory, lambda: self._listed(by_path))

    def exists(self, path: str) -> bool:
        return self._call("exists", path, lambda: path in self.disk.files)

    def size(self, path: str) -> int:
        return self._call("size", path, lambda: len(self._data(path)))

    def modified_ms(self, path: str) -> int:
        def modified() -> int:
            self._data(path)
            return self.disk.files[path].modified_ms

        return self._call("modified_ms", path, modified)

    def delete(self, path: str) -> None:
        owner = self.trouble.owner
        self._call("delete", path, lambda: self.disk.remove(path, owner))

    def delete_folder(self, directory: str) -> None:
        owner = self.trouble.owner

        def delete() -> None:
            for found in self.disk.below(directory):
                self.disk.remove(found.path, owner)
                self.process.turn()

        self._call("delete_folder", directory, delete)

    def move(self, path: str, target: str) -> bool:
        owner = self.trouble.owner
        return self._call("move", path, lambda: self.disk.move(path, target, owner))

    def make_folder(self, directory: str) -> None:
        return

    def open_input(self, path: str) -> pa.NativeFile:
        return self._call("open_input", path, lambda: pa.BufferReader(self._data(path)))

    def open_output(self, path: str) -> pa.NativeFile:
        owner = self.trouble.owner

        def opened() -> pa.NativeFile:
            if path in self.disk.files:
                raise exists_already(path)
            if self.store not in _OBJECTS:
                self.disk.create(path, b"", owner)
            return pa.PythonFile(_Output(self, path), mode="w")

        return self._call("open_output", path, opened)

    def close_output(self, path: str, data: bytes) -> None:
        """Ends the writing of a file that was opened by `open_output`."""
        owner = self.trouble.owner

        def close() -> None:
            if self.store in _OBJECTS:
                if not self.disk.create(path, data, owner) and self.disk.files[path].data != data:
                    raise exists_already(path)
            elif path in self.disk.files:
                # On POSIX a file that was removed while it was written stays removed.
                self.disk.put(path, data, owner)

        self._call("close_output", path, close)

    def _data(self, path: str) -> bytes:
        found = self.disk.files.get(path)
        if found is None:
            raise StorageError(f"{path}: no such file", path=path, retryable=False, missing=True)
        return found.data

    def _listed(self, ask: Callable[[], list[T]]) -> list[T]:
        """The names that a listing shows. It is read in two parts, and other processes may act between them."""
        first = ask()
        if len(first) < 2 or self.process.chance.random() < 0.7:
            return first
        split = self.process.chance.randrange(1, len(first))
        pivot = _name(first[split])
        self.process.turn()
        return [*first[:split], *(f for f in ask() if _name(f) >= pivot)]

    def _call(self, name: str, path: str, act: Callable[[], T], torn: Callable[[], object] | None = None) -> T:
        self.process.turn()
        faults = self.trouble.call(name, path)
        after = None
        for fault in faults:
            after = self._struck(fault, name, path, act, torn) or after
        if self.process.world.now_ms < self.trouble.cut_until_ms:
            raise self._error(name, path, "cut off")
        if self.disk.is_full and name in _WRITES:
            raise StorageError(f"{path}: the disk is full", path=path, retryable=True, missing=False, published=False)
        found = act()
        if after is not None:
            self._after(after, name, path, act)
        return found

    def _struck(
        self, fault: Fault, name: str, path: str, act: Callable[[], object], torn: Callable[[], object] | None
    ) -> Fault | None:
        """Does what comes before the call; the fault, where something comes after it."""
        kind, process = fault.kind, self.process
        self.trouble.struck[kind] += 1
        if kind is FaultKind.STOP:
            process.sleep(fault.ms)
        elif kind is FaultKind.JUMP:
            machine_of(process).clock.offset_ms += fault.ms
        elif kind is FaultKind.FULL:
            self.disk.full_until_ms = process.world.now_ms + fault.ms
        elif kind is FaultKind.CUT:
            self.trouble.cut_until_ms = process.world.now_ms + fault.ms
        elif kind is FaultKind.BEFORE:
            raise self._error(name, path, kind.value)
        elif kind is FaultKind.LATE:
            if name in _LATE and not (name == "delete" and "/snapshot/" in path):
                process.world.later(fault.ms, lambda: _quietly(act))
            raise self._error(name, path, kind.value)
        elif kind is FaultKind.TORN:
            # An incomplete file is removed before the error is raised.
            raise self._error(name, path, kind.value)
        elif kind in (FaultKind.KILL, FaultKind.KILL_TORN):
            if kind is FaultKind.KILL_TORN and torn is not None:
                _quietly(torn)
            process.is_dead = True
            raise KilledError
        else:
            return fault
        return None

    def _after(self, fault: Fault, name: str, path: str, act: Callable[[], object]) -> None:
        kind, process = fault.kind, self.process
        if kind is FaultKind.AFTER:
            raise self._error(name, path, kind.value)
        if kind is FaultKind.STOP_AFTER:
            process.sleep(fault.ms)
        elif kind is FaultKind.KILL_AFTER:
            process.is_dead = True
            raise KilledError
        elif kind is FaultKind.TWICE and name in _TWICE:
            process.world.later(fault.ms, lambda: _quietly(act))

    def _error(self, name: str, path: str, what: str) -> StorageError:
        return StorageError(f"{path}: {name}: {what}", path=path, retryable=True, missing=False)


class ObjectsIO(SimIO):
    """As SimIO, for remote storage. Code sends independent requests to such storage at the same time; a world does them
    one after the other."""

    answers_late = True


class HdfsFolders(ObjectsIO):
    """As ObjectsIO, for code that asks whether files and folders can be renamed in one step."""

    def move_folder(self, directory: str, target: str) -> bool:
        """As `HasFolders.move_folder`; no operation of a world moves folders."""
        raise NotImplementedError


class PosixIO(SimIO, LocalIO):
    """As SimIO, for code that asks whether storage is a POSIX file system."""

    __slots__ = ("__dict__",)

    def __init__(self, disk: Disk, process: Process, trouble: Trouble) -> None:
        for name, value in (("disk", disk), ("process", process), ("store", Store.POSIX), ("trouble", trouble)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "world", machine_of(process).world)


class _Output:
    """A file that is being written."""

    def __init__(self, io: SimIO, path: str) -> None:
        self._io, self._path, self._parts, self.closed = io, path, [], False

    _parts: list[bytes]

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._io.close_output(self._path, b"".join(self._parts))

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def storage_of(disk: Disk, process: Process, store: Store, trouble: Trouble) -> SimIO:
    """The storage as a process reaches it."""
    if store is Store.POSIX:
        return PosixIO(disk, process, trouble)
    kind = HdfsFolders if store is Store.HDFS else ObjectsIO
    return kind(disk, process, store, trouble)


def _name(listed: object) -> str:
    return listed.path if isinstance(listed, FileInfo) else str(listed)


def _quietly(act: Callable[[], object]) -> None:
    """Lets a late request of a dead process happen. Nobody gets its answer, also if a catalog refuses it."""
    try:
        act()
    except (StorageError, KilledError, NotThereError, TakenError):
        return
