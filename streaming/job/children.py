"""The child processes of this process, if the system lists them, with the groups that they lead."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")


def kill_children() -> None:
    """Kills the child processes, and the groups that they lead: a JVM that is starting does not notice that its parent
    has ended, and the script that starts it has a JVM of its own that finds the command. Without /proc it does nothing,
    and the JVM ends when it finds its standard input closed.
    """
    for child in children_of(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(child) == child:
                os.killpg(child, signal.SIGKILL)
            else:
                os.kill(child, signal.SIGKILL)


def children_of(parent: int) -> Iterator[int]:
    """The ids of a process's children, running or finished and not yet waited for."""
    for entry in _PROCESSES.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # The name of the program is in parentheses and may contain anything.
            after_name = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                yield int(entry.parent.name)
