"""Files that never change, kept in memory by their names within a budget of bytes."""

from collections import OrderedDict
from threading import Lock

BUDGET_BYTES = 32 << 20
_LARGEST_BYTES = 4 << 20


class Remembered:
    """Up to `budget_bytes` of files, none above `largest_bytes`; what was used longest ago goes first. For several
    threads.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES, largest_bytes: int = _LARGEST_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._largest_bytes = min(budget_bytes, largest_bytes)
        self._used_bytes = 0
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def used_bytes(self) -> int:
        """The bytes of the files that are remembered."""
        return self._used_bytes

    def get(self, key: str) -> bytes | None:
        with self._lock:
            found = self._files.get(key)
            if found is not None:
                self._files.move_to_end(key)
            return found

    def put(self, key: str, data: bytes) -> None:
        """Remembers a file, unless it is so large that it would push out many others."""
        if len(data) > self._largest_bytes:
            return
        with self._lock:
            self._forget(key)
            self._files[key] = data
            self._used_bytes += len(data)
            while self._used_bytes > self._budget_bytes:
                self._forget(next(iter(self._files)))

    def forget(self, key: str) -> None:
        with self._lock:
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._used_bytes -= len(self._files.pop(key, b""))
