"""A merge read of two runs that hold the same keys, against pypaimon's on the same table."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from bucketline.state.store.table.table import create_table
from tests.bench.result import Result, Size, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, rows_of
from tests.bench.solo import Solo, solo
from tests.support.peers.peer import pypaimon_python

KEYS = 1_000_000
RUNS = 2
NARROW = ("id", "customer", "weight", "city")


def run(size: Size, root: Path) -> Sequence[Result]:
    keys = size.rows(KEYS)
    return [_measured(size, root / "wide", keys, None), _measured(size, root / "narrow", keys, NARROW)]


def _measured(size: Size, path: Path, keys: int, columns: Sequence[str] | None) -> Result:
    names = COLUMNS.names if columns is None else list(columns)
    schema = COLUMNS if columns is None else pa.schema([COLUMNS.field(n) for n in names])
    table = create_table(str(path), schema, ("id",), options={"bucket": "1", "write-only": "true"})
    for number in range(RUNS):
        random = np.random.default_rng(number)
        table.write(rows_of(random.permutation(keys), random).select(names))
    python = str(pypaimon_python())
    ours: list[Solo] = []
    theirs: list[Solo] = []
    for _ in range(size.repeats):
        theirs.append(solo("read", path, python=python, module="tests.bench.pypaimon_solo"))
        ours.append(solo("merged-read", path))
        assert ours[-1].rows == theirs[-1].rows == keys
    seconds = [s.seconds for s in ours]
    return Result(
        name="4" if columns is None else f"4/{len(names)}",
        what=f"merge read of two runs of the same keys, {len(names)} columns, against pypaimon, one core",
        rows=RUNS * keys,
        seconds=median(seconds),
        other_seconds=median(s.seconds for s in theirs),
        written_bytes=folder_bytes(path),
        worker_peak_bytes=max(s.peak_bytes for s in ours),
        ratio=paired_ratio([s.seconds for s in theirs], seconds),
        at_least=10,
        memory_limit_bytes=512 << 20,
        detail={
            "ours": seconds,
            "pypaimon": [s.seconds for s in theirs],
            "cpu": [(a.cpu, b.cpu) for a, b in zip(ours, theirs, strict=True)],
        },
    )
