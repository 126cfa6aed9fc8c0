"""The same stream of upserts into tables of each bucket mode, against fixed buckets."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import input_stream, session, timed_run
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import WorkerWatch

BATCHES = 10
BATCH_ROWS = 500_000
KEYS = 2_000_000
FIXED = "fixed"
MODES: Mapping[str, tuple[str, tuple[str, ...], float]] = {
    FIXED: ("4", (), 1.0),
    "dynamic": ("-1", (), 1.3),
    "cross-partition": ("-1", ("status",), 2.0),
    "postpone": ("-2", (), 0.8),
}
"""Bucket option, partition columns, and the time that is allowed, in times of fixed buckets."""


def run(size: Size, root: Path) -> Sequence[Result]:
    rows, keys = size.rows(BATCH_ROWS), size.rows(KEYS)
    stream = input_stream(root / "source", upserts(BATCHES, rows, key_range=keys, seed=3))
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    peaks = dict.fromkeys(MODES, 0)
    written = dict.fromkeys(MODES, 0)
    with session(root) as spark:
        for turn in range(-1, size.repeats):
            for mode, (bucket, partition, _) in MODES.items():
                if turn < 0 and mode != FIXED:
                    continue
                path = root / f"{mode}-{turn}"
                table = create_table(str(path / "t"), COLUMNS, ("id",), partition, options={"bucket": bucket})
                sink = TableSink(table.path, {"local-directory": str(path / "local")})
                with WorkerWatch() as watch:
                    found = timed_run(stream, spark, sink, path / "checkpoint")
                # The first turn warms up.
                if turn >= 0:
                    seconds[mode].append(found)
                    peaks[mode] = max(peaks[mode], watch.peak_bytes)
                    written[mode] = folder_bytes(path / "t")
                shutil.rmtree(path)
    return [
        Result(
            name=f"5 {mode}",
            what=f"ten batches of upserts into a {mode} table, against fixed buckets",
            rows=BATCHES * rows,
            seconds=median(seconds[mode]),
            other_seconds=median(seconds[FIXED]),
            written_bytes=written[mode],
            worker_peak_bytes=peaks[mode],
            ratio=paired_ratio(seconds[mode], seconds[FIXED]),
            at_most=at_most,
            memory_limit_bytes=1 << 30,
            detail={"seconds": seconds[mode], "fixed": seconds[FIXED]},
        )
        for mode, (_, _, at_most) in MODES.items()
        if mode != FIXED
    ]
