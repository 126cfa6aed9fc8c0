"""How much memory a process and all below it hold together at most."""

import os
import threading
from pathlib import Path
from typing import Any

from tests.bench.watch import all_below

POLL_SECONDS = 1.0


class TreeWatch:
    """Adds up what this process and all below it hold, as long as it is entered; `peak_bytes` is the largest sum that
    was seen. Pages that processes share, as forked workers do, are divided among them where Linux tells (PSS)."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> "TreeWatch":
        self._thread.start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(map(_held, (os.getpid(), *all_below(os.getpid())))))


def _held(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
