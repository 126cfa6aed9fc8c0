"""Processes write a table, are stopped and go on, while the storage's clock moves by days and orphans are removed,
snapshots expire and buckets are compacted: each row that was written is there once, and no file is missing.

One thing is excepted, as `docs/file-lifetimes.md` says: a writer that is stopped twice, so that its files are taken
before it publishes its snapshot, and another commit builds on that snapshot before the writer looks for its files. Here
all files grow two days old at any moment, so that can happen. The writer is told to which snapshot the table is to be
rolled back, and the table is whole after that.

BUCKETLINE_AGED sets for how many seconds writers are stopped in each table; `.ci/run aged-long` does so for minutes.
"""

import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from bucketline.state.store.doctor.examine import Severity
from bucketline.state.store.table.table import Table, create_table, open_table
from tests.support.models.modes import COLUMNS
from tests.support.processes.aged_while_written import BESIDE, Written, write_rows
from tests.support.processes.forked import forking

SECONDS = float(os.environ.get("BUCKETLINE_AGED", "6"))
LONGEST_STOP_S = 60.0 if SECONDS > 60 else 0.5
SEED = int(os.environ.get("BUCKETLINE_AGED_SEED", "7"))
WRITERS = 3
TABLES: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "append": ((), {"bucket": "-1"}),
    "fixed": (("id",), {"bucket": "1"}),
    "deletion vectors": (("id",), {"bucket": "2", "deletion-vectors.enabled": "true"}),
}


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("kind", TABLES if SECONDS > 10 else ["append"])
def test_what_is_written_while_files_grow_old_is_there_once(tmp_path: Path, kind: str) -> None:
    key, options = TABLES[kind]
    sql = ", ".join(f"{n} {t}{' NOT NULL' if n in key else ''}" for n, t in COLUMNS.items())
    path = create_table(str(tmp_path / "shop.db" / "t"), sql, key, (), options).path
    context = forking()
    start, written, stop, told = context.Barrier(WRITERS + 1), context.Queue(), context.Event(), context.Queue()
    enough = context.Event()
    writers = [
        context.Process(target=write_rows, args=(path, n, WRITERS, start, enough, written)) for n in range(WRITERS)
    ]
    beside = [context.Process(target=work, args=(path, SEED, stop, told)) for work in BESIDE]
    for process in (*writers, *beside):
        process.start()
    try:
        start.wait()
        _stop_some([p.pid or 0 for p in writers])
        enough.set()
        found = dict[int, Written](written.get(timeout=120) for _ in writers)
        stop.set()
        besides = sorted(told.get(timeout=20) for _ in beside)
    finally:
        stop.set()
        for process in (*writers, *beside):
            process.join(10)
            process.kill()
    print(
        {n: (len(w.ids), len(w.unclear), len(w.refused)) for n, w in found.items()},
        [(name, n, len(e)) for name, n, e in besides],
    )
    assert [w.wrong for w in found.values()] == [[], [], []]
    table = open_table(path)
    told = [snapshot for w in found.values() for snapshot in w.told]
    if told:
        _check_rolled_back(table, min(told))
        return
    unclear = {i for w in found.values() for i in w.unclear}
    there = table.to_arrow(columns=["id"])["id"].to_pylist()
    assert len(set(there)) == len(there)
    assert sorted(set(there) - unclear) == sorted(i for w in found.values() for i in w.ids)
    assert [f.message for f in table.doctor(rows=True) if f.severity is Severity.ERROR] == []
    assert all(count > 0 for name, count, _ in besides if name in ("aged", "expired"))


def _check_rolled_back(table: Table, snapshot: int) -> None:
    """Checks that the table is whole after the rollback that a writer was told to do. Only the error was to be seen if
    that snapshot has expired."""
    if snapshot not in table.snapshots()["snapshot_id"].to_pylist():
        return
    table.rollback_to(snapshot)
    there = open_table(table.path).to_arrow(columns=["id"])["id"].to_pylist()
    assert len(set(there)) == len(there)
    assert [f.message for f in open_table(table.path).doctor(rows=True) if f.severity is Severity.ERROR] == []


def _stop_some(pids: list[int]) -> None:
    """Stops one writer after the other, in the middle of whatever it does, for a drawn time."""
    chance, end = random.Random(SEED), time.monotonic() + SECONDS
    while time.monotonic() < end:
        pid = chance.choice(pids)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(min(chance.random() ** 4 * LONGEST_STOP_S, max(0.0, end - time.monotonic())))
        os.kill(pid, signal.SIGCONT)
        time.sleep(chance.random() * 0.3)
