"""Runs work in threads while a query starts. Callers who need the result of the work wait for the work. The end of the
session waits for the work, too.

When Spark cancels a task it kills the task's worker, and a worker that is just starting then prints a traceback. So
work that was begun is finished before the session is stopped, however the job ends. Work is cancelled only if the wait
is too long, because an application that gets no executors never finishes its work.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Protocol, TypeVar
from uuid import uuid4

T = TypeVar("T")

_LOG = logging.getLogger("bucketline.job")
_LOOK_SECONDS = 0.1


class InThread(Protocol):
    """A function that starts work in a thread of its own, and returns the future of its result."""

    def __call__(self, work: Callable[[], T]) -> "Future[T]": ...


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds the end of a job waits for work in the background. The job waits at most `longest` seconds,
    or at most `after_signal` seconds after a signal. After `silent` seconds the job logs that it waits.
    """

    longest: float = 30.0
    after_signal: float = 2.0
    silent: float = 1.0


@contextmanager
def background_work(context: Any, is_asked: Callable[[], bool], patience: Patience | None = None) -> Iterator[InThread]:
    """Gives the `with` block a function that starts work in a thread of its own. The Spark jobs of the work belong to
    `context`, a SparkContext. The result of the function is a future, which raises an error of the work when the result
    of the work is asked for.

    The end of the block waits for running work, but only for a short time if `is_asked` says that a signal has come.
    Then the Spark jobs of unfinished work are cancelled.
    """
    begun: list[Future[Any]] = []
    tag = f"bucketline-start-{uuid4().hex}"

    def begin(work: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        begun.append(future)
        Thread(target=_do, args=(context, tag, work, future), name="bucketline-background", daemon=True).start()
        return future

    try:
        yield begin
    finally:
        if not _waited(begun, is_asked, patience or Patience()):
            with suppress(Exception):  # a JVM that has ended runs no jobs
                context.cancelJobsWithTag(tag)


def _waited(begun: Sequence["Future[Any]"], is_asked: Callable[[], bool], patience: Patience) -> bool:
    """Waits until all of the work in `begun` is done, and returns True. Returns False if the work takes longer than
    `patience` allows. The time is shorter after the job was asked to end, which `is_asked` tells.
    """
    started, asked_at, is_silent = time.monotonic(), None, True
    while wait(begun, _LOOK_SECONDS).not_done:
        now = time.monotonic()
        if asked_at is None and is_asked():
            asked_at = now
        if now - started >= patience.longest or (asked_at is not None and now - asked_at >= patience.after_signal):
            _LOG.warning("the job ends before the Python workers of Spark have started")
            return False
        if is_silent and now - started >= patience.silent:
            is_silent = False
            _LOG.info("waiting until the Python workers of Spark have started")
    return True


def _do(context: Any, tag: str, work: Callable[[], T], future: "Future[T]") -> None:
    try:
        context.addJobTag(tag)
        future.set_result(work())
    except BaseException as e:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(e)
