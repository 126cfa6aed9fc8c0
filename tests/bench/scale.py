"""What of a batch does not become shorter with more workers: the driver's work, and what tasks wait for.

Without Spark: batches of 64 tasks into 1,000 buckets of 50 files. With it: equal batches on 1, 2 and 4 executors that
are processes of one core each. CPU time counts, so that other work on the machine does not.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.result import Result, Size
from tests.support.peers.jars import CHECKOUT

BUCKETS, FILES, TASKS = 1000, 50, 64
WORKERS = (1, 2, 4)
BATCHES = 6
BATCH_ROWS = 400_000
DRIVER_SECONDS = 0.2
DRIVER_BYTES = 100 << 20


def run(size: Size, root: Path) -> Sequence[Result]:
    buckets = max(10, int(BUCKETS * size.scale))
    found = _in_process("driver", root / "driver", buckets, FILES, TASKS)
    return [*_driver(found, buckets), *(_cluster(size, root, workers) for workers in WORKERS)]


def _driver(found: dict[str, Any], buckets: int) -> Sequence[Result]:
    # Where buckets may be compacted after a batch, tasks are sent their files: many times the bytes, and more work.
    batches = [b for b in found["batches"] if not b["compacts"]]
    small = min(b["sent_bytes"] for b in batches)
    plain = [b for b in batches if b["sent_bytes"] < 2 * small]
    what = f"{TASKS} tasks, {buckets:,} buckets of {FILES} files, without Spark: "
    shared: dict[str, Any] = {"rows": buckets * FILES, "other_seconds": 0.0, "written_bytes": 0, "detail": found}
    seconds = median(b["seconds"] for b in plain)
    peak = found["peak_bytes"]
    return [
        Result(
            name="scale driver",
            what=what + "CPU seconds of the driver for a batch that compacts nothing, as the ratio",
            seconds=seconds,
            worker_peak_bytes=0,
            ratio=seconds,
            at_most=DRIVER_SECONDS,
            **shared,
        ),
        Result(
            name="scale memory",
            what=what + "Python's memory in the driver, against 100 MiB",
            seconds=seconds,
            worker_peak_bytes=peak,
            ratio=peak / DRIVER_BYTES,
            at_most=1.0,
            **shared,
        ),
    ]


def _cluster(size: Size, root: Path, workers: int) -> Result:
    rows = size.rows(BATCH_ROWS)
    batches = _in_process("cluster", root / f"cluster-{workers}", workers, BATCHES, rows)[2:]
    driver, jvm, executors = (median(b[who] for b in batches) for who in ("driver", "jvm", "executors"))
    return Result(
        name=f"scale {workers}",
        what=f"{workers} executors of one core: CPU of the driver as a part of all, its JVM and the master included",
        rows=rows,
        seconds=median(b["seconds"] for b in batches),
        other_seconds=0.0,
        written_bytes=0,
        worker_peak_bytes=0,
        ratio=(driver + jvm) / (driver + jvm + executors),
        at_most=0.15,
        detail={
            "batches": batches,
            "serial": {"driver": driver, "jvm": jvm},
            "parallel": executors,
            "speedup by Amdahl": {n: (driver + jvm + executors) / (driver + jvm + executors / n) for n in (4, 16, 100)},
        },
    )


def _in_process(module: str, folder: Path, *numbers: int) -> Any:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", f"tests.bench.{module}", str(folder), *map(str, numbers)]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
