"""`bucketline plan` and `bucketline compactor`: what they print, and processes that are killed beside each other."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
from click.testing import CliRunner

from bucketline.state.plans.plan import ItemState
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.streaming.cli.commands import program
from tests.support.processes.compactor_process import start, wait_until_closed, wait_until_up

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
SECONDS = float(os.environ.get("BUCKETLINE_COMPACTOR_SECONDS", "6"))


def made(path: Path, *, buckets: int = 4, batches: int = 6, rows: int = 40) -> Table:
    options = {"bucket": str(buckets), "write-only": "true"}
    table = create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    for number in range(batches):
        add(table, number, rows)
    return open_table(table.path)


def add(table: Table, number: int, rows: int) -> None:
    table.write(pa.table({"id": range(rows), "v": [f"{number}-{i}" for i in range(rows)]}, schema=COLUMNS))


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(program, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_a_plan_prints_its_items_bytes_and_the_executors_worth_having(tmp_path: Path) -> None:
    table = made(tmp_path)
    code, out, told = run("plan", table.path, "--dry-run", "--format", "json")
    items = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [i["item"] for i in items] == [0, 1, 2, 3]
    assert {(i["files"], i["levels"], i["output_level"]) for i in items} == {(6, "0", 5)}
    size = sum(i["bytes"] for i in items)
    assert f"4 items, {size:,} bytes, " in told and "executors useful; not published" in told
    assert not (Path(table.path) / "compaction").exists()
    assert "plan 1" in run("plan", table.path, "--strategy", "full")[2]
    assert run("plan", table.path)[2] == "nothing to plan\n"


def test_settings_reach_the_plan_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    told = run("plan", table.path, "--set", "compaction-plan.max-bytes=1 b")[2]
    assert told.startswith("1 item, ")
    code, _, told = run("plan", table.path, "--set", "compaction-plan.max-byte=1 b")
    assert code == 3 and "did you mean 'compaction-plan.max-bytes'" in told
    assert run("compactor", table.path, "--tasks", "3")[0] == 2
    assert run("compactor", table.path, "--lease", "10 ms")[0] == 2
    assert "no unit" in run("compactor", table.path, "--poll", "5")[2]


def test_a_compactor_works_off_the_plans_of_several_tables(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one"), made(tmp_path / "two", buckets=2)
    for table in (one, two):
        run("plan", table.path)
    line = next(text for text in run("status", one.path)[1].splitlines() if text.startswith("compaction plans"))
    assert line.startswith("compaction plans: 4 items open (") and "), 0 in work; the oldest was planned " in line
    metrics = tmp_path / "compactor.prom"
    code, out, told = run("compactor", one.path, two.path, "--once", "--set", f"metrics.prometheus.file={metrics}")
    shown = metrics.read_text()
    assert f'bucketline_compactor_items_total{{outcome="done",table="{one.path}"}} 4.0' in shown
    assert f'bucketline_compactor_open_items{{table="{two.path}"}} 0.0' in shown
    assert code == 0 and told == "6 items closed\n"
    assert sorted(out.splitlines())[0].startswith(f"{one.path} bucket 0: done, snapshot ")
    assert out.count(": done, snapshot ") == 6
    for table in (one, two):
        assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {5}
        assert open_table(table.path).doctor() == []
    assert run("compactor", one.path, "--once")[2] == "0 items closed\n"
    assert "compaction plans" not in run("status", one.path)[1]


def test_a_compactor_follows_the_rules_of_a_table_whose_writers_leave_that_to_compactions(tmp_path: Path) -> None:
    options = {
        "bucket": "1",
        "write-only": "true",
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "2",
        "partition.expiration-time": "2 d",
        "partition.expiration-check-interval": "0 s",
        "tag.automatic-creation": "process-time",
    }
    table = create_table(str(tmp_path / "shop.db" / "t"), "id INT, dt STRING", ("dt", "id"), ("dt",), options)
    for _ in range(4):
        table.write(pa.table({"id": pa.array([1, 2], pa.int32()), "dt": ["2020-01-01", "2999-01-01"]}))
    assert run("plan", table.path, "--strategy", "full")[0] == 0
    assert table.snapshots().num_rows == 4
    code, out, _ = run("compactor", table.path, "--once")
    assert code == 0 and "snapshots expired, tag " in out and "partition dt=2020-01-01 dropped" in out
    assert table.snapshots().num_rows == 2
    assert table.to_arrow()["dt"].to_pylist() == ["2999-01-01"]
    assert len(table.tags()) == 1
    assert table.doctor(rows=True) == []
    assert run("compactor", table.path, "--once")[1] == ""


def test_compactors_that_are_killed_beside_a_writer_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    """Three compactors; one of them is killed again and again, while batches are written and planned."""
    table = made(tmp_path, rows=2000)
    chance = random.Random(7)
    running = [start(table) for _ in range(3)]
    end, number = time.monotonic() + SECONDS, 6
    try:
        while time.monotonic() < end:
            add(table, number, 2000)
            number += 1
            assert run("plan", table.path, "--strategy", "level-0", "--set", "compaction-plan.min-runs=2")[0] == 0
            if chance.random() < 0.4:
                victim = running.pop(0)
                victim.kill()
                victim.communicate()
                running.append(start(table))
        states = wait_until_closed(table, 60)
    finally:
        for process in running:
            wait_until_up(process)
            process.send_signal(signal.SIGTERM)
        ends = [process.communicate(timeout=60) for process in running]
    assert [p.returncode for p in running] == [0, 0, 0], ends
    assert set(states) == {ItemState.DONE} and len(states) >= 4
    rows = {r["id"]: r["v"] for r in open_table(table.path).to_arrow().to_pylist()}
    assert rows == {i: f"{number - 1}-{i}" for i in range(2000)}
    compacted = [s for s in table.snapshots().to_pylist() if s["commit_kind"] == "COMPACT"]
    names = [(s["commit_user"], s["commit_identifier"]) for s in compacted]
    assert len(names) == len(set(names)) and open_table(table.path).doctor() == []


def test_a_compactor_without_work_ends_at_once_when_it_is_told(tmp_path: Path) -> None:
    process = start(made(tmp_path, batches=1))
    wait_until_up(process)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[1] == "0 items closed\n" and process.returncode == 0
