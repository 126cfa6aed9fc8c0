"""A change stream read by Spark beside a writer, a compactor and expiry, all of which are killed and started again."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bucketline.state.store.table.table import create_table, open_table
from tests.support.processes.change_stream_process import Change, batches, kill, rebuilt, start, steps, table_rows

KILLS = int(os.environ.get("BUCKETLINE_CHANGE_STREAM_KILLS", "0"))
LONGEST_SECONDS = 240
"""From the start of Spark to its first batch, on a machine with much else to do."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not KILLS, reason="part of .ci/run change-stream-long"),
    pytest.mark.timeout(600 + KILLS * LONGEST_SECONDS),
]

KINDS: dict[str, dict[str, str]] = {
    "written rows": {},
    "input": {"changelog-producer": "input"},
    "lookup": {"changelog-producer": "lookup"},
    "full compaction": {"changelog-producer": "full-compaction", "write-only": "true"},
    "deletion vectors": {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
}


def wait_for_batches(process: Any, out: Path, count: int, log: Path) -> None:
    """Returns when so many batches more have come than there were. Fails when the stream ends by itself."""
    before, end = len(batches(out)), time.monotonic() + LONGEST_SECONDS
    while len(batches(out)) < before + count:
        assert process.poll() is None and time.monotonic() < end, log.read_text()[-4000:]
        time.sleep(0.1)  # the other processes have to get on


def assert_in_order(found: dict[int, list[Change]]) -> None:
    """Batch after batch, and in a batch key by key, no snapshot comes before an older one."""
    until = 0
    for number in sorted(found):
        seen: dict[int, int] = {}
        for key, _, _, snapshot in found[number]:
            assert until <= snapshot and seen.get(key, 0) <= snapshot, number
            seen[key] = snapshot
        until = max([until, *seen.values()])


@pytest.mark.parametrize("kind", KINDS)
def test_changes_come_once_and_in_order_whoever_is_killed(tmp_path: Path, kind: str) -> None:
    options = {"bucket": "2", "num-sorted-run.compaction-trigger": "3", **KINDS[kind]}
    table = create_table(str(tmp_path / "shop.db" / "t"), "id BIGINT NOT NULL, n INT", ["id"], options=options)
    out, written, checkpoint = tmp_path / "out", tmp_path / "written", tmp_path / "checkpoint"
    out.mkdir()
    written.touch()
    draw = random.Random(kind)
    strategy = "full" if kind == "full compaction" else "minor"
    again: dict[str, Callable[[], Any]] = {
        "write": lambda: start("write", table.path, written, kind, log=tmp_path / "write.log"),
        "compact": lambda: start("compact", table.path, strategy, log=tmp_path / "compact.log"),
    }
    log = tmp_path / "stream.log"

    def streaming(files: int, until: str = "killed") -> Any:
        return start("stream", table.path, checkpoint, out, files, until, log=log)

    running = {name: begin() for name, begin in again.items()}
    try:
        for number in range(KILLS):
            running["stream"] = streaming(draw.choice([0, 1, 3]))
            wait_for_batches(running["stream"], out, draw.randint(1, 4), log)
            time.sleep(draw.random() * 1.5)  # the moment of death is drawn
            others = ("write", "compact")
            victims = ["stream", *(others if number % 3 == 2 else others[number % 2 :][:1])]
            draw.shuffle(victims)
            for name in victims:
                kill(running.pop(name))
            running |= {name: again[name]() for name in victims if name in again}
        for name in again:
            assert running[name].poll() is None, (tmp_path / f"{name}.log").read_text()[-4000:]
    finally:
        for process in running.values():
            kill(process)
    open_table(table.path).compact("full")
    last = streaming(0, "end")
    try:
        assert last.wait(LONGEST_SECONDS) == 0, log.read_text()[-4000:]
    finally:
        kill(last)
    found = batches(out)
    assert sorted(found) == list(range(len(found)))
    changes = [change for number in sorted(found) for change in found[number]]
    count = len({snapshot for *_, snapshot in changes})
    print(f"{kind}: {len(changes)} changes of {count} snapshots in {len(found)} batches, {KILLS} kills")
    assert_in_order(found)
    if kind in ("written rows", "input"):
        by_step: dict[int, list[tuple[int, int, int]]] = {}
        whole = min(snapshot for *_, snapshot in changes)  # the stream begins with all rows of this one
        for key, n, row_kind, snapshot in changes:
            if snapshot > whole:
                by_step.setdefault(n, []).append((key, n, row_kind))
        begun = steps(written)
        # A step whose writer was killed came whole, or not at all.
        assert {n: sorted(rows) for n, rows in by_step.items()} == {n: sorted(begun[n]) for n in by_step}
        assert len(begun) - min(by_step) - len(by_step) <= 1 + KILLS
        state: dict[int, int] = {}
        for key, n, row_kind, _ in changes:
            if row_kind == 3:
                state.pop(key, None)
            else:
                state[key] = n
    else:
        state = rebuilt(changes)
    assert state == table_rows(table)
    assert len(changes) > 10 * KILLS
    assert open_table(table.path).snapshots()["snapshot_id"][0].as_py() > 1, "nothing has expired"
