"""Building the key index of a table, against reading its keys and writing them; and opening a valid one."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from bucketline.state.store.table.table import create_table
from tests.bench.result import Result, Size
from tests.bench.rows import COLUMNS, rows_of
from tests.bench.solo import Solo, solo

KEYS = 5_000_000
WRITE_ROWS = 1_000_000
MODULE = "tests.bench.index_solo"


def run(size: Size, root: Path) -> Sequence[Result]:
    keys = size.rows(KEYS)
    table = create_table(str(root / "t"), COLUMNS, ("id",), ("status",), options={"bucket": "-1"})
    random = np.random.default_rng(0)
    ids = random.permutation(keys)
    for start in range(0, keys, WRITE_ROWS):
        table.write(rows_of(ids[start : start + WRITE_ROWS], random))
    floors: list[Solo] = []
    builds: list[Solo] = []
    opens: list[Solo] = []
    for _ in range(size.repeats):
        shutil.rmtree(f"{root}/t.index", ignore_errors=True)
        floors.append(solo("floor", root / "t", module=MODULE))
        builds.append(solo("build", root / "t", module=MODULE))
        opens.append(solo("open", root / "t", module=MODULE))
        assert floors[-1].rows == builds[-1].rows == keys, (floors[-1], builds[-1])
    return [
        _result("5 build", "building the key index, against reading the keys and writing one SST", builds, floors, 3.0),
        _result("5 open", "bringing a valid key index up again, against building it", opens, builds, 1 / 20),
    ]


def _result(name: str, what: str, ours: list[Solo], others: list[Solo], at_most: float) -> Result:
    return Result(
        name=name,
        what=what,
        rows=others[0].rows,
        seconds=median(s.seconds for s in ours),
        other_seconds=median(s.seconds for s in others),
        written_bytes=0,
        worker_peak_bytes=max(s.peak_bytes for s in ours),
        ratio=median(a.seconds / b.seconds for a, b in zip(ours, others, strict=True)),
        at_most=at_most,
        memory_limit_bytes=1 << 30,
        detail={"ours": [s.seconds for s in ours], "other": [s.seconds for s in others]},
    )
