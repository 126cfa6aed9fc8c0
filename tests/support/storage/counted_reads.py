"""Storage that counts the bytes that are read of each file."""

import io as streams
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa

import bucketline as bl
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.wrapped_io import WrappedIO
from bucketline.state.store.table.table import Table, handle_of


@dataclass(frozen=True)
class CountingIO(WrappedIO):
    """`read_bytes` has the bytes that came of each data file."""

    disk: FileIO
    read_bytes: Counter[str] = field(default_factory=Counter)

    @property
    def inner(self) -> FileIO:
        return self.disk

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_Counted(self.disk.open_input(path), path, self.read_bytes), mode="r")

    @property
    def total(self) -> int:
        return self.read_bytes.total()


class _Counted(streams.RawIOBase):
    def __init__(self, file: pa.NativeFile, path: str, counts: Counter[str]) -> None:
        self._file, self._path, self._counts = file, path, counts

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(None if size < 0 else size)
        self._counts[self._path] += len(data)
        return bytes(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def counted(table: bl.Table) -> tuple[bl.Table, CountingIO]:
    """The table, read through storage that counts."""
    handle = handle_of(table)
    counting = CountingIO(handle.io)
    return Table(replace(handle, io=counting)), counting
