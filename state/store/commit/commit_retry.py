"""How often, for how long, and with what pauses a commit is tried again.

Source: Paimon 2.0 RetryWaiter, FileStoreCommitImpl.tryCommit.
"""

from dataclasses import dataclass

from bucketline.conf.table.table_settings import CommitSettings
from bucketline.state.determinism import World

_JITTER = 0.2
_MAX_DOUBLINGS = 62


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """The options commit.max-retries, commit.timeout, commit.min-retry-wait and commit.max-retry-wait. Times are in
    milliseconds.
    """

    max_retries: int = 10
    timeout_ms: int = 2**63 - 1
    min_wait_ms: int = 10
    max_wait_ms: int = 10_000

    @classmethod
    def of(cls, settings: CommitSettings) -> "RetrySettings":
        """Returns the settings of a table. Raises OptionError if an option is invalid."""
        return cls(
            max_retries=settings.max_retries,
            timeout_ms=settings.timeout_ms,
            min_wait_ms=settings.min_wait_ms,
            max_wait_ms=settings.max_wait_ms,
        )


class Retries:
    """Counts the tries to publish one snapshot. `done` is the number of tries after the first."""

    def __init__(self, settings: RetrySettings, world: World) -> None:
        self._settings, self._world = settings, world
        self._started_ms = world.clock.now_ms()
        self.done = 0

    def wait(self) -> bool:
        """Pauses before the next try, and returns True. Each pause is twice as long as the pause before, up to a limit.
        A random part of at most a fifth of the pause is added. Returns False if there is no next try.
        """
        settings = self._settings
        elapsed_ms = self._world.clock.now_ms() - self._started_ms
        if self.done >= settings.max_retries or elapsed_ms > settings.timeout_ms:
            return False
        wait_ms = min(settings.min_wait_ms << min(self.done, _MAX_DOUBLINGS), settings.max_wait_ms)
        self._world.pause.wait_ms(wait_ms + int(wait_ms * _JITTER * self._world.random.fraction()))
        self.done += 1
        return True
