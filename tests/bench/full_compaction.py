"""A full compaction of five sorted runs, against pyarrow reading the same files and writing them back."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa

from bucketline.state.store.table.table import create_table
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, batches
from tests.bench.solo import Solo, solo

RUNS = 5
RUN_ROWS = 1_000_000


def run(size: Size, root: Path) -> Sequence[Result]:
    rows = size.rows(RUN_ROWS)
    table = create_table(str(root / "t"), COLUMNS, ("id",), options={"bucket": "1", "write-only": "true"})
    for number in range(RUNS):
        table.write(pa.concat_tables(batches(rows, seed=number)))
    ours: list[Solo] = []
    theirs: list[Solo] = []
    for _ in range(size.repeats):
        theirs.append(solo("rewrite", root / "t"))
        # Files are never changed, so a copy of the table can share them.
        shutil.copytree(root / "t", root / "copy", copy_function=os.link)
        ours.append(solo("compact", root / "copy"))
        shutil.rmtree(root / "copy")
        assert ours[-1].rows == theirs[-1].rows == RUNS * rows
    return [
        Result(
            name="3c",
            what="full compaction of five runs, against pyarrow reading and writing the same files, one core",
            rows=RUNS * rows,
            seconds=median(s.seconds for s in ours),
            other_seconds=median(s.seconds for s in theirs),
            written_bytes=folder_bytes(root / "t"),
            worker_peak_bytes=max(s.peak_bytes for s in ours),
            ratio=paired_ratio([s.seconds for s in ours], [s.seconds for s in theirs]),
            at_most=2.5,
            memory_limit_bytes=1 << 30,
            detail={
                "ours": [s.seconds for s in ours],
                "pyarrow": [s.seconds for s in theirs],
                "cpu": [(a.cpu, b.cpu) for a, b in zip(ours, theirs, strict=True)],
            },
        )
    ]
