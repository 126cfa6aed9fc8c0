"""Computes the checksums of a file while the file is written, through a file-like object for Arrow's writers."""

import io
import zlib
from collections import deque

import pyarrow as pa

from bucketline.state.format.orc_checksum import LONGEST_ENDING, checked_tail

SMALLEST_BLOCK_BYTES = 64 << 10
_MOST_BLOCKS = 12_000


def block_bytes_for(target_bytes: int) -> int:
    """Returns the block size, in bytes, for files of about the given size. Blocks are so large that the checksums of
    all blocks fit into one chunk of the footer.
    """
    block_bytes = SMALLEST_BLOCK_BYTES
    while block_bytes * _MOST_BLOCKS < 2 * target_bytes:
        block_bytes *= 2
    return block_bytes


class CheckedSink(io.RawIOBase):
    """A file-like object that passes on to `sink` what is written to it. The last bytes are held back until `finish`
    writes them together with the checksums. `sink` stays open. In memory are the bytes of two writes, or of one block
    if a block is larger.
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
        written = bytes(data)
        self._held.append(written)
        self._held_bytes += len(written)
        while self._held_bytes - len(self._held[0]) >= LONGEST_ENDING:
            passed = self._held.popleft()
            self._held_bytes -= len(passed)
            self._sink.write(passed)
            self._add(passed)
        return len(written)

    def tell(self) -> int:
        return self._written + self._held_bytes

    def finish(self) -> None:
        """Writes the bytes that were held back, and the checksums."""
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
        # Views are used, because slices of bytes would copy the remaining bytes again for each block.
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
