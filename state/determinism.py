"""The only sources of time, of names and of random numbers: protocols, and the sources that processes use outside of
tests.

Everything that needs the time or a fresh name takes one of these, so that a test can replay a run byte for byte.
"""

import random
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Protocol


class Clock(Protocol):
    """What time it is, in milliseconds."""

    def now_ms(self) -> int:
        """Returns the time in milliseconds since the epoch."""
        ...

    def local_ms(self) -> int:
        """Returns the local wall-clock time, read as if it were UTC: Paimon stores the creation time of a file in this
        form.
        """
        ...


class IdSource(Protocol):
    """A source of names that no other process has."""

    def new_uuid(self) -> str:
        """A canonical lower-case UUID."""
        ...


class Random(Protocol):
    """Chance, for waits that must not fall in step with those of others."""

    def fraction(self) -> float:
        """A number in [0, 1)."""
        ...


class Pause(Protocol):
    """How waiting is done."""

    def wait_ms(self, duration_ms: int) -> None:
        """Waits that many milliseconds."""
        ...


class Stopwatch(Protocol):
    """Time that only moves on, whatever becomes of the machine's clock; its zero means nothing."""

    def elapsed_ms(self) -> int:
        """Returns the milliseconds since some fixed moment of this process."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's clock and time zone."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def local_ms(self) -> int:
        naive = datetime.now()  # the zone-less local time is meant; see Clock.local_ms
        since = naive.replace(tzinfo=UTC) - datetime.fromtimestamp(0, UTC)
        return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


@dataclass(frozen=True, slots=True)
class LaterClock:
    """A clock whose local time is always after `since_ms`, however the machine's clock is set."""

    clock: Clock
    since_ms: int

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def local_ms(self) -> int:
        return max(self.clock.local_ms(), self.since_ms + 1)


@dataclass(frozen=True, slots=True)
class SystemStopwatch:
    """The machine's monotonic clock."""

    def elapsed_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class SystemIds:
    """Random UUIDs."""

    def new_uuid(self) -> str:
        return str(uuid.uuid4())


@dataclass(slots=True)
class NumberedIds:
    """UUIDs of one part of some work: they follow from its `seed`, whatever other parts do at the same time. Threads
    that share one never get the same."""

    seed: str
    _count: int = 0
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def new_uuid(self) -> str:
        with self._lock:
            self._count += 1
            number = self._count
        return str(uuid.uuid5(uuid.UUID(self.seed), str(number)))

    def __reduce__(self) -> tuple[type["NumberedIds"], tuple[str, int]]:
        return NumberedIds, (self.seed, self._count)


@dataclass(frozen=True, slots=True)
class SystemRandom:
    """The interpreter's generator, seeded by the machine."""

    def fraction(self) -> float:
        return random.random()


@dataclass(frozen=True, slots=True)
class SystemPause:
    """Sleeps."""

    def wait_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_STOPWATCH: Stopwatch = SystemStopwatch()
SYSTEM_IDS: IdSource = SystemIds()
SYSTEM_RANDOM: Random = SystemRandom()
SYSTEM_PAUSE: Pause = SystemPause()


@dataclass(frozen=True, slots=True)
class World:
    """The sources of time, names and random numbers, and the way to wait: everything that a run takes from outside in
    addition to its input."""

    clock: Clock = SYSTEM_CLOCK
    ids: IdSource = SYSTEM_IDS
    random: Random = SYSTEM_RANDOM
    pause: Pause = SYSTEM_PAUSE
    stopwatch: Stopwatch = SYSTEM_STOPWATCH


SYSTEM_WORLD = World()
