"""Log lines about what a job is doing until its first batch is written, and whenever it has to wait for Kafka."""

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

_LOG = logging.getLogger("bucketline.job")
_LOOK_SECONDS = 1.0
_REPEAT_SECONDS = 5.0
_PATIENCE_SECONDS = 10.0
_ASKS_KAFKA = "Getting offsets from Kafka"


class FirstBatch(Protocol):
    @property
    def has_begun(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    @property
    def is_written(self) -> bool: ...


class StartReport:
    """Logs what a query does until its first batch is written: each change, and again every five seconds. If the query
    has waited for an answer of Kafka for ten seconds, the report says so, even after the first batch. `kafka` has the
    names of the servers.
    """

    def __init__(
        self,
        tell: Callable[[str], None] | None = None,
        now: Callable[[], float] = time.monotonic,
        kafka: str | None = None,
    ) -> None:
        self._tell = tell if tell is not None else lambda line: _LOG.info("%s", line)
        self._now, self._kafka = now, kafka
        self._since = now()
        self._looked_at = self._logged_at = self._since - _PATIENCE_SECONDS
        self._doing: str | None = None
        self._asks_since: float | None = None

    def watch(self, query: Any, batch: FirstBatch) -> None:
        """Logs what the query waits for, for example for the first batch or for Kafka. Does nothing if the last call
        was less than a second ago.

        Once the first batch is written, Spark is asked only if the source is Kafka, and only while no batch runs.
        """
        moment = self._now()
        if moment - self._looked_at < _LOOK_SECONDS or (batch.is_written and (self._kafka is None or batch.is_busy)):
            return
        self._looked_at = moment
        if batch.has_begun and not batch.is_written:
            self._say("the first batch runs", moment, self._since, "since the query started")
            return
        message = str(query.status["message"])
        if not message.startswith(_ASKS_KAFKA):
            self._asks_since = None
        elif self._asks_since is None:
            self._asks_since = moment
        if self._kafka is not None and self._asks_since is not None and moment - self._asks_since >= _PATIENCE_SECONDS:
            self._say(f"waiting for Kafka at {self._kafka}", moment, self._asks_since, "without an answer")
        elif not batch.is_written:
            self._say(f"waiting for the first batch: {message}", moment, self._since, "since the query started")

    def end(self, batch: FirstBatch) -> None:
        """Logs that the source has no new records. Nothing is logged if the query has written a batch."""
        if not batch.has_begun:
            self._tell("the source has no new records: the job ends without a batch")

    def _say(self, doing: str, moment: float, since: float, what: str) -> None:
        if doing != self._doing or moment - self._logged_at >= _REPEAT_SECONDS:
            self._doing, self._logged_at = doing, moment
            self._tell(f"{doing} ({moment - since:.0f} s {what})")
