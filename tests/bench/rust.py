"""Writes and merge reads without Spark, against pypaimon-rust: at 50,000 and 1 million rows, on one core by CPU and on
all of them by the clock."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from tests.bench.result import Result, Size
from tests.bench.rust_solo import ALL_CORES, WHAT
from tests.support.peers.jars import CHECKOUT, cache_dir, exclusive

REQUIREMENT = "pypaimon-rust==0.4.0"
TURNS_OF_ROWS = {50_000: 12, 1_000_000: 3}
"""How many turns are measured, by rows of a write. Those of small writes are short, and vary more."""


def run(size: Size, root: Path) -> Sequence[Result]:
    return [
        result
        for rows, turns in TURNS_OF_ROWS.items()
        for cores in ("", ALL_CORES)
        for result in _measured(size.rows(rows), turns, str(root / f"{rows}{cores}"), by_clock=bool(cores))
    ]


def _measured(rows: int, turns: int, folder: str, *, by_clock: bool) -> list[Result]:
    found = _solo(rows, turns, folder)
    results = []
    for what in WHAT:
        ours, theirs = ([turn[by_clock] for turn in found[who][what]] for who in ("ours", "theirs"))
        results.append(
            Result(
                name=f"rust/{rows}{ALL_CORES if by_clock else ''}",
                what=f"{what}, against pypaimon-rust, " + ("all cores, seconds" if by_clock else "one core, CPU"),
                rows=rows,
                seconds=median(ours),
                other_seconds=median(theirs),
                written_bytes=0,
                worker_peak_bytes=0,
                ratio=_low(theirs) / _low(ours),
                at_least=1.0,
                detail={"ours": ours, "theirs": theirs, "cpu ratio": _cpu_ratio(found, what)},
            )
        )
    return results


def _cpu_ratio(found: dict[str, dict[str, list[list[float]]]], what: str) -> float:
    return _low([turn[0] for turn in found["theirs"][what]]) / _low([turn[0] for turn in found["ours"][what]])


def _low(times: Sequence[float]) -> float:
    """The lowest quarter: what the work takes when nothing else is in its way."""
    return quantiles(times, n=4, method="inclusive")[0] if len(times) > 1 else times[0]


def _solo(rows: int, turns: int, folder: str) -> dict[str, dict[str, list[list[float]]]]:
    # As in `solo`: the allocator of Arrow that is steady.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "jemalloc", "PYTHONPATH": str(installed())}
    command = [sys.executable, "-m", "tests.bench.rust_solo", str(rows), str(turns), folder]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, dict[str, list[list[float]]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def installed() -> Path:
    """The folder of pypaimon-rust, which is installed when it is missing; it works with our own pyarrow."""
    folder = cache_dir() / REQUIREMENT.replace("==", "-")
    done = folder / "installed.txt"
    with exclusive("pypaimon-rust"):
        if not done.exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*pip, "--target", str(folder), REQUIREMENT], check=True)
            done.touch()
    return folder
