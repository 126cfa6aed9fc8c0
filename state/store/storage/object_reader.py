"""An object as a file that is read at any position: a plain Python object that Arrow's readers take for a file.

The first request brings the end of the object, where columnar formats keep their index, and with it the object's size.
A small object is there by that request alone.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import pyarrow as pa

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.object_errors import (
    RANGE_NOT_THERE,
    STORE_ERRORS,
    object_error,
    object_errors,
    status_of,
)
from bucketline.state.store.storage.object_store import StoreClients
from bucketline.state.store.storage.positioned import PositionedReader
from bucketline.state.store.storage.requests import Request

try:
    import obstore
except ImportError:
    obstore = None

TAIL_BYTES = 512 << 10
"""About what a store sends in the time that it takes to answer at all."""

_WHOLE_ANSWER = "non-partial response"
_PART_BYTES = 4 << 20
_MOST_AHEAD_BYTES = 1 << 20
_AT_ONCE = 8


class ObjectReader(PositionedReader):
    """An object that does not change. Errors as in FileIO.

    A long range is fetched in parts at the same time. Who reads on where the last range ended finds the next one on its
    way. Memory: the end of the object, what is read at once, and a range ahead.
    """

    def __init__(self, clients: StoreClients, path: str, key: str) -> None:
        self._clients, self._path, self._key = clients, path, key
        self._size, self._tail = _open(clients, path, key)
        self._read_to = -1
        self._ahead: tuple[int, int, Future[memoryview]] | None = None

    def readall(self) -> bytes:
        return bytes(self.read())

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        return pa.py_buffer(self.read(size))

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead[2].cancel()
            self._ahead = None
        self._tail = memoryview(b"")
        super().close()

    def _between(self, start: int, end: int) -> "bytes | memoryview":
        from_tail = self._size - len(self._tail)
        if start >= from_tail:
            return self._tail[start - from_tail : end - from_tail]
        stop = min(end, from_tail)
        found = self._body(start, stop)
        return found if stop == end else b"".join((found, self._tail[: end - from_tail]))

    def _body(self, start: int, end: int) -> "bytes | memoryview":
        """Bytes before the tail."""
        reads_on = start == self._read_to
        self._read_to = end
        parts: list[bytes | memoryview] = []
        at = start
        if self._ahead is not None:
            low, high, coming = self._ahead
            if low <= at < high:
                parts.append(coming.result()[at - low : min(end, high) - low])
                at = min(end, high)
            if at >= high or not low <= start < high:
                coming.cancel()
                self._ahead = None
        if at < end:
            parts.extend(self._fetch(at, end))
        from_tail = self._size - len(self._tail)
        if reads_on and self._ahead is None and end < from_tail:
            high = min(from_tail, end + min(end - start, _MOST_AHEAD_BYTES))
            self._ahead = (end, high, _pool().submit(_range, self._clients, self._path, self._key, end, high))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fetch(self, start: int, end: int) -> Sequence[memoryview]:
        cuts = [*range(start, end, _PART_BYTES), end]
        if len(cuts) > 2 and end - cuts[-2] < _PART_BYTES // 4:
            del cuts[-2]
        spans = list(pairwise(cuts))
        later = [_pool().submit(_range, self._clients, self._path, self._key, low, high) for low, high in spans[1:]]
        first = _range(self._clients, self._path, self._key, *spans[0])
        return [first, *(f.result() for f in later)]


def _range(clients: StoreClients, path: str, key: str, start: int, end: int) -> memoryview:
    clients.counter.add(Request.GET)
    with object_errors(path):
        return memoryview(obstore.get_range(clients.patient, key, start=start, end=end))


def _open(clients: StoreClients, path: str, key: str) -> tuple[int, memoryview]:
    """The object's size, and its last bytes."""
    if not clients.takes_suffix:
        clients.counter.add(Request.HEAD)
        with object_errors(path):
            size = int(obstore.head(clients.patient, key)["size"])
        return size, _range(clients, path, key, max(0, size - TAIL_BYTES), size) if size else memoryview(b"")
    clients.counter.add(Request.GET)
    try:
        found = obstore.get(clients.patient, key, options={"range": {"suffix": TAIL_BYTES}})
        return int(found.meta["size"]), memoryview(found.bytes())
    except STORE_ERRORS as e:
        if status_of(e) == RANGE_NOT_THERE:
            # An empty object has no last bytes.
            return 0, memoryview(b"")
        if _WHOLE_ANSWER not in str(e):
            raise object_error(path, e) from e
    return _open_whole(clients, path, key)


def _open_whole(clients: StoreClients, path: str, key: str) -> tuple[int, memoryview]:
    """As `_open`, where the store sends the whole object whatever range it is asked for: some do, if it is empty."""
    clients.counter.add(Request.GET)
    with object_errors(path):
        found = obstore.get(clients.patient, key)
        size = int(found.meta["size"])
        if size > TAIL_BYTES:
            raise StorageError(
                f"{path}: the store does not send parts of files", path=path, retryable=False, missing=False
            )
        return size, memoryview(found.bytes())


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="bucketline-fetch")
