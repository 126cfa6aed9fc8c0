"""How much memory the Python workers below this process have held at most."""

import os
import threading
import time
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


def cpu_seconds() -> float:
    """CPU time that this process and all below it have used so far, without that of a `WorkerWatch`: steadier than the
    clock on a shared machine.
    """
    return cpu_of(os.getpid(), below=True) - _looking[0]


def cpu_of(pid: int, *, below: bool = False) -> float:
    """CPU time of a process and of those below it that have ended; with `below` of all below it."""
    ticks = 0
    for one in (pid, *(all_below(pid) if below else ())):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # User and system time, then those of children that have ended.
        ticks += sum(int(f) for f in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


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
