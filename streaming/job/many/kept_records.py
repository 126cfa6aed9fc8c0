"""Finds out until when Kafka keeps the records that parked tables (tables that are left out of batches) have missed."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bucketline.streaming.many.ledger import Entry, Ledger

_ASKED_EVERY_S = 600.0

AskRetention = Callable[[Collection[str]], Mapping[str, int]]
"""A function that returns how long each topic keeps records, in milliseconds; below 0 if it keeps them for ever. The
result lacks topics for which the time is not known.
"""


@dataclass(slots=True)
class KeptRecords:
    """Says until when Kafka keeps the records that parked tables have missed (a parked table gets no records until it
    is unparked). While a table is parked, Kafka is asked every ten minutes. Kafka is also asked when another table is
    parked whose records come from other topics.
    """

    retention: AskRetention
    now: Callable[[], float] = time.monotonic
    _known: dict[str, int] = field(default_factory=dict, init=False)
    _asked: frozenset[str] = field(default_factory=frozenset, init=False)
    _asked_at: float = field(default=0.0, init=False)

    def until_ms(self, ledger: Ledger) -> dict[str, int | None]:
        """Returns for each parked table the time from which Kafka may remove records that the table has missed. The
        time is below 0 if Kafka never removes them, and None if it is not known.
        """
        parked = {name: entry for name, entry in ledger.tables.items() if entry.parked is not None}
        topics = frozenset(topic for entry in parked.values() for topic, _ in entry.fed)
        if topics and (not topics <= self._asked or self.now() - self._asked_at > _ASKED_EVERY_S):
            self._known, self._asked, self._asked_at = dict(self.retention(sorted(topics))), topics, self.now()
        return {name: removed_from_ms(entry, self._known) for name, entry in sorted(parked.items())}


def removed_from_ms(entry: Entry, retention_ms: Mapping[str, int]) -> int | None:
    """Returns a time in milliseconds since 1970. From this time on Kafka may remove records that a table still needs.
    The table is parked: after an error, batches leave its records out. Returns -1 if Kafka never removes the records,
    and None if the time is not known.
    """
    topics = {topic for topic, _ in entry.fed}
    if not topics or not topics <= retention_ms.keys():
        return None
    kept = [retention_ms[topic] for topic in topics if retention_ms[topic] >= 0]
    if not kept:
        return -1
    return None if entry.lacks_since_ms is None else entry.lacks_since_ms + min(kept)


def day_and_minute(time_ms: int) -> str:
    """Returns a time as a text for people: day and minute in UTC."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
