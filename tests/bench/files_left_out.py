"""Files that queries do not open: with bloom filters and without them, for one text among many files whose bounds all
hold it; what these cost to write; and a count of rows by metadata beside one that reads a column.

Each is measured in turns with its rival, in this process; CPU counts.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from bucketline.state.store.table.table import create_table, open_table
from tests.bench.result import Result, Size, folder_bytes

ROWS = 4_000_000
FILES = 20
QUERIES = 5
COLUMNS = pa.schema([("id", pa.int64()), ("token", pa.string()), ("amount", pa.float64()), ("note", pa.string())])
BLOOM = {"file-index.bloom-filter.columns": "token", "file-index.bloom-filter.token.fpp": "0.01"}


def run(size: Size, root: Path) -> Sequence[Result]:
    rows = size.rows(ROWS)
    parts = [_part(rows // FILES, seed) for seed in range(FILES)]
    paths = {name: root / name for name in ("bloom", "plain")}
    writing: dict[str, list[float]] = {name: [] for name in paths}
    tables = {
        name: create_table(str(path), COLUMNS, options={"bucket": "-1", **(BLOOM if name == "bloom" else {})})
        for name, path in paths.items()
    }
    for part in parts:
        for name, table in tables.items():
            writing[name].append(_cpu(lambda table=table, part=part: table.write(part)))  # type: ignore[misc]
    reading: dict[str, list[float]] = {name: [] for name in paths}
    for part in parts[:QUERIES]:
        token = part["token"][len(part) // 2].as_py()
        for name, path in paths.items():
            reading[name].append(_cpu(lambda path=path, token=token: _query(path, token)))  # type: ignore[misc]
    counting: dict[str, list[float]] = {"counted": [], "read": []}
    for _ in range(QUERIES):
        counting["counted"].append(_cpu(lambda: _count(paths["plain"], [], rows)))
        counting["read"].append(_cpu(lambda: _count(paths["plain"], ["id"], rows)))
    bytes_of = {name: folder_bytes(path) for name, path in paths.items()}
    detail = {"writing": writing, "reading": reading, "bytes": bytes_of}
    return [
        _result("bloom-read", "query for a text, with bloom filters / without", rows, reading, 0.5, detail),
        _result("bloom-write", "writing with a bloom filter of a text / without", rows, writing, 2.0, {}),
        _result("count", "count(*) by metadata / by reading a BIGINT", rows, counting, 0.5, {"counting": counting}),
    ]


def _result(
    name: str,
    what: str,
    rows: int,
    seconds: dict[str, list[float]],
    at_most: float,
    detail: dict[str, object],
) -> Result:
    ours, other = map(median, seconds.values())
    return Result(
        name=name,
        what=f"{what}, median CPU, {FILES} files",
        rows=rows,
        seconds=ours,
        other_seconds=other,
        written_bytes=0,
        worker_peak_bytes=0,
        ratio=ours / other,
        at_most=at_most,
        detail=detail,
    )


def _part(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    numbers = draw.integers(0, 1 << 62, rows)
    return pa.table(
        [
            pa.array(np.arange(rows) + seed * rows),
            pa.array([f"{n:020x}" for n in numbers.tolist()]),
            pa.array(draw.random(rows)),
            pa.array([f"note {n % 1000}" for n in numbers.tolist()]),
        ],
        schema=COLUMNS,
    )


def _query(path: Path, token: str) -> None:
    found = open_table(str(path)).to_arrow(filter=f"token = '{token}'")
    assert found["token"].to_pylist() == [token]


def _count(path: Path, columns: list[str], rows: int) -> None:
    assert abs(open_table(str(path)).to_arrow(columns=columns).num_rows - rows) < FILES


def _cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started
