"""How much memory the Python workers below this process have held at most."""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

POLL_SECONDS = 0.2
_looking: list[float] = [0.0]
"""CPU seconds that looking has taken so far. On a machine with many processes it is a twentieth of the clock's time, so
that it would hide what slow work costs.
"""


class WorkerWatch:
    """Looks at all Python processes that Spark has started, as long as it is entered; `peak_bytes` is that of one.

    The kernel keeps each process's own peak, so that only processes shorter than a look are missed.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> "WorkerWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _poll(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            before = time.thread_time()
            self._look()
            _looking[0] += time.thread_time() - before

    def _look(self) -> None:
        for pid in all_below(os.getpid()):
            self.peak_bytes = max(self.peak_bytes, _python_peak_bytes(pid))


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of a process itself, and those of its ended children, as far as it has waited for them."""

    own: float
    ended: float


_seen: dict[int, Cpu] = {}
_lost: list[float] = [0.0]


def cpu_seconds() -> float:
    """CPU time that this process and all below it have used so far, without that of a `WorkerWatch`: steadier than the
    clock on a shared machine.

    Spark's Python workers end when they were idle for a minute, and nobody waits for them, so that the system forgets
    their CPU time. It is kept here as it was at the last call.
    """
    now = {pid: found for pid in (os.getpid(), *all_below(os.getpid())) if (found := _cpu(pid)) is not None}
    _lost[0] += forgotten(_seen, now)
    _seen.clear()
    _seen.update(now)
    return sum(c.own + c.ended for c in now.values()) + _lost[0] - _looking[0]


def forgotten(before: Mapping[int, Cpu], now: Mapping[int, Cpu]) -> float:
    """The CPU time of processes that have ended between two looks, without what other processes have taken over."""
    gone = sum(c.own + c.ended for pid, c in before.items() if pid not in now)
    taken_over = sum(c.ended - before[pid].ended for pid, c in now.items() if pid in before)
    return max(0.0, gone - taken_over)


def cpu_of(pid: int, *, below: bool = False) -> float:
    """CPU time of a process and of those below it that have ended; with `below` of all below it."""
    found = [_cpu(one) for one in (pid, *(all_below(pid) if below else ()))]
    return sum(c.own + c.ended for c in found if c is not None)


def _cpu(pid: int) -> Cpu | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    user, system, ended_user, ended_system = (int(f) / os.sysconf("SC_CLK_TCK") for f in fields[11:15])
    return Cpu(user + system, ended_user + ended_system)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return _children().get(pid, [])


def own_peak_bytes() -> int:
    """The peak of this process."""
    return _peak_bytes(os.getpid())


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    return children


def all_below(root: int) -> list[int]:
    """The processes that a process has started, and those that these have started, and so on."""
    children = _children()
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _python_peak_bytes(pid: int) -> int:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return 0
    return _peak_bytes(pid) if b"pyspark" in command and b"java" not in command.split(b"\0")[0] else 0


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)
