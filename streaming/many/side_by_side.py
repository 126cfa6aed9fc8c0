"""Works that wait for storage most of the time, some at the same time; none is under way any more in the end."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def side_by_side(works: Sequence[Callable[[], T]], threads: int) -> list[T | Exception]:
    """What each of the works comes to, in their order: its result, or its error. With one thread they are done one
    after another in this one. What is no Exception ends this one, once all that have begun have ended."""
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
