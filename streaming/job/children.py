"""Kills the child processes of this process, and the process groups that these children lead. This works only if the
system lists processes in /proc.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.01


def kill_children() -> None:
    """Kills the child processes of this process, and all processes in the process groups of these children. Returns
    when the processes are gone, after ten seconds at most.

    A JVM that is starting does not notice the end of its parent, because the script that starts it first runs another
    JVM to find the command. Without /proc this function does nothing, and the JVM ends when it finds its standard
    input closed.
    """
    _kill(list(children_of(os.getpid())))


def kill_led_groups() -> None:
    """Kills only those child processes that lead a group, such as a JVM that a job has started; see `kill_children`.

    Other children may belong to the program that runs the job.
    """
    _kill([child for child in children_of(os.getpid()) if _leads(child)])


def _leads(child: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        return os.getpgid(child) == child
    return False


def _kill(children: Sequence[int]) -> None:
    left = []
    for child in children:
        with suppress(ProcessLookupError, PermissionError):
            leads = _leads(child)
            (os.killpg if leads else os.kill)(child, signal.SIGKILL)
            left.append((child, leads))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while left and time.monotonic() < deadline:
        left = [(child, leads) for child, leads in left if _is_there(child, leads)]
        time.sleep(_PAUSE_SECONDS if left else 0)


def _is_there(child: int, leads: bool) -> bool:
    """Returns True if a killed child still runs, or a process of the group that the child leads.

    The function also waits for a child that has ended, because otherwise the child stays in the list of processes.
    """
    with suppress(ChildProcessError):
        if os.waitpid(child, os.WNOHANG) == (0, 0):
            return True
    if not leads:
        return False
    try:
        os.killpg(child, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def children_of(parent: int) -> Iterator[int]:
    """Yields the ids of the child processes of a process, both of children that run and of children that have ended and
    were not waited for yet.
    """
    for entry in _PROCESSES.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # The name of the program is in parentheses and may contain anything.
            after_name = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(after_name[1]) == parent:
                yield int(entry.parent.name)
