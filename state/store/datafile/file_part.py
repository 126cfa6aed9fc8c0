"""Reads a part of an open file as if the part were a file, for example one changelog file in a packed file."""

import pyarrow as pa

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.storage.positioned import PositionedReader


class PartOfFile(PositionedReader):
    """Reads `size_bytes` bytes of an open file, from the byte `offset` on. Closing the part does not close the file.

    The constructor raises CorruptFileError if the file ends before the part does.
    """

    def __init__(self, file: pa.NativeFile, offset: int, size_bytes: int) -> None:
        if offset + size_bytes > file.size():
            raise CorruptFileError(
                f"the file has {counted(file.size(), 'byte')}, and ends before the end of its part of "
                f"{counted(size_bytes, 'byte')} from byte {offset:,} on",
                offset=min(offset, file.size()),
            )
        self._file, self._offset, self._size = file, offset, size_bytes

    def _between(self, start: int, end: int) -> bytes:
        data: bytes = self._file.read_at(end - start, self._offset + start)
        return data
