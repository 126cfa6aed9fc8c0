"""How often, how long, and with what pauses a commit is tried again.

Source: Paimon 2.0 RetryWaiter, FileStoreCommitImpl.tryCommit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.table_options import (
    COMMIT_MAX_RETRIES,
    COMMIT_MAX_RETRY_WAIT,
    COMMIT_MIN_RETRY_WAIT,
    COMMIT_TIMEOUT,
)
from bucketline.state.determinism import Clock, Pause, Random

_JITTER = 0.2
_MAX_DOUBLINGS = 62


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """commit.max-retries, commit.timeout, commit.min-retry-wait and commit.max-retry-wait; times in milliseconds."""

    max_retries: int = 10
    timeout_ms: int = 2**63 - 1
    min_wait_ms: int = 10
    max_wait_ms: int = 10_000

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "RetrySettings":
        """The settings of a table with these options. Raises OptionError when one of them cannot be read."""
        return cls(
            max_retries=COMMIT_MAX_RETRIES.get(options),
            timeout_ms=COMMIT_TIMEOUT.get(options),
            min_wait_ms=COMMIT_MIN_RETRY_WAIT.get(options),
            max_wait_ms=COMMIT_MAX_RETRY_WAIT.get(options),
        )


class Retries:
    """The tries of one snapshot, from the first on. `done` counts those after the first."""

    def __init__(self, settings: RetrySettings, clock: Clock, random: Random, pause: Pause) -> None:
        self._settings, self._clock, self._random, self._pause = settings, clock, random, pause
        self._started_ms = clock.now_ms()
        self.done = 0

    def wait(self) -> bool:
        """Pauses before the next try, each time twice as long plus up to a fifth; False when there is no next one."""
        settings = self._settings
        elapsed_ms = self._clock.now_ms() - self._started_ms
        if self.done >= settings.max_retries or elapsed_ms > settings.timeout_ms:
            return False
        wait_ms = min(settings.min_wait_ms << min(self.done, _MAX_DOUBLINGS), settings.max_wait_ms)
        self._pause.wait_ms(wait_ms + int(wait_ms * _JITTER * self._random.fraction()))
        self.done += 1
        return True
