"""The processes that this one has started, where the system lists them."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")


def kill_children() -> None:
    """Kills the processes that this one has started: a JVM on its way up does not look whether anybody waits for it.

    Where there is no /proc it does nothing, and the JVM ends by itself when it finds its standard input closed.
    """
    for child in children_of(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)


def children_of(parent: int) -> Iterator[int]:
    """The ids of the processes that a process has started and that live or wait to be asked for."""
    for entry in _PROCESSES.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # The name of the program stands in parentheses and may hold anything.
            after_name = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                yield int(entry.parent.name)
