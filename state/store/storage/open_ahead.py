"""Opens files before they are asked for, if they are read one after another and the storage is slow. Opening a file
reads the end of the file, or the whole of a small file.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Lock

import pyarrow as pa

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.wrapped_io import Inner, WrappedIO

_AHEAD = 16
"""The largest number of files that are open, or being opened, before they are asked for. Each file holds up to
`TAIL_BYTES` in memory.
"""


class OpenAhead(WrappedIO):
    """A storage that opens the next files of `paths` while earlier files are read. All other operations go unchanged to
    the wrapped storage.

    Each path is opened ahead once. Several threads may use the object.
    """

    __slots__ = ("_coming", "_inner", "_left", "_lock", "_pool")

    def __init__(self, inner: Inner, paths: Iterable[str], pool: ThreadPoolExecutor) -> None:
        self._inner, self._pool = inner, pool
        self._left = dict.fromkeys(paths)
        self._coming: dict[str, Future[pa.NativeFile]] = {}
        self._lock = Lock()

    @property
    def inner(self) -> Inner:
        return self._inner

    def open_input(self, path: str) -> pa.NativeFile:
        with self._lock:
            opened = self._coming.pop(path, None)
            was_left = self._left.pop(path, self) is None
            if opened is not None or was_left:
                self._go_on()
        return self._inner.open_input(path) if opened is None else opened.result()

    def close(self) -> None:
        """Closes the files that were opened but not asked for."""
        self._left.clear()
        for coming in self._coming.values():
            if not coming.cancel():
                with suppress(StorageError):
                    coming.result().close()
        self._coming.clear()

    def _go_on(self) -> None:
        for path in list(islice(self._left, max(0, _AHEAD - len(self._coming)))):
            del self._left[path]
            self._coming[path] = self._pool.submit(self._inner.open_input, path)


@contextmanager
def open_ahead(inner: Inner, paths: Iterable[str]) -> Iterator[OpenAhead]:
    """Yields a storage for a `with` block. The storage opens the files at `paths` in other threads, in this order,
    before the caller asks for them. A file that the caller asks for earlier is opened at once.
    """
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="bucketline-ahead") as pool:
        ahead = OpenAhead(inner, paths, pool)
        try:
            yield ahead
        finally:
            ahead.close()
