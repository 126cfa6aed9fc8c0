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
"""The largest number of requests that one reader or writer sends at the same time."""

_ASK_AGAIN_SECONDS = 0.05
_QUEUE_BYTES = 8 << 20
"""If the waiting files have more bytes than this, they are written without waiting for `flush`."""


def core_count() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def answers_late(io: object) -> bool:
    """Returns True if the storage is far away, so that requests that do not depend on each other should be sent at the
    same time. Storage that does not say that it is far away counts as near.
    """
    return bool(getattr(bare(io), "answers_late", False))


def all_at_once(io: object, works: Sequence[Callable[[], T]]) -> list[T]:
    """Calls all functions in `works`, and returns their results in order. If the storage `io` is far away, the calls
    run at the same time; otherwise one after another.

    When this function returns or raises, no call is running. Raises the first error, in the order of `works`. After an
    interrupt, calls that have not begun are not made.
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
    """Yields the items of all sources, while up to `readers` threads read one source each. The items of one source stay
    in order. With one reader, the sources are read one after the other in this thread.

    Up to two items for each reader are in memory. The first error of a source ends the reading and is raised. Closing
    the generator also ends the reading.
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
    """Returns the items of all sources, in order. Up to `readers` threads read one source each at a time.
    With one reader, the sources are read in this thread.

    An error of a source ends the reading and is raised; if several sources fail, the error of the first of these
    sources is raised. `over` is set when the reading ends early, so that a source that looks at `over` can stop.
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
        """Yields the items that all sources together yield, as the threads read them, until all threads have ended.
        Raises the error that a source has raised.
        """
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
        """Stops all readers, and waits until they have ended."""
        self._over.set()
        while any(t.is_alive() for t in self._threads):
            # The queue is emptied because a reader may be waiting for room in it.
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
        """Puts an entry into the queue, and waits while the queue is full. Returns False, without having put the
        entry, if the consumer of the queue has stopped.
        """
        while not self._over.is_set():
            try:
                self._queue.put(entry, timeout=_ASK_AGAIN_SECONDS)
            except Full:
                continue
            return True
        return False


class QueuedWrites(WrappedIO):
    """A storage on which new files wait until `flush` is called, if the storage is slow. All other operations go
    unchanged to the wrapped storage.

    Before `flush` the files do not exist. The error of a file is raised by `flush`, or by a later write.
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
        """Writes all waiting files. After an error, some of the files are written and some are not."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        all_at_once(self._inner, [partial(self._inner.write_new, path, data) for path, data in waiting])
