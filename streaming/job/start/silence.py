"""Logs what a job is doing, if it has logged nothing for five seconds."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("bucketline.job")
_OURS = "bucketline"
_LONGEST_SECONDS = 5.0
_LOOK_SECONDS = 0.25


class Silence:
    """What a job is doing, and when it last logged a line. While `doing` is None, nothing is logged."""

    def __init__(self, tell: Callable[[str], None] | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell if tell is not None else lambda line: _LOG.info("%s", line)
        self._now = now
        self._doing: str | None = None
        self._since = self._said_at = now()

    def doing(self, what: str | None) -> None:
        """Says what the job does from now on (`what`). This text is logged if the job logs nothing else for some
        seconds. None means that the job logs lines of its own, so this object logs nothing.
        """
        if what != self._doing:
            if self._doing is None:
                self._said_at = self._now()
            self._doing, self._since = what, self._now()

    def heard(self) -> None:
        """Notes that a line has been logged."""
        self._said_at = self._now()

    def look(self) -> None:
        """Logs the phase of the job if no line has been logged for five seconds. The begin of another phase does not
        restart the five seconds.
        """
        moment, doing = self._now(), self._doing
        if doing is not None and moment - self._said_at >= _LONGEST_SECONDS:
            self._said_at = moment
            took = moment - self._since
            self._tell(f"still {doing} ({took:.0f} s)" if took >= _LONGEST_SECONDS else doing)


@contextmanager
def broken_silence(doing: str, tell: Callable[[str], None] | None = None) -> Iterator[Silence]:
    """Logs what a job is doing if it has logged nothing for a while. Yields the `Silence` that is told what the job
    does; at first the job does `doing`. The lines are passed to `tell`. If any logger of bucketline logs a line, the
    time without lines begins anew.

    Until the block ends, a thread looks four times a second whether a line is due.
    """
    silence, ended = Silence(tell), threading.Event()
    silence.doing(doing)
    handler = _Heard(silence)

    def look() -> None:
        while not ended.wait(_LOOK_SECONDS):
            silence.look()

    thread = threading.Thread(target=look, name="bucketline-silence", daemon=True)
    logging.getLogger(_OURS).addHandler(handler)
    thread.start()
    try:
        yield silence
    finally:
        ended.set()
        thread.join()
        logging.getLogger(_OURS).removeHandler(handler)


class _Heard(logging.Handler):
    def __init__(self, silence: Silence) -> None:
        super().__init__(logging.INFO)
        self._silence = silence

    def emit(self, record: logging.LogRecord) -> None:
        del record
        self._silence.heard()
