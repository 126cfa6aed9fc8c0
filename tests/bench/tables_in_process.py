"""A batch of many tables without Spark: on storage that answers late, and the memory that known tables take."""

import gc
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.bench.result import Result, Size
from tests.support.spark.many_shop import Shop
from tests.support.spark.tasks import killed_at
from tests.support.storage.slow_storage import slow_storage

TABLES, KNOWN, FILES = 200, 500, 20
DELAY_S, LIMIT_S, LIMIT_BYTES = 0.03, 8.0, 200 << 20
TEXT = """
create: {schema: "id BIGINT NOT NULL, v STRING, w DOUBLE", primary-key: [id], options: {bucket: "1"}}
options: {write-only: "true"}
shards: distinct-keys
commit-parallelism: 32
tables: [{source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}]
"""


def run(size: Size, root: Path) -> Sequence[Result]:
    return [_far(size, root / "far"), _memory(size, root / "memory")]


def _far(size: Size, root: Path) -> Result:
    """Batches of 20 rows for each table, on local storage each of whose calls takes 30 ms more."""
    tables, seconds = max(2, int(TABLES * size.scale)), list[float]()
    job = Shop(root, TEXT)
    _changes(job, tables)
    job.batch()
    _changes(job, tables)
    with killed_at(None) as counted:
        job.batch()
    for _ in range(3):
        _changes(job, tables)
        with slow_storage(DELAY_S, is_far=True):
            started = time.monotonic()
            job.batch()
            seconds.append(time.monotonic() - started)
    return Result(
        name="tables far",
        what=f"a batch for {tables} tables, 30 ms added to each of {counted.calls / tables:.0f} calls for each, 32 "
        f"commits at a time; against {LIMIT_S:g} s",
        rows=20 * tables,
        seconds=median(seconds),
        other_seconds=LIMIT_S,
        written_bytes=0,
        worker_peak_bytes=0,
        ratio=median(seconds) / LIMIT_S,
        at_most=1,
        detail={"seconds": seconds, "calls": counted.calls},
    )


def _memory(size: Size, root: Path) -> Result:
    """What the process grows by when it opens tables of 20 files each: they are copies of one."""
    tables = max(2, int(KNOWN * size.scale))
    job = Shop(root, TEXT)
    for _ in range(FILES):
        _changes(job, 1)
        job.batch()
    for number in range(1, tables):
        shutil.copytree(root / "w" / "t0", root / "w" / f"t{number}")
    job.allow_reprocess = True  # the copies hold batches of the job that its ledger does not know
    before = _held_bytes()
    started = time.monotonic()
    _changes(job, tables, 1)
    job.batch()
    held = _held_bytes() - before
    return Result(
        name="tables memory",
        what=f"MiB that {tables} tables of {FILES} files take in the driver; against {LIMIT_BYTES >> 20}",
        rows=tables,
        seconds=time.monotonic() - started,
        other_seconds=0,
        written_bytes=0,
        worker_peak_bytes=max(0, held),
        ratio=held / LIMIT_BYTES,
        at_most=1,
        detail={"bytes": held},
    )


def _changes(job: Shop, tables: int, rows: int = 20) -> None:
    for table in range(tables):
        for row in range(rows):
            job.topic.change(f"t{table}", {"id": row, "v": f"row {row}", "w": row / 4})


def _held_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
