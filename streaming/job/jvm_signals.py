"""Signals to Spark's JVM, passed on to Python. Under spark-submit a supervisor knows only the JVM."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from bucketline.streaming.job.ending import Ending

_LOG = logging.getLogger("bucketline.job")
_SIGNALS = ("TERM", "INT", "HUP")


class _JvmHandler:
    """The object that Java calls on a signal, in a thread of its own."""

    def __init__(self, ending: Ending, number: signal.Signals) -> None:
        self._ending, self._number = ending, number

    def handle(self, number: Any) -> None:
        del number
        self._ending.ask(self._number)

    class Java:
        implements = ("sun.misc.SignalHandler",)


@contextmanager
def jvm_signals_to(ending: Ending, jvm: Any) -> Iterator[None]:
    """Sends the signals of Spark's JVM to `ending`, so that they do not end the JVM during a batch.

    Python's callback server must run. A signal that the JVM ignores stays ignored; a warning is logged for a signal
    that the JVM leaves to the system (-Xrs).
    """
    java = jvm.sun.misc
    before = {}
    for name in _SIGNALS:
        try:
            handler = _JvmHandler(ending, signal.Signals[f"SIG{name}"])
            before[name] = java.Signal.handle(java.Signal(name), handler)
        except Py4JJavaError as e:
            _LOG.warning(
                "SIG%s would end Spark's JVM in the middle of a batch: %s", name, e.java_exception.getMessage()
            )
    try:
        yield
    finally:
        for name, handler in before.items():
            with suppress(Py4JError, ConnectionError):  # the JVM may have ended
                java.Signal.handle(java.Signal(name), handler)
