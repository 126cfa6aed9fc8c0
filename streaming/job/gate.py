"""The gate between a query and its sink, which a job that is told to end closes behind the batch that is running."""

import threading
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError

_HOLD_MS = 60_000
_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling sleep: java.lang.InterruptedException"


class BatchGate:
    """Lets batches into a sink until `close` is called; remembers what one of them raised.

    Spark hands errors of a sink on as text; here the error itself is kept. A batch that comes later is held until the
    query is stopped: Spark takes that for an ordinary stop, and writes no error into its log.
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
        """Lets no further batch in; the one inside goes on."""
        self._closed.set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def is_busy(self) -> bool:
        return self._running.locked()

    @property
    def has_begun(self) -> bool:
        """Whether a first batch has come."""
        return self._begun.is_set()

    @property
    def is_written(self) -> bool:
        """Whether a first batch has been written."""
        return self._written.is_set()

    @property
    def is_holding(self) -> bool:
        """Whether a batch has come after `close`, and waits for the query's end."""
        return self._held.is_set()


class QueryStopped(Exception):
    """A batch was held back, and its query has been stopped meanwhile."""


def hold_stream(jvm: Any) -> None:
    """Sleeps on the stream's own thread in the JVM until the query is stopped; always raises QueryStopped.

    A function of foreachBatch that returns lets Spark believe that the batch is done. Spark ends a stopped query in
    silence where it finds an interrupted call into the JVM in the text of what Python raised; it looks with a pattern
    that overflows its stack on long texts, so this one is short.
    Source: Spark 4.0 StreamExecution.isInterruptedByStop, PROXY_ERROR.
    """
    try:
        while True:
            jvm.java.lang.Thread.sleep(_HOLD_MS)
    except Py4JJavaError:
        raise QueryStopped(_STOPPED) from None
