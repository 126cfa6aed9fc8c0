"""Checks the checksums of a file while the file is read, through a file-like object for Arrow's readers."""

from collections import OrderedDict

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.orc_checksum import TAIL_BYTES, BlockChecksums, read_checksums
from bucketline.state.store.storage.positioned import PositionedReader

_PIECE_BYTES = 128 << 10
"""About how many bytes ORC's reader requests at once."""

_LONG_PIECE_BYTES = 512 << 10
_MOST_BYTES = 32 << 20


class CheckedSource(PositionedReader):
    """A file-like object that checks each block before it returns bytes of the block. `read` raises CorruptFileError if
    a block is damaged.

    The error is also kept in the attribute `error`, because a library that calls `read` may turn it into another error.

    ORC's reader reads many streams in turns, a little of each stream. So bytes are fetched several blocks at a time,
    and the fetched bytes stay in memory until all of them were read. The bytes in memory are at most `most_bytes`, plus
    the bytes that one call of `read` returns.
    """

    def __init__(
        self,
        source: pa.NativeFile,
        size: int,
        sums: BlockChecksums,
        tail: bytes,
        *,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._source, self._size, self._sums, self._tail = source, size, sums, memoryview(tail)
        self._most_bytes = most_bytes
        self._step = self._whole_blocks(_PIECE_BYTES)
        self._pieces: OrderedDict[int, _Piece] = OrderedDict()
        self.error: CorruptFileError | None = None

    def read_in_long_pieces(self) -> None:
        """Makes later reads fetch larger pieces. A caller that reads the whole file calls this method first."""
        self._pieces.clear()
        self._step = self._whole_blocks(_LONG_PIECE_BYTES)

    def _whole_blocks(self, size_bytes: int) -> int:
        return max(1, size_bytes // self._sums.block_bytes) * self._sums.block_bytes

    def _between(self, start: int, end: int) -> "bytes | memoryview":
        body = self._sums.body_bytes
        parts = self._checked(start, min(end, body))
        if max(start, body) < end:
            # The checksums and the bytes after them were checked when they were read.
            parts.append(self._in_tail(max(start, body), end))
        # Bytes that are all in one piece are not copied.
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _checked(self, start: int, end: int) -> list[memoryview]:
        """Checks the bytes from `start` to `end` against their checksums, and returns the bytes. The result has a
        view for each fetched piece of the file that holds some of these bytes. The range may hold only bytes that
        have checksums.
        """
        if start >= end:
            return []
        numbers = range(start // self._step, (end - 1) // self._step + 1)
        missing = [n for n in numbers if n not in self._pieces]
        if missing:
            self._fetch(missing[0], missing[-1])
        parts = []
        for n in numbers:
            piece, base = self._pieces[n], n * self._step
            self._pieces.move_to_end(n)
            parts.append(piece.data[max(start - base, 0) : end - base])
            piece.unread -= len(parts[-1])
            if piece.unread <= 0:
                del self._pieces[n]
        while len(self._pieces) > max(1, self._most_bytes // self._step):
            self._pieces.popitem(last=False)
        return parts

    def _fetch(self, low: int, high: int) -> None:
        """Fetches the pieces (aligned ranges of the file's bytes) with the numbers from `low` to `high` in one
        request, and compares their blocks with the checksums.
        """
        start, end = low * self._step, min((high + 1) * self._step, self._sums.body_bytes)
        data, block_bytes = self._stored(start, end), self._sums.block_bytes
        try:
            for at in range(start, end, block_bytes):
                self._sums.check(at // block_bytes, data[at - start : at - start + block_bytes])
        except CorruptFileError as e:
            self.error = e
            raise
        for n in range(low, high + 1):
            self._pieces[n] = _Piece(data[(n - low) * self._step : (n - low + 1) * self._step])

    def _stored(self, start: int, end: int) -> memoryview:
        if start >= self._size - len(self._tail):
            return self._in_tail(start, end)
        self._source.seek(start)
        return memoryview(self._source.read_buffer(end - start))

    def _in_tail(self, start: int, end: int) -> memoryview:
        from_tail = self._size - len(self._tail)
        return self._tail[start - from_tail : end - from_tail]


class _Piece:
    __slots__ = ("data", "unread")

    def __init__(self, data: memoryview) -> None:
        self.data, self.unread = data, len(data)


def checked_source(source: pa.NativeFile) -> CheckedSource | None:
    """Returns a file-like object that checks the file's blocks; None if the file has no checksums. Reads the end of the
    file; the end is not read a second time.

    Raises CorruptFileError if the end of the file is damaged.
    """
    size = source.size()
    wanted = min(TAIL_BYTES, size)
    while True:
        tail: bytes = source.read_at(wanted, size - wanted)
        answer = read_checksums(tail, size)
        if answer is None:
            return None
        if isinstance(answer, BlockChecksums):
            return CheckedSource(source, size, answer, tail)
        wanted = min(answer, size)
