"""A cache in memory for files that never change: file contents by file name, within a budget of bytes.

Manifests, manifest lists and index manifests never change, and their names are never used again, so cached contents
stay valid.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Lock

from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.storage.wrapped_io import Inner, WrappedIO

BUDGET_BYTES = 64 << 20
_LARGEST_BYTES = 4 << 20
REMEMBERED_BYTES = 256 << 20
"""How many bytes of manifest files are cached by default. The least recently used file is dropped first."""


class Remembered:
    """A cache of up to `budget_bytes` bytes of files; a file larger than `largest_bytes` is not cached. The least
    recently used file is dropped first. Several threads may use the cache.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES, largest_bytes: int = _LARGEST_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._largest_bytes = min(budget_bytes, largest_bytes)
        self._used_bytes = 0
        self._files: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def used_bytes(self) -> int:
        """Returns the number of bytes in the cache."""
        return self._used_bytes

    def get(self, key: Hashable) -> bytes | None:
        with self._lock:
            data = self._files.get(key)
            if data is not None:
                self._files.move_to_end(key)
            return data

    def put(self, key: Hashable, data: bytes) -> None:
        """Adds a file to the cache, unless it is so large that many other files would be dropped for it."""
        if len(data) > self._largest_bytes:
            return
        with self._lock:
            self._forget(key)
            self._files[key] = data
            self._used_bytes += len(data)
            while self._used_bytes > self._budget_bytes:
                self._forget(next(iter(self._files)))

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._forget(key)

    def _forget(self, key: Hashable) -> None:
        self._used_bytes -= len(self._files.pop(key, b""))


FILES_OF_PROCESS = Remembered()


@dataclass(frozen=True, slots=True, repr=False)
class RememberedFor:
    """The cached files of one owner (a storage with its settings): only this owner gets the files that it has read. All
    owners of a process share one budget.
    """

    owner: Hashable

    def get(self, path: str) -> bytes | None:
        return FILES_OF_PROCESS.get((self.owner, path))

    def put(self, path: str, data: bytes) -> None:
        FILES_OF_PROCESS.put((self.owner, path), data)

    def forget(self, path: str) -> None:
        FILES_OF_PROCESS.forget((self.owner, path))


@dataclass(frozen=True, slots=True)
class ReadOnceIO(WrappedIO):
    """A FileIO that keeps in memory the files that it has read from manifest folders, so that they are read only once.
    `remembered` is this cache, and limits its bytes.
    """

    inner: Inner
    remembered: Remembered = field(default_factory=lambda: Remembered(REMEMBERED_BYTES, REMEMBERED_BYTES))

    def read(self, path: str) -> bytes:
        data = self.remembered.get(path)
        if data is None:
            data = self.inner.read(path)
            if f"/{MANIFEST_DIR}/" in path:
                self.remembered.put(path, data)
        return data

    def read_unchanging(self, path: str) -> bytes:
        """Returns the whole file, as `read` does. Bytes that other readers in this process have cached are not used."""
        return self.read(path)
