"""Runs several pieces of work, which mostly wait for storage, in threads, and returns when all have ended."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def side_by_side(works: Sequence[Callable[[], T]], threads: int) -> list[T | Exception]:
    """Returns the result or the error of each piece of work, in the order of `works`. If `threads` is 1, the pieces run
    one after another in the calling thread. A BaseException that is not an Exception is raised after all work that has
    begun has ended.
    """
    if min(threads, len(works)) < 2:
        return [_done(work) for work in works]
    with ThreadPoolExecutor(min(threads, len(works)), thread_name_prefix="bucketline-tables") as pool:
        futures = [pool.submit(_done, work) for work in works]
    return [future.result() for future in futures]


def _done(work: Callable[[], T]) -> T | Exception:
    try:
        return work()
    except Exception as e:  # noqa: BLE001 - the error is handed on, and its caller decides what it means
        return e
