"""Ends a job on a signal. Signals to this process and to Spark's JVM count as one request.

The first signal asks the job to end after the running batch. Another signal, at least a second later, ends the job at
once. Signals within a second count as one, because supervisors signal a process and its group. Before the session is up
there is no batch to wait for, and the first signal ends the process.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from bucketline.streaming.job.children import kill_children, kill_led_groups

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ONE_REQUEST_SECONDS = 1.0
_STANDARD_ERROR = 2


class Ending:
    """Notes whether a signal has asked the job to end, and decides what further signals do.

    Two functions end the process with an exit code and a line that says why: `give_up` if Spark's session is not up
    yet, and `leave` if a batch may be running. The methods use no lock, because a signal may arrive while the same
    thread runs one of these methods, and the thread would then wait for its own lock.
    """

    def __init__(
        self,
        give_up: Callable[[int, str], None],
        leave: Callable[[int, str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._give_up = give_up
        self._leave = leave
        self._now = now
        self._session_is_up = False
        self._asked_at: float | None = None
        self.asked_by: str | None = None

    def session_is_up(self) -> None:
        """Called when Spark's session is up: after this call, a signal lets the job end after the running batch."""
        self._session_is_up = True

    def ask(self, number: signal.Signals) -> None:
        """Called when this process or Spark's JVM has got a signal. After the first signal, the job ends when the
        running batch is done, or at once if Spark is not up yet. A second signal ends the job at once, unless it comes
        within a second.
        """
        code, moment = 128 + number, self._now()
        if self._asked_at is None:
            self._asked_at, self.asked_by = moment, number.name
            if not self._session_is_up:
                self._give_up(code, f"{number.name}: the job ended before Spark was up; no batch was begun")
        elif moment - self._asked_at >= _ONE_REQUEST_SECONDS:
            self._leave(code, f"{number.name} again: the job ended at once; its next start repeats the running batch")


@contextmanager
def signals_to(ending: Ending) -> Iterator[None]:
    """Passes the signals of this process to `ending`. Outside of the main thread, this function does nothing.

    If SIGHUP was ignored before (`nohup`), it stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        ending.ask(signal.Signals(number))

    for number, handler in before.items():
        if number is not signal.SIGHUP or handler is not signal.SIG_IGN:
            signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def process_ending() -> Ending:
    """Returns an `Ending` that ends this process."""
    return Ending(_give_up, _leave)


def _give_up(code: int, why: str) -> None:
    kill_children()
    _end(code, why)


def _leave(code: int, why: str) -> None:
    """Ends the JVM that this process has started, and then this process, at once."""
    kill_led_groups()
    _end(code, why)


def _end(code: int, why: str) -> None:
    with suppress(OSError):  # the terminal was closed
        os.write(_STANDARD_ERROR, f"{why}\n".encode())
    os._exit(code)
