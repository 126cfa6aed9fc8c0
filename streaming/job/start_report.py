"""Log lines about what a job is doing until its first batch is written."""

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

_LOG = logging.getLogger("bucketline.job")
_LOOK_SECONDS = 1.0
_REPEAT_SECONDS = 15.0


class FirstBatch(Protocol):
    @property
    def has_begun(self) -> bool: ...

    @property
    def is_written(self) -> bool: ...


class StartReport:
    """Logs what a query does until its first batch is written: each change, and again every 15 seconds."""

    def __init__(self, tell: Callable[[str], None] | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell if tell is not None else lambda line: _LOG.info("%s", line)
        self._now = now
        self._since = now()
        self._looked_at = self._logged_at = self._since - _REPEAT_SECONDS
        self._doing: str | None = None

    def watch(self, query: Any, batch: FirstBatch) -> None:
        """Looks at the query once a second at most; costs nothing once the first batch is written."""
        moment = self._now()
        if batch.is_written or moment - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = moment
        doing = "the first batch runs" if batch.has_begun else f"waiting for the first batch: {query.status['message']}"
        if doing != self._doing or moment - self._logged_at >= _REPEAT_SECONDS:
            self._doing, self._logged_at = doing, moment
            self._tell(f"{doing} ({moment - self._since:.0f} s since the query started)")

    def end(self, batch: FirstBatch) -> None:
        """Says why a query that has read everything wrote no batch."""
        if not batch.has_begun:
            self._tell("the source holds nothing new: the job ends without a batch")
