"""A FileIO that counts its calls and lets chosen ones go wrong, in each way storage can.

Runs are repeatable: calls are numbered from 1 in the order made, and a fault names the number it strikes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.file_io import FileIO

T = TypeVar("T")


class Fault(Enum):
    """What happens to the call that is struck; each raises a retryable StorageError."""

    BEFORE = "nothing happens"
    AFTER = "it happens, and the answer is an error"
    LOST = "it happens, the answer is an error, and so is every later call until `reconnect`"
    LATE = "it happens only when the next call is made"
    TORN = "a write leaves half of its bytes behind; other calls do nothing"


@dataclass
class FaultyIO:
    """Wraps a FileIO; `faults` maps call numbers to what goes wrong, `calls` lists what was called."""

    inner: FileIO
    faults: dict[int, Fault] = field(default_factory=dict)
    before_call: Callable[[str, str], None] | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    is_cut_off: bool = False
    _late: list[Callable[[], object]] = field(default_factory=list)

    def reconnect(self) -> None:
        """Ends an outage; what was still on its way arrives."""
        self.is_cut_off = False
        self._arrive()

    def require_publish(self) -> None:
        self.inner.require_publish()

    def read(self, path: str) -> bytes:
        return self._call("read", path, lambda: self.inner.read(path))

    def read_optional(self, path: str) -> bytes | None:
        return self._call("read_optional", path, lambda: self.inner.read_optional(path))

    def read_unchanging(self, path: str) -> bytes:
        return self._call("read", path, lambda: self.inner.read_unchanging(path))

    def write_new(self, path: str, data: bytes) -> None:
        torn = lambda: self.inner.write_new(path, data[: len(data) // 2])  # noqa: E731 (both forms side by side)
        self._call("write_new", path, lambda: self.inner.write_new(path, data), torn)

    def publish(self, path: str, data: bytes) -> bool:
        return self._call("publish", path, lambda: self.inner.publish(path, data))

    def overwrite(self, path: str, data: bytes) -> None:
        self._call("overwrite", path, lambda: self.inner.overwrite(path, data))

    def list_names(self, directory: str) -> list[str]:
        return self._call("list_names", directory, lambda: self.inner.list_names(directory))

    def list_files(self, directory: str) -> list[FileInfo]:
        return self._call("list_files", directory, lambda: self.inner.list_files(directory))

    def exists(self, path: str) -> bool:
        return self._call("exists", path, lambda: self.inner.exists(path))

    def size(self, path: str) -> int:
        return self._call("size", path, lambda: self.inner.size(path))

    def modified_ms(self, path: str) -> int:
        return self._call("modified_ms", path, lambda: self.inner.modified_ms(path))

    def delete(self, path: str) -> None:
        self._call("delete", path, lambda: self.inner.delete(path))

    def delete_folder(self, directory: str) -> None:
        self._call("delete_folder", directory, lambda: self.inner.delete_folder(directory))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._call("open_input", path, lambda: self.inner.open_input(path))

    def open_output(self, path: str) -> pa.NativeFile:
        return self._call("open_output", path, lambda: self.inner.open_output(path))

    def _call(self, name: str, path: str, call: Callable[[], T], torn: Callable[[], object] | None = None) -> T:
        self._arrive()
        if self.before_call is not None:
            self.before_call(name, path)
        self.calls.append((name, path))
        if self.is_cut_off:
            raise self._error(name, path, "cut off")
        fault = self.faults.get(len(self.calls))
        if fault is None:
            return call()
        if fault is Fault.AFTER or fault is Fault.LOST:
            call()
            self.is_cut_off = fault is Fault.LOST
        elif fault is Fault.LATE:
            self._late.append(call)
        elif fault is Fault.TORN and torn is not None:
            torn()
        raise self._error(name, path, fault.value)

    def _arrive(self) -> None:
        late, self._late = self._late, []
        for call in late:
            call()

    def _error(self, name: str, path: str, what: str) -> StorageError:
        return StorageError(
            f"{path}: call {len(self.calls)} ({name}): {what}", path=path, retryable=True, missing=False
        )
