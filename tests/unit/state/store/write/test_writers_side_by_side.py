"""Processes that write the same buckets read each of their own rows right after the write, in every mode and engine.

BUCKETLINE_OWN_ROWS sets how often each of them writes; `.ci/run own-rows-long` does so 200 times.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from bucketline.state.store.doctor.examine import Severity
from bucketline.state.store.table.table import Table, create_table, open_table
from tests.support.models.modes import COLUMNS
from tests.support.processes.forked import forking
from tests.support.processes.own_rows_worker import keep_compacting, write_and_read

WRITES = int(os.environ.get("BUCKETLINE_OWN_ROWS", "8"))
LIMIT_S = 60 + 10 * WRITES
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.s.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}
VECTORS = {"deletion-vectors.enabled": "true"}
MODES: Mapping[str, tuple[Mapping[str, str], tuple[str, ...], tuple[str, ...], int]] = {
    "fixed": ({"bucket": "2"}, ("id",), (), 2),
    "fixed, by partition": ({"bucket": "1"}, ("p", "id"), ("p",), 2),
    # One writer at a time: another would put a key into two buckets. Compactors may be beside it.
    "dynamic": ({"bucket": "-1", "dynamic-bucket.target-row-num": "5"}, ("p", "id"), ("p",), 1),
    "cross-partition": ({"bucket": "-1"}, ("id",), ("p",), 1),
    "postpone": ({"bucket": "-2"}, ("id",), (), 2),
}
TABLES = [
    (mode, engine, vectors)
    for mode in MODES
    for engine in ENGINES
    for vectors in (False, True)
    # first-row has no deletion vectors; readers of a postpone table see what is on level 0 only without them.
    if not (vectors and (engine == "first-row" or mode == "postpone")) and (mode, engine) != ("postpone", "first-row")
]
FEW = [t for t in TABLES if t[0] == "fixed"] + [
    ("fixed, by partition", "deduplicate", True),
    ("dynamic", "deduplicate", True),
    ("cross-partition", "first-row", False),
]


def make(path: Path, mode: str, engine: str, vectors: bool) -> Table:
    buckets, key, partitions, _ = MODES[mode]
    sql = ", ".join(f"{n} {t}{' NOT NULL' if n in key else ''}" for n, t in COLUMNS.items())
    options = {**buckets, **ENGINES[engine], **(VECTORS if vectors else {}), "snapshot.num-retained.max": "100"}
    return create_table(str(path / "shop.db" / "t"), sql, key, partitions, options)


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize(("mode", "engine", "vectors"), TABLES if WRITES > 50 else FEW)
def test_each_writer_reads_its_own_rows(tmp_path: Path, mode: str, engine: str, vectors: bool) -> None:
    table, writers = make(tmp_path, mode, engine, vectors), MODES[mode][3]
    context = forking()
    start, told, stop, compacted = context.Barrier(writers), context.Queue(), context.Event(), context.Queue()
    processes = [
        context.Process(target=write_and_read, args=(table.path, n, writers, WRITES, engine, start, told))
        for n in range(writers)
    ]
    beside = context.Process(target=keep_compacting, args=(table.path, stop, compacted))
    for process in (*processes, beside):
        process.start()
    try:
        found = dict(told.get(timeout=LIMIT_S) for _ in processes)
    finally:
        stop.set()
        for process in (*processes, beside):
            process.join(30)
            process.kill()
    assert found == {n: [] for n in range(writers)}
    assert [f.message for f in open_table(table.path).doctor(rows=True) if f.severity is Severity.ERROR] == []
