"""The only sources of time and of names: protocols, and the ones a real run uses.

Everything that needs the time or a fresh name takes one of these, so that a test can replay a run byte for byte.
"""

import time
import uuid
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, in milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def local_ms(self) -> int:
        """Local wall-clock time, read as if it were UTC: how Paimon stores a file's creation time."""
        ...


class IdSource(Protocol):
    """Where names come from that nobody else has."""

    def new_uuid(self) -> str:
        """A canonical lower-case UUID."""
        ...


class SystemClock:
    """The machine's clock and time zone."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def local_ms(self) -> int:
        naive = datetime.now()  # the zone-less local time is meant; see Clock.local_ms
        since = naive.replace(tzinfo=UTC) - datetime.fromtimestamp(0, UTC)
        return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


class SystemIds:
    """Random UUIDs."""

    def new_uuid(self) -> str:
        return str(uuid.uuid4())


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_IDS: IdSource = SystemIds()
