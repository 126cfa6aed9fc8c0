"""A stream between the ORC writer and storage that keeps errors until Python asks for them. The C++ writer of ORC also
writes in its destructor, and an error there ends the whole process.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import BucketlineError


class OrcOutput(io.RawIOBase):
    """A stream into an open file that never raises; after the first error nothing more is written."""

    def __init__(self, sink: pa.NativeFile) -> None:
        super().__init__()
        self._sink = sink
        self._size = 0
        self._error: Exception | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        """Returns how many bytes have been written."""
        return self._size

    def write(self, data: Any) -> int:
        """Accepts all of the bytes, even if storage has failed."""
        rest = memoryview(data).cast("B")
        if self._error is None:
            try:
                self._sink.write(rest)
            except (OSError, pa.ArrowException, BucketlineError) as e:
                self._error = e
        self._size += len(rest)
        return len(rest)

    def close(self) -> None:
        """Leaves the file open: the code that opened it closes it."""

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises an error of the storage from this block, or from an earlier one."""
        yield
        if self._error is not None:
            raise self._error
