"""What is written, published and deleted in a folder, as a log that is the same in every run.

While it records, the machine's clock, its pauses, its chance and its fresh names are replaced in this process: they are
the `System...` of `state/determinism.py`, which product code takes where a caller gives nothing else. That a change of
the code leaves all that is written as it was is proven only if none of it can come from elsewhere.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state import determinism
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.local_io import LocalIO

_READS = ("read", "read_optional", "list_names", "list_files", "exists", "size", "modified_ms", "open_input")
_START_MS = 1_700_000_000_000


@dataclass
class Recorder:
    """`log` has a line for each write, publication and deletion below `root`; `reads` counts the calls that read."""

    root: str
    log: list[str] = field(default_factory=list)
    reads: int = 0
    now_ms: int = _START_MS
    written_ms: dict[str, int] = field(default_factory=dict)
    open_files: list[str] = field(default_factory=list)
    before_publish: list[Callable[[], object]] = field(default_factory=list)
    """What happens, one for each, before the next snapshots are published."""

    def step(self, name: str) -> None:
        """Begins a part of the log; a second has passed since the last."""
        self.settle()
        self.now_ms += 1_000
        self.log.append(f"# {name}")

    def settle(self) -> None:
        """Adds the bytes of the files that were written as streams: they are closed by now."""
        for path in self.open_files:
            self._add("write", path, Path(path).read_bytes() if Path(path).exists() else None)
        self.open_files.clear()

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.log).encode()).hexdigest()

    def wrote(self, operation: str, path: str, data: bytes | None) -> None:
        self.written_ms[path] = self.now_ms
        self._add(operation, path, data)

    def opened(self, path: str) -> None:
        self.written_ms[path] = self.now_ms
        self.open_files.append(path)
        self._add("open", path, None)

    def deleted(self, operation: str, path: str) -> None:
        if path in self.open_files:
            self.open_files.remove(path)
            self._add("write", path, Path(path).read_bytes() if Path(path).exists() else None)
        self._add(operation, path, None)

    def modified_ms(self, path: str, found_ms: int) -> int:
        return self.written_ms.get(path, found_ms)

    def _add(self, operation: str, path: str, data: bytes | None) -> None:
        if path.startswith(self.root):
            content = "" if data is None else f" {hashlib.sha256(data).hexdigest()[:16]}"
            self.log.append(f"{operation} {path.removeprefix(self.root)}{content}")


@contextmanager
def recorded(root: Path) -> Iterator[Recorder]:
    """Records what `LocalIO` does below a folder, with a clock that stands until a pause, and names that are
    numbered."""
    recorder = Recorder(str(root))
    with pytest.MonkeyPatch.context() as patch:
        _seed(patch, recorder)
        _watch(patch, recorder)
        yield recorder


def _seed(patch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    count = 0

    def new_uuid(self: object) -> str:
        nonlocal count
        count += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(count)))

    def wait_ms(self: object, duration_ms: int) -> None:
        recorder.now_ms += duration_ms

    patch.setattr(determinism.SystemIds, "new_uuid", new_uuid)
    patch.setattr(determinism.SystemClock, "now_ms", lambda self: recorder.now_ms)
    patch.setattr(determinism.SystemClock, "local_ms", lambda self: recorder.now_ms)
    patch.setattr(determinism.SystemStopwatch, "elapsed_ms", lambda self: recorder.now_ms)
    patch.setattr(determinism.SystemRandom, "fraction", lambda self: 0.5)
    patch.setattr(determinism.SystemPause, "wait_ms", wait_ms)


def _watch(patch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    def watched(name: str, act: Callable[..., Any]) -> None:
        real = getattr(LocalIO, name)
        patch.setattr(LocalIO, name, lambda self, *given: act(lambda: real(self, *given), *given))

    def write(name: str) -> Callable[..., Any]:
        def act(call: Callable[[], Any], path: str, data: bytes) -> Any:
            if name == "publish" and "/snapshot/" in path and recorder.before_publish:
                recorder.before_publish.pop(0)()
            done = call()
            recorder.wrote(name if done is not False else f"{name}-lost", path, data)
            return done

        return act

    def remove(name: str) -> Callable[..., Any]:
        def act(call: Callable[[], Any], path: str) -> Any:
            recorder.deleted(name, path)
            return call()

        return act

    def read(name: str) -> Callable[..., Any]:
        def act(call: Callable[[], Any], path: str) -> Any:
            recorder.reads += 1
            found = call()
            if name == "modified_ms":
                return recorder.modified_ms(path, found)
            if name == "list_files":
                return [_dated(recorder, f) for f in found]
            return found

        return act

    def open_output(call: Callable[[], pa.NativeFile], path: str) -> pa.NativeFile:
        file = call()
        recorder.opened(path)
        return file

    for name in ("write_new", "publish", "overwrite"):
        watched(name, write(name))
    for name in ("delete", "delete_folder"):
        watched(name, remove(name))
    for name in _READS:
        watched(name, read(name))
    watched("open_output", open_output)


def _dated(recorder: Recorder, file: FileInfo) -> FileInfo:
    return replace(file, modified_ms=recorder.modified_ms(file.path, file.modified_ms))
