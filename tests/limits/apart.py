"""One step of a limit in a process of its own: `python -m tests.limits.apart CASE SIDE STEP SCALE FOLDER`.

SIDE is `far` or `plain`; STEP is a number, and -1 prepares the folder. The last line that is printed is JSON:
{"cpu": seconds, "seconds": by the clock, "grown_bytes": by how much the process grew at its peak}.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.limits.cases import CASES
from tests.limits.history import HistoryShape, expire, open_and_read

CHECKOUT = Path(__file__).resolve().parents[2]
PREPARE = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """What one step took."""

    cpu: float
    seconds: float
    grown_bytes: int


def apart(case: str, side: str, step: int, scale: float, folder: Path) -> Taken:
    """Does a step in a process of its own."""
    command = [sys.executable, "-m", "tests.limits.apart", case, side, str(step), str(scale), str(folder)]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
    return Taken(**json.loads(done.stdout.splitlines()[-1]))


def main(name: str, side: str, number: int, scale: float, folder: Path) -> None:
    case = CASES[name]
    shape = (case.far if side == "far" else case.plain)(scale)
    if number == PREPARE:
        shape.prepare(folder)
        print(json.dumps({"cpu": 0.0, "seconds": 0.0, "grown_bytes": 0}))
        return
    _warm_up()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    idle, cpu, started = _status("VmRSS"), time.process_time(), time.monotonic()
    case.steps[number].work(shape, folder)
    cpu, seconds = time.process_time() - cpu, time.monotonic() - started
    print(json.dumps({"cpu": cpu, "seconds": seconds, "grown_bytes": max(0, _status("VmHWM") - idle)}))


def _warm_up() -> None:
    """Loads what a process loads when it uses its first table."""
    with tempfile.TemporaryDirectory() as folder:
        shape = HistoryShape(12)
        shape.prepare(Path(folder))
        open_and_read(shape, Path(folder))
        expire(shape, Path(folder))


def _status(key: str) -> int:
    """A figure of Linux about this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
