"""Runs several calls at the same time, because storage is slow and most decoding runs outside Python."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

from bucketline.state.store.storage.wrapped_io import Inner, WrappedIO, bare

T = TypeVar("T")

AT_ONCE = 8
"""Requests that one reader or writer has under way at the same time."""

_ASK_AGAIN_SECONDS = 0.05
_QUEUE_BYTES = 8 << 20
"""Files with more bytes are written at once, without waiting for `flush`."""


def core_count() -> int:
    """Returns the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def answers_late(io: object) -> bool:
    """Whether storage is far away, so that requests that do not depend on each other are sent at the same time. Storage
    that does not say so is near."""
    return bool(getattr(bare(io), "answers_late", False))


def all_at_once(io: object, works: Sequence[Callable[[], T]]) -> list[T]:
    """Returns the results of the works, in order; they run at the same time if the storage `io` is far away, else one
    after another.

    When this returns or raises, no work is running. Raises the first error, in order; an interrupt leaves works undone
    that have not begun.
    """
    if len(works) < 2 or not answers_late(io):
        return [work() for work in works]
    with ThreadPoolExecutor(min(len(works), AT_ONCE), thread_name_prefix="bucketline-at-once") as pool:
        try:
            coming = [pool.submit(work) for work in works]
            wait(coming)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in coming]


def read_at_once(sources: Sequence[Callable[[], Iterator[T]]], readers: int) -> Generator[T, None, None]:
    """Yields the items of all sources, those of each source in order, while up to `readers` threads read one source
    each. With one reader, sources are read one after the other in this thread. Memory: two items for each reader. The
    first error of a source ends the reading and is raised; closing the generator also ends it.
    """
    readers = min(readers, len(sources))
    if readers < 2:
        for source in sources:
            yield from source()
        return
    reading = _Reading(sources, readers)
    try:
        yield from reading.items()
    finally:
        reading.end()


def all_items(sources: Sequence[Callable[[], Iterator[T]]], readers: int, over: Event | None = None) -> list[T]:
    """Returns the items of all sources, in order, read by up to `readers` threads, each of them one source at a time.
    With one reader they are read in this thread. An error of a source ends the reading and is raised; of several, that
    of the first source that has one. `over` is set when the reading ends early: sources that look at it can stop.
    """
    readers = min(readers, len(sources))
    if readers < 2:
        return [item for source in sources for item in source()]
    over = Event() if over is None else over

    def items(source: Callable[[], Iterator[T]]) -> list[T]:
        gathered: list[T] = []
        for item in source():
            if over.is_set():
                break
            gathered.append(item)
        return gathered

    with ThreadPoolExecutor(readers, thread_name_prefix="bucketline-read") as pool:
        futures = [pool.submit(items, source) for source in sources]
        try:
            return [item for future in futures for item in future.result()]
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@dataclass(frozen=True, slots=True)
class _Item(Generic[T]):
    value: T


class _Reading(Generic[T]):
    def __init__(self, sources: Iterable[Callable[[], Iterator[T]]], readers: int) -> None:
        self._left = iter(sources)
        self._next = Lock()
        self._over = Event()
        self._queue: Queue[_Item[T] | BaseException | None] = Queue(readers)
        self._threads = [Thread(target=self._read, name=f"bucketline-read-{n}", daemon=True) for n in range(readers)]
        for thread in self._threads:
            thread.start()

    def items(self) -> Iterator[T]:
        """Yields the items until every reader is done. Raises what a source raises."""
        busy = len(self._threads)
        while busy:
            entry = self._queue.get()
            if isinstance(entry, _Item):
                yield entry.value
            elif entry is None:
                busy -= 1
            else:
                raise entry

    def end(self) -> None:
        """Stops all readers and waits for them."""
        self._over.set()
        while any(t.is_alive() for t in self._threads):
            # A reader may be waiting for room in the queue.
            try:
                self._queue.get(timeout=_ASK_AGAIN_SECONDS)
            except Empty:
                continue
        for thread in self._threads:
            thread.join()

    def _read(self) -> None:
        try:
            while (source := self._take()) is not None:
                items = source()
                for item in items:
                    if not self._put(_Item(item)):
                        return
        except BaseException as e:  # noqa: BLE001 - a thread's error has nobody else to tell it
            self._put(e)
            return
        self._put(None)

    def _take(self) -> Callable[[], Iterator[T]] | None:
        with self._next:
            return None if self._over.is_set() else next(self._left, None)

    def _put(self, entry: _Item[T] | BaseException | None) -> bool:
        """Puts an item into the queue. Returns False after the reading has ended."""
        while not self._over.is_set():
            try:
                self._queue.put(entry, timeout=_ASK_AGAIN_SECONDS)
            except Full:
                continue
            return True
        return False


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
