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
    _inside: dict[str, dict[str, int]] = field(default_factory=dict)
    """By folder: the names in it, each with how many files it stands for."""

    @property
    def now_ms(self) -> int:
        return START_MS + self.world.now_ms

    @property
    def is_full(self) -> bool:
        return self.world.now_ms < self.full_until_ms

    def put(self, path: str, data: bytes, owner: Any) -> None:
        before, after = self.files.get(path), File(bytes(data), self.now_ms)
        self.files[path] = after
        if before is None:
            self._count(path, 1)
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
            self._count(path, -1)
            self._tell(Change(path, before, None, owner))

    def move(self, path: str, target: str, owner: Any) -> bool:
        """Gives a file another name, and replaces a file of that name. It keeps the time of its writing."""
        found = self.files.pop(path, None)
        if found is None:
            return False
        replaced = self.files.get(target)
        self.files[target] = found
        self._count(path, -1)
        if replaced is None:
            self._count(target, 1)
        self._tell(Change(path, found, None, owner))
        self._tell(Change(target, replaced, found, owner))
        return True

    def names(self, directory: str) -> list[str]:
        return sorted(self._inside.get(directory, ()))

    def below(self, directory: str) -> list[FileInfo]:
        found, folders = [], [directory]
        while folders:
            folder = folders.pop()
            for name in self._inside.get(folder, ()):
                path = f"{folder}/{name}"
                file = self.files.get(path)
                if file is not None:
                    found.append(FileInfo(path, len(file.data), file.modified_ms))
                else:
                    folders.append(path)
        return sorted(found, key=lambda info: info.path)

    def _count(self, path: str, by: int) -> None:
        """Counts a file that has come or gone, in all folders above it."""
        while path:
            folder, _, name = path.rpartition("/")
            names = self._inside.setdefault(folder, {})
            names[name] = names.get(name, 0) + by
            if not names[name]:
                del names[name]
            path = folder

    def _tell(self, change: Change) -> None:
        for watcher in self.watchers:
            watcher(change)
