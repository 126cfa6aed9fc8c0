"""A storage: files in memory, each with the time of its writing by the clock of the storage."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bucketline.state.store.storage.file_info import FileInfo
from tests.simulation.scheduler import Scheduler
from tests.simulation.sources import START_MS


@dataclass(frozen=True)
class File:
    """Bytes, and the time of their writing by the storage's clock."""

    data: bytes
    modified_ms: int


@dataclass(frozen=True)
class Change:
    """A change of a path, and the operation that has asked for it (`owner`), also if the change happens later. `before`
    or `after` is None if there was or is no file."""

    path: str
    before: File | None
    after: File | None
    owner: Any


@dataclass
class Disk:
    """Files by path. Each of `watchers` is called with every change as it happens. The disk is full until
    `full_until_ms`."""

    world: Scheduler
    files: dict[str, File] = field(default_factory=dict)
    watchers: list[Callable[[Change], None]] = field(default_factory=list)
    full_until_ms: int = -1

    @property
    def now_ms(self) -> int:
        return START_MS + self.world.now_ms

    @property
    def is_full(self) -> bool:
        return self.world.now_ms < self.full_until_ms

    def put(self, path: str, data: bytes, owner: Any) -> None:
        before, after = self.files.get(path), File(bytes(data), self.now_ms)
        self.files[path] = after
        self._tell(Change(path, before, after, owner))

    def create(self, path: str, data: bytes, owner: Any) -> bool:
        """Creates a file. Returns False and changes nothing if it exists."""
        if path in self.files:
            return False
        self.put(path, data, owner)
        return True

    def remove(self, path: str, owner: Any) -> None:
        before = self.files.pop(path, None)
        if before is not None:
            self._tell(Change(path, before, None, owner))

    def move(self, path: str, target: str, owner: Any) -> bool:
        """Gives a file another name, and replaces a file of that name. It keeps the time of its writing."""
        found = self.files.pop(path, None)
        if found is None:
            return False
        replaced = self.files.get(target)
        self.files[target] = found
        self._tell(Change(path, found, None, owner))
        self._tell(Change(target, replaced, found, owner))
        return True

    def names(self, directory: str) -> list[str]:
        start = f"{directory}/"
        length = len(start)
        return sorted({p[length:].partition("/")[0] for p in self.files if p.startswith(start)})

    def below(self, directory: str) -> list[FileInfo]:
        start = f"{directory}/"
        found = sorted((p, f) for p, f in self.files.items() if p.startswith(start))
        return [FileInfo(p, len(f.data), f.modified_ms) for p, f in found]

    def _tell(self, change: Change) -> None:
        for watcher in self.watchers:
            watcher(change)
