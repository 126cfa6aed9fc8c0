"""Two operations on one table: the first is stopped at a call to storage while the second runs whole, or it dies there.

Storage is patched in place, since an operation opens its tables and branches by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from bucketline.state.determinism import SystemPause
from bucketline.state.store.storage.local_io import LocalIO

_CALLS = (
    "read", "read_optional", "write_new", "publish", "overwrite", "delete", "delete_folder", "exists", "list_names",
    "list_files", "open_input", "open_output", "modified_ms", "size",
)  # fmt: skip


class DeadError(BaseException):
    """The process is dead; no handler of it runs any more, whatever the code says."""


class NoPause:
    """Waits for nothing: who waits for a process that is stopped waits in vain."""

    def wait_ms(self, duration_ms: int) -> None:
        return


@dataclass
class Stopped:
    """A process at call number `at` to storage (None: none): there `meanwhile` happens; without one it dies. With
    `lasts` it dies after `meanwhile` too, at the call that comes so many calls later."""

    at: int | None
    meanwhile: Callable[[], object] | None = None
    lasts: int | None = None
    calls: int = 0
    where: str = ""
    """What was about to be called, and on which file."""
    log: list[str] = field(default_factory=list)
    """All calls of the process, as `where`."""
    is_dead: bool = False
    _is_stopped: bool = field(default=False)

    def call(self, name: str, path: str) -> None:
        """A call is about to be made."""
        if self._is_stopped:
            return
        self.calls += not self.is_dead
        self.log.append(f"{name} {path}")
        if self.calls == self.at and not self.is_dead:
            self.where = f"{name} {path}"
            if self.meanwhile is None:
                self.is_dead = True
            else:
                self._is_stopped = True
                try:
                    self.meanwhile()
                finally:
                    self._is_stopped = False
                self.at, self.meanwhile = None if self.lasts is None else self.calls + self.lasts, None
        if self.is_dead:
            raise DeadError(f"{name} {path}")


@contextmanager
def stopped_at(
    at: int | None, meanwhile: Callable[[], object] | None = None, *, lasts: int | None = None
) -> Iterator[Stopped]:
    """Inside, calls to local storage are counted; see `Stopped`. Nobody waits for anybody."""
    stopped = Stopped(at, meanwhile, lasts)
    originals = {name: getattr(LocalIO, name) for name in _CALLS}

    def watched(name: str) -> Callable[..., Any]:
        original = originals[name]

        def call(self: LocalIO, path: str, *arguments: Any) -> Any:
            stopped.call(name, path)
            return original(self, path, *arguments)

        return call

    calls: dict[str, Any] = {name: watched(name) for name in _CALLS}
    with (
        patch.multiple(LocalIO, **calls),
        patch.object(SystemPause, "wait_ms", NoPause.wait_ms),
        suppress(DeadError),
    ):
        yield stopped
