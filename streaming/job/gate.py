"""The gate between a query and its sink. A job that ends closes the gate, so that no batch follows the running one."""

import threading
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError

_HOLD_MS = 60_000
_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling sleep.\n: java.lang.InterruptedException"


class BatchGate:
    """Lets batches into a sink until `close` is called. Keeps the error that a batch raised.

    Spark passes on errors of a sink as text; the gate keeps the error itself. A batch that comes after `close` waits
    until the query is stopped. Spark takes the interrupted batch for an ordinary stop, and logs no error.
    """

    def __init__(self, sink: Callable[[Any, int], None]) -> None:
        self._sink = sink
        self._closed = threading.Event()
        self._held = threading.Event()
        self._running = threading.Lock()
        self._begun = threading.Event()
        self._written = threading.Event()
        self.error: BaseException | None = None

    def __call__(self, batch: Any, batch_id: int) -> None:
        with self._running:
            if not self._closed.is_set():
                self._begun.set()
                try:
                    self._sink(batch, batch_id)
                except BaseException as e:
                    self.error = e
                    raise
                self._written.set()
                return
        self._held.set()
        hold_stream(batch.sparkSession.sparkContext._jvm)

    def close(self) -> None:
        """Lets no further batch in; the running batch continues."""
        self._closed.set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def is_busy(self) -> bool:
        return self._running.locked()

    @property
    def has_begun(self) -> bool:
        """True if a first batch has started."""
        return self._begun.is_set()

    @property
    def is_written(self) -> bool:
        """True if a first batch has been written."""
        return self._written.is_set()

    @property
    def is_holding(self) -> bool:
        """True while the gate holds a batch that came after `close`, until the query ends."""
        return self._held.is_set()


class QueryStopped(Exception):
    """Raised in a batch that came after `close`, when its query has been stopped."""


def hold_stream(jvm: Any) -> None:
    """Sleeps on the stream's own thread in the JVM until the query is stopped. Always raises QueryStopped.

    If a function of foreachBatch returns, Spark believes that the batch is done. Spark ends a stopped query without an
    error if the text of the Python error shows an interrupted call into the JVM. Spark searches the text with a regular
    expression that overflows the stack on long texts, so the text of QueryStopped is short. Spark 3.5 needs a line
    break before the name in this text.
    Source: Spark 3.5 and 4.0 StreamExecution.isInterruptionException, PROXY_ERROR.
    """
    try:
        while True:
            jvm.java.lang.Thread.sleep(_HOLD_MS)
    except Py4JJavaError:
        raise QueryStopped(_STOPPED) from None
