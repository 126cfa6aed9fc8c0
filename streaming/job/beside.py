"""Work beside the start of a query. Nothing waits for it but who needs what it finds, and the end of the session.

Spark ends the worker of a task that it cancels, and a worker that is just starting prints a traceback then. So what was
begun is done before the session is stopped, however the job ends.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from threading import Thread
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

LONGEST_SECONDS = 30.0
"""An application that gets no executors never does the work."""


class Beside(Protocol):
    """Begins work in a thread of its own: what it returns or raises."""

    def __call__(self, work: Callable[[], T]) -> "Future[T]": ...


@contextmanager
def beside_start(longest_seconds: float = LONGEST_SECONDS) -> Iterator[Beside]:
    """Begins work while it is open; waits at its end so long for what is under way. An error of the work is for who
    asks for its result, and else for nobody."""
    begun: list[Future[Any]] = []

    def begin(work: Callable[[], T]) -> "Future[T]":
        found: Future[T] = Future()
        begun.append(found)
        Thread(target=_do, args=(work, found), name="bucketline-beside-start", daemon=True).start()
        return found

    try:
        yield begin
    finally:
        wait(begun, longest_seconds)


def _do(work: Callable[[], T], found: "Future[T]") -> None:
    try:
        found.set_result(work())
    except BaseException as e:  # noqa: BLE001 - raised where the result is asked for
        found.set_exception(e)
