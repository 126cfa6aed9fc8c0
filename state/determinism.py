"""The only sources of time, unique names and random numbers: the protocols, and the implementations that are used
outside of tests.

Code that needs the time or a new name gets it from one of these objects. So a test can replace these objects and repeat
a program run byte for byte.
"""

import random
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Protocol


class Clock(Protocol):
    """Tells the time in milliseconds."""

    def now_ms(self) -> int:
        """Returns the number of milliseconds since 1970-01-01 UTC."""
        ...

    def local_ms(self) -> int:
        """Returns the local time, converted to milliseconds since 1970 as if it were UTC. Paimon stores the creation
        times of files in this form.
        """
        ...


class IdSource(Protocol):
    """A source of unique names."""

    def new_uuid(self) -> str:
        """Returns a new UUID in its usual form, in lower case."""
        ...


class Random(Protocol):
    """A source of random numbers. Random numbers are needed for waiting times that must differ between processes."""

    def fraction(self) -> float:
        """Returns a random number from 0 (included) to 1 (not included)."""
        ...


class Pause(Protocol):
    """A way to wait."""

    def wait_ms(self, duration_ms: int) -> None:
        """Waits for the given number of milliseconds."""
        ...


class Stopwatch(Protocol):
    """A monotonic clock: its time never goes back, even if the machine's clock is set. Only differences of its values
    have a meaning.
    """

    def elapsed_ms(self) -> int:
        """Returns the milliseconds since an arbitrary moment, which is the same for all calls in a process."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's clock and time zone."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def local_ms(self) -> int:
        naive = datetime.now()  # The local time without its zone is needed here, as Clock.local_ms describes.
        since = naive.replace(tzinfo=UTC) - datetime.fromtimestamp(0, UTC)
        return (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000


@dataclass(frozen=True, slots=True)
class LaterClock:
    """A clock whose local time is always after `since_ms`, even if the machine's clock is set back."""

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
    """Returns random UUIDs."""

    def new_uuid(self) -> str:
        return str(uuid.uuid4())


@dataclass(slots=True)
class NumberedIds:
    """Computes UUIDs from a `seed` and a counter. Two parts of a job with different seeds get UUIDs that do not depend
    on each other. Threads that share an object never get the same UUID.
    """

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
    """Python's own random generator, seeded by the operating system."""

    def fraction(self) -> float:
        return random.random()


@dataclass(frozen=True, slots=True)
class SystemPause:
    """Waits by sleeping."""

    def wait_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)


SYSTEM_CLOCK: Clock = SystemClock()
SYSTEM_STOPWATCH: Stopwatch = SystemStopwatch()
SYSTEM_IDS: IdSource = SystemIds()
SYSTEM_RANDOM: Random = SystemRandom()
SYSTEM_PAUSE: Pause = SystemPause()


@dataclass(frozen=True, slots=True)
class World:
    """The sources of time, names and random numbers, and the way to wait. Apart from its input, a program run depends
    on nothing else from outside.
    """

    clock: Clock = SYSTEM_CLOCK
    ids: IdSource = SYSTEM_IDS
    random: Random = SYSTEM_RANDOM
    pause: Pause = SYSTEM_PAUSE
    stopwatch: Stopwatch = SYSTEM_STOPWATCH


SYSTEM_WORLD = World()
