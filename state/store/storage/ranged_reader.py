"""A remote file that is read at any position: a Python object that Arrow's readers accept as a file.

The end of the file is fetched first, because columnar formats keep their index there. A small file is fetched as a
whole.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import pyarrow as pa

from bucketline.state.store.storage.positioned import PositionedReader

TAIL_BYTES = 1 << 20
"""How many bytes of the end of a file are fetched first. Sending this many bytes takes about as long as the store needs
to begin its answer.
"""

_PART_BYTES = 4 << 20
_MOST_AHEAD_BYTES = 1 << 20
_AT_ONCE = 8

Fetch = Callable[[int, int], memoryview]
"""A function that takes two positions, and returns the bytes of the file between them. Several threads may call it."""


class RangedReader(PositionedReader):
    """A file of `size` bytes that does not change. `tail` holds its last bytes. Reads raise the errors of `fetch`.

    A long range is fetched in parts at the same time. If a read begins where the last read ended, the next range is
    also fetched ahead. In memory are the end of the file, the bytes of one read, and one range that was fetched ahead.
    """

    def __init__(self, size: int, tail: memoryview, fetch: Fetch) -> None:
        self._size, self._tail, self._get = size, tail, fetch
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
        body = self._body(start, stop)
        return body if stop == end else b"".join((body, self._tail[: end - from_tail]))

    def _body(self, start: int, end: int) -> "bytes | memoryview":
        """Returns the bytes from `start` up to `end`. These bytes lie before the end of the file that is in memory
        (`tail`), so they are fetched, unless they were fetched ahead.
        """
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
            self._ahead = (end, high, _pool().submit(self._get, end, high))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fetch(self, start: int, end: int) -> Sequence[memoryview]:
        cuts = [*range(start, end, _PART_BYTES), end]
        if len(cuts) > 2 and end - cuts[-2] < _PART_BYTES // 4:
            del cuts[-2]
        spans = list(pairwise(cuts))
        later = [_pool().submit(self._get, low, high) for low, high in spans[1:]]
        first = self._get(*spans[0])
        return [first, *(f.result() for f in later)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="bucketline-fetch")
