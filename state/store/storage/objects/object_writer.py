"""A file-like object that writes a new object to an object store. A small object is sent with one request when it is
complete, a large object is sent in parts while the caller still writes.
"""

import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Any

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.objects.object_errors import object_error

PART_BYTES = 8 << 20
_WAITING = 1
_ASK_AGAIN_SECONDS = 0.05

PutWhole = Callable[[bytes], None]
"""A function that creates the object with these bytes. Raises StorageError if the object exists."""

PutParts = Callable[[Iterator[bytes]], None]
"""A function that creates the object from these parts. If the iterator raises an error, the function raises it too, and
the parts that were sent are discarded.
"""


class ObjectWriter(io.RawIOBase):
    """A file that becomes an object when it is closed; before that, the object does not exist. Errors are those of
    FileIO.

    The memory holds up to `PART_BYTES` bytes that are being collected, one waiting part of `PART_BYTES` bytes, and a
    few parts that are being sent.
    """

    def __init__(self, path: str, put_whole: PutWhole, put_parts: PutParts) -> None:
        self._path, self._put_whole, self._put_parts = path, put_whole, put_parts
        self._gathered = bytearray()
        self._sent = 0
        self._parts = _Parts()
        self._upload: Future[None] | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._sent + len(self._gathered)

    def write(self, data: Any) -> int:
        """Writes all of the bytes, and returns their number."""
        view = memoryview(data).cast("B")
        self._gathered += view
        while len(self._gathered) >= PART_BYTES:
            part = bytes(self._gathered[:PART_BYTES])
            del self._gathered[:PART_BYTES]
            self._send(part)
            self._sent += len(part)
        return len(view)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._upload is None:
                self._put_whole(bytes(self._gathered))
                return
            if self._gathered:
                self._send(bytes(self._gathered))
            self._send(None)
            self._finished(self._upload)
        except BaseException:
            self.drop()
            raise
        finally:
            self._gathered = bytearray()
            super().close()

    def drop(self) -> None:
        """Cancels the upload. Parts that were sent are removed, and no object is created."""
        self._parts.is_dropped = True
        if self._upload is not None:
            with suppress(Exception):
                self._upload.result()
        super().close()

    def __del__(self) -> None:
        # If the file was never closed, not all bytes may have been written.
        self._parts.is_dropped = True

    def _send(self, part: bytes | None) -> None:
        if self._upload is None:
            pool = ThreadPoolExecutor(1, thread_name_prefix="bucketline-upload")
            self._upload = pool.submit(self._put_parts, self._parts.coming())
            pool.shutdown(wait=False)
        while not self._upload.done():
            try:
                self._parts.waiting.put(part, timeout=_ASK_AGAIN_SECONDS)
            except Full:
                continue
            return
        self._finished(self._upload)
        raise StorageError(
            f"{self._path}: the upload ended before the file was complete; write the file again",
            path=self._path,
            retryable=True,
            missing=False,
        )

    def _finished(self, upload: Future[None]) -> None:
        try:
            upload.result()
        except StorageError:
            raise
        except Exception as e:
            raise object_error(self._path, e) from e


class _Parts:
    """A queue of the parts of an upload: the writer puts parts in, and the upload takes them out and sends them. The
    queue refers neither to the writer nor to the upload, so that a writer that is no longer used can be freed.
    """

    def __init__(self) -> None:
        self.waiting: Queue[bytes | None] = Queue(_WAITING)
        self.is_dropped = False

    def coming(self) -> Iterator[bytes]:
        while True:
            try:
                part = self.waiting.get(timeout=_ASK_AGAIN_SECONDS)
            except Empty:
                if self.is_dropped:
                    raise _DroppedError from None
                continue
            if part is None:
                return
            yield part


class _DroppedError(Exception):
    """Raised in an upload to end it, because the upload is no longer wanted."""
