"""A file for Arrow's readers that is read at any position. The class keeps the position; subclasses supply
the bytes.
"""

import io


class PositionedReader(io.RawIOBase):
    """Reads a file that does not change, at any position. A subclass sets the file's size in bytes (`_size`) and
    returns the bytes between two positions (`_between`).
    """

    _size: int
    _at = 0

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
        data = self._between(self._at, end) if self._at < end else b""
        self._at = max(self._at, end)
        return data

    def _between(self, start: int, end: int) -> "bytes | memoryview":
        """Returns the bytes from `start` up to (not including) `end`; the range has at least one byte."""
        raise NotImplementedError
