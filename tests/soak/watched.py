"""What processes use: memory, threads, sockets and CPU, measured from outside."""

import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

Processes = Callable[[], Sequence[psutil.Process]]
_MIB = 1 << 20
_JCMD_TIMEOUT_S = 60


@dataclass
class Watched:
    """Series of values by name; each value with the time at which it was measured."""

    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, time: float, value: float) -> None:
        """Adds a value to the series of that name."""
        self.series.setdefault(name, []).append((time, value))

    def look(self, who: str, processes: Sequence[psutil.Process], time: float) -> None:
        """Adds what these processes use together, as series whose names begin with `who`."""
        found = [used for used in map(_used, processes) if used is not None]
        if found:
            for at, name in enumerate(("memory", "threads", "sockets")):
                self.add(f"{who} {name}", time, sum(used[at] for used in found))

    def look_at_heap(self, who: str, java: psutil.Process, time: float) -> None:
        """Adds what a JVM uses; its memory is what is left on the heap by a collection."""
        used = _used(java)
        heap = heap_after_collection(java.pid)
        if used is not None and heap is not None:
            self.add(f"{who} heap", time, heap)
            self.add(f"{who} threads", time, used[1])
            self.add(f"{who} sockets", time, used[2])


def _used(process: psutil.Process) -> tuple[float, float, float] | None:
    """MiB of memory, with shared pages counted in parts; threads; sockets. None of a process that has ended."""
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied, FileNotFoundError):
        memory = process.memory_full_info().pss / _MIB
        return memory, process.num_threads(), len(process.net_connections("all"))
    return None


def heap_after_collection(pid: int) -> float | None:
    """MiB that a JVM has on its heap right after a full collection; None of one that does not answer."""
    with suppress(subprocess.SubprocessError):
        subprocess.run(["jcmd", str(pid), "GC.run"], capture_output=True, timeout=_JCMD_TIMEOUT_S, check=True)
        told = subprocess.run(
            ["jcmd", str(pid), "GC.heap_info"], capture_output=True, timeout=_JCMD_TIMEOUT_S, check=True, text=True
        )
        return heap_in(told.stdout)
    return None


def heap_in(told: str) -> float:
    """MiB in use as `jcmd GC.heap_info` tells them of each generation, without the space of classes."""
    heap = told.partition("Metaspace")[0]
    return sum(int(used) for used in re.findall(r"total \d+K, used (\d+)K", heap)) / 1024


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """The CPU that these processes have used, with that of their children that have ended."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
