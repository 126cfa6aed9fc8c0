"""Writes new files that do not depend on each other at the same time, if storage is slow."""

from functools import partial

from bucketline.state.store.storage.parallel import all_at_once, answers_late
from bucketline.state.store.storage.wrapped_io import Inner, WrappedIO

_QUEUE_BYTES = 8 << 20
"""Files with more bytes are written at once, without waiting for `flush`."""


class QueuedWrites(WrappedIO):
    """A storage whose new files wait until `flush`, if it is slow; other operations are passed on.

    Until then the files do not exist. Errors of a file are raised by `flush`, or by a later write.
    """

    __slots__ = ("_inner", "_waiting", "_waiting_bytes")

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._waiting: list[tuple[str, bytes]] = []
        self._waiting_bytes = 0

    @property
    def inner(self) -> Inner:
        return self._inner

    def write_new(self, path: str, data: bytes) -> None:
        if not answers_late(self._inner):
            self._inner.write_new(path, data)
            return
        self._waiting.append((path, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _QUEUE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes all waiting files. After an error, some files are written and some are not."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        all_at_once(self._inner, [partial(self._inner.write_new, path, data) for path, data in waiting])
