"""A file under checksums: bytes are added up while they are written, and checked when they are read.

Plain Python objects that Arrow's readers and writers take for files.
"""

import io
import zlib
from collections import OrderedDict, deque

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.orc_checksum import (
    LONGEST_ENDING,
    TAIL_BYTES,
    BlockChecksums,
    checked_tail,
    read_checksums,
)

SMALLEST_BLOCK_BYTES = 64 << 10
_MOST_BLOCKS = 12_000
_REMEMBERED_BLOCKS = 16


def block_bytes_for(target_bytes: int) -> int:
    """The size of a block for files of about that size: their checksums have to fit into one chunk of the footer."""
    found = SMALLEST_BLOCK_BYTES
    while found * _MOST_BLOCKS < 2 * target_bytes:
        found *= 2
    return found


class CheckedSink(io.RawIOBase):
    """Passes on what is written to `sink`, which stays open, all but the last bytes: those are for `finish`.

    Memory: two writes, or a block where that is more.
    """

    def __init__(self, sink: "pa.NativeFile | io.RawIOBase", block_bytes: int) -> None:
        self._sink, self._block_bytes = sink, block_bytes
        self._values: list[int] = []
        self._crc = self._filled = self._written = 0
        self._started: list[bytes] = []
        self._held: deque[bytes] = deque()
        self._held_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]  # what Arrow gives
        found = bytes(data)
        self._held.append(found)
        self._held_bytes += len(found)
        while self._held_bytes - len(self._held[0]) >= LONGEST_ENDING:
            passed = self._held.popleft()
            self._held_bytes -= len(passed)
            self._sink.write(passed)
            self._add(passed)
        return len(found)

    def tell(self) -> int:
        return self._written + self._held_bytes

    def finish(self) -> None:
        """Writes what is left, with the checksums."""
        tail = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        if tail:
            started = b"".join(self._started)
            self._sink.write(
                checked_tail(
                    tail, offset=self._written, block_bytes=self._block_bytes, values=self._values, started=started
                )
            )

    def _add(self, data: bytes) -> None:
        self._written += len(data)
        # Views: slices of bytes would copy what is left once more for each block.
        view = memoryview(data)
        while len(view):
            part = view[: self._block_bytes - self._filled]
            self._crc = zlib.crc32(part, self._crc)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == self._block_bytes:
                self._values.append(self._crc)
                self._crc = self._filled = 0
                self._started = []
            else:
                self._started.append(bytes(part))


class CheckedSource(io.RawIOBase):
    """A file of which every block is checked before a byte of it is given out. Raises CorruptFileError from `read`.

    The error is kept too, as `error`: libraries in between make another one of it. Memory: some blocks, and what is
    read at once.
    """

    def __init__(self, source: pa.NativeFile, size: int, sums: BlockChecksums, tail: bytes) -> None:
        self._source, self._size, self._sums, self._tail = source, size, sums, tail
        self._at = 0
        self._known: OrderedDict[int, bytes] = OrderedDict()
        self.error: CorruptFileError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> "bytes | memoryview":
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        found = self._between(self._at, end)
        self._at = max(self._at, end)
        return found

    def _between(self, start: int, end: int) -> "bytes | memoryview":
        if start >= end:
            return b""
        body = self._sums.body_bytes
        if start >= body:
            return self._unchecked(start, end)
        inside = min(end, body)
        parts = self._checked(start, inside)
        if inside < end:
            parts.append(memoryview(self._unchecked(inside, end)))
        # What comes in one piece is not copied.
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _checked(self, start: int, end: int) -> list[memoryview]:
        """Bytes of the body in a few pieces: of blocks that are remembered, and of what is fetched at once."""
        step = self._sums.block_bytes
        first, last = start // step, (end - 1) // step
        missing = [n for n in range(first, last + 1) if n not in self._known]
        low, high = (missing[0], missing[-1]) if missing else (last + 1, last)
        known = [memoryview(self._known[n]) for n in range(first, low)]
        behind = [memoryview(self._known[n]) for n in range(high + 1, last + 1)]
        fetched = [self._fetch(low, high)] if missing else []
        found = [*known, *fetched, *behind]
        after = min((last + 1) * step, self._sums.body_bytes) - end
        if after:
            found[-1] = found[-1][:-after]
        found[0] = found[0][start - first * step :]
        return found

    def _fetch(self, low: int, high: int) -> memoryview:
        """Blocks `low` to `high`, checked. Their ends are remembered: what is read next begins and ends there."""
        step = self._sums.block_bytes
        data = memoryview(self._unchecked(low * step, min((high + 1) * step, self._sums.body_bytes)))
        for n in range(low, high + 1):
            try:
                self._sums.check(n, data[(n - low) * step : (n - low + 1) * step])
            except CorruptFileError as e:
                self.error = e
                raise
        for n in dict.fromkeys((low, high)):
            self._known[n] = bytes(data[(n - low) * step : (n - low + 1) * step])
        while len(self._known) > _REMEMBERED_BLOCKS:
            self._known.popitem(last=False)
        return data

    def _unchecked(self, start: int, end: int) -> bytes:
        from_tail = self._size - len(self._tail)
        if start >= from_tail:
            return self._tail[start - from_tail : end - from_tail]
        found: bytes = self._source.read_at(min(end, from_tail) - start, start)
        return found if end <= from_tail else found + self._tail[: end - from_tail]


def checked_source(source: pa.NativeFile) -> CheckedSource | None:
    """The file with its blocks checked; None when it has no checksums. Reads its last bytes, which are not read again.

    Raises CorruptFileError when the end of the file is damaged.
    """
    size = source.size()
    wanted = min(TAIL_BYTES, size)
    while True:
        tail: bytes = source.read_at(wanted, size - wanted)
        found = read_checksums(tail, size)
        if found is None:
            return None
        if isinstance(found, BlockChecksums):
            return CheckedSource(source, size, found, tail)
        wanted = min(found, size)
