"""Plans beside Paimon Java: its tools pass the folder over, and what it compacts itself makes items obsolete."""

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.plans.plan import ItemState
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.serve import Stop, serve_plans
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import live_table
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.write_batch import Job, write_batch
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.peers.peer import PaimonJava, PeerError
from tests.support.processes.compactor_process import start, wait_until_closed, wait_until_up
from tests.support.spark.tasks import Cluster
from tests.support.storage.slow_storage import slow_storage
from tests.support.tables.compactors import compactor_of

pytestmark = pytest.mark.peer

SECONDS = float(os.environ.get("BUCKETLINE_COMPACTOR_SECONDS", "5"))
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def plan(table: Table) -> int | None:
    session = table_at(handle_of(open_table(table.path)), {"compaction-plan.strategy": "full"}).refreshed()
    return make_plan(session, PlanFolder(handle_of(table).io, table.path)).number


def work_off(table: Table) -> list[ItemState]:
    found: list[ItemState] = []
    compactors = {table.path: compactor_of(handle_of(open_table(table.path)), {}, LOCAL_ENGINE, lease_ms=60_000)}
    tell = lambda path, item: found.append(item.result.state)  # noqa: E731 (one line)
    serve_plans(compactors, poll_ms=1, once=True, stop=Stop(), tell=tell)
    return found


def test_paimon_reads_writes_and_compacts_beside_open_plans_and_leaves_their_files_alone(
    tmp_path: Path, paimon_java: PaimonJava
) -> None:
    # An option of ours that a table has is none of its business.
    options = {"bucket": "2", "write-only": "true", "compaction": "dedicated"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    for number in range(4):
        table.write(pa.table({"id": range(30), "v": [number] * 30}, schema=COLUMNS))
    assert plan(table) == 1
    folder = Path(table.path, "compaction")
    files = {p.name: p.read_bytes() for p in folder.iterdir()}

    def theirs() -> dict[object, object]:
        return {r["id"]: r["v"] for r in paimon_java.read(table.path)}

    assert theirs() == dict.fromkeys(range(30), 3)
    # It compacts inline whatever the options say, and so takes the inputs of the plan's items away.
    every = {"write-only": "false", "full-compaction.delta-commits": "1", "num-sorted-run.compaction-trigger": "1"}
    rows = [{"id": i, "v": 9} for i in range(30)]
    paimon_java.write(table.path, rows, write_only=False, wait_compaction=True, options=every)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == files
    assert theirs() == dict.fromkeys(range(30), 9)
    kinds = [s["commit_kind"] for s in table.snapshots().to_pylist()]
    assert kinds.count("COMPACT") == 1
    assert work_off(table) == [ItemState.OBSOLETE] * 2
    for number in range(3):
        table.write(pa.table({"id": range(30), "v": [number] * 30}, schema=COLUMNS))
    assert plan(table) == 2 and work_off(table) == [ItemState.DONE] * 2
    assert theirs() == dict.fromkeys(range(30), 2)
    assert {f["level"] for f in paimon_java.files(table.path)} == {5}
    assert open_table(table.path).doctor() == []


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


LONG = "BUCKETLINE_COMPACTOR_SECONDS" in os.environ
KINDS = {
    "fixed": {"bucket": "4"},
    "vectors": {"bucket": "4", "deletion-vectors.enabled": "true"},
    "postpone": {"bucket": "-2", "postpone.default-bucket-num": "3"},
    "postpone with vectors": {"bucket": "-2", "postpone.default-bucket-num": "3", "deletion-vectors.enabled": "true"},
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(k, marks=pytest.mark.skipif(k != "fixed" and not LONG, reason="part of .ci/run compactors-long"))
        for k in KINDS
    ],
)
def test_three_compactors_one_writer_and_paimon_work_side_by_side(
    tmp_path: Path, paimon_java: PaimonJava, kind: str
) -> None:
    """One compactor is killed again and again. No batch fails, none waits below the stop trigger, each item is
    committed once, rows are those that were written, and the changelog leads from nothing to them."""
    options = {**KINDS[kind], "changelog-producer": "lookup", "snapshot.num-retained.min": "100000"}
    expected: dict[object, object] = {}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    dedicated = {"compaction": "dedicated", "compaction-plan.commits": "2", "compaction-plan.strategy": "level-0"}
    given = {**dedicated, "compaction-plan.min-runs": "2", "back-pressure": "wait", "back-pressure.timeout": "60 s"}
    target, reports, chance = live_table(table.path, given, "query", {}).target, list[BatchReport](), random.Random(5)
    cluster, by_paimon, over = Cluster(chance, 2), Counter[str](), threading.Event()

    def compact_as_paimon() -> None:
        while not over.wait(6):
            try:
                made = paimon_java.compact(table.path, full=False)
                by_paimon["nothing due" if made is None else "compacted"] += 1
            except PeerError:
                by_paimon["lost"] += 1

    running, killed, number = [start(table) for _ in range(3)], 0, 0
    starting: list[subprocess.Popen[str]] = []
    for process in running:
        wait_until_up(process)
    paimon = threading.Thread(target=compact_as_paimon)
    paimon.start()
    end, next_kill = time.monotonic() + SECONDS, time.monotonic() + 2
    try:
        while time.monotonic() < end:
            keys = chance.sample(range(500), 200)
            kinds = [3 if chance.random() < 0.1 else 0 for _ in keys]
            expected.update(dict.fromkeys(keys, number))
            for key, row_kind in zip(keys, kinds, strict=True):
                if row_kind:
                    del expected[key]
            rows = pa.table({"id": keys, "v": [number] * len(keys)}, schema=COLUMNS)
            rows = rows.append_column("_row_kind", pa.array(kinds, pa.int8()))
            identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
            target, report = write_batch(target, identity, cluster.frame(rows, 2), Job(as_is))
            reports.append(report)
            number += 1
            if time.monotonic() > next_kill:
                victim = running.pop(0)
                victim.kill()
                victim.communicate()
                running.append(start(table))
                starting.append(running[-1])
                killed, next_kill = killed + 1, time.monotonic() + chance.uniform(4, 8)
        over.set()
        paimon.join()
        assert set(wait_until_closed(table, 120)) <= {ItemState.DONE, ItemState.OBSOLETE}
        # What no plan has taken up yet.
        table.compact()
    finally:
        over.set()
        for process in running:
            if process in starting:
                wait_until_up(process)
            process.send_signal(signal.SIGTERM)
        ends = [process.communicate(timeout=60) for process in running]
    assert [p.returncode for p in running] == [0, 0, 0], ends
    assert all(r.crowded_buckets or not r.back_pressure_seconds for r in reports)
    snapshots = handle_of(open_table(table.path)).snapshot_store
    found = [s for s in snapshots.newest_first(snapshots.latest_id() or 0) if "bucketline.plan-items" in s.properties]
    items = [(s.commit_user, n) for s in found for n in s.properties["bucketline.plan-items"].split(",")]
    assert len(items) == len(set(items)) and (items or SECONDS < 60)
    assert _rows(table) == expected
    assert _replayed(open_table(table.path).to_arrow(changes_since=0)) == _rows(table)
    assert {r["id"]: r["v"] for r in paimon_java.read(table.path)} == _rows(table)
    assert open_table(table.path).doctor(rows=True) == []
    waited = sum(bool(r.back_pressure_seconds) for r in reports)
    print(f"{kind}: {number} batches, {waited} waited, {killed} kills, {len(items)} items, Paimon: {dict(by_paimon)}")


def _rows(table: Table) -> dict[object, object]:
    return {r["id"]: r["v"] for r in open_table(table.path).to_arrow().to_pylist()}


def _replayed(changes: pa.Table) -> dict[object, object]:
    """The rows that a changelog leads to; each change begins where the one before it has ended."""
    rows: dict[object, object] = {}
    for change in changes.to_pylist():
        key, value, kind = change["id"], change["v"], change["_row_kind"]
        if kind in (1, 3):
            assert rows.pop(key) == value
        else:
            assert key not in rows, change
            rows[key] = value
    return rows


@pytest.mark.skipif(not LONG, reason="part of .ci/run compactors-long")
def test_three_compactors_take_at_most_half_the_time_of_one_on_slow_storage(tmp_path: Path) -> None:
    seconds = {}
    for count in (1, 3):
        options = {"bucket": "24", "write-only": "true"}
        table = create_table(str(tmp_path / str(count) / "t"), COLUMNS, ("id",), options=options)
        for number in range(3):
            table.write(pa.table({"id": range(500), "v": [number] * 500}, schema=COLUMNS))
        assert plan(table) == 1
        threads = [threading.Thread(target=work_off, args=(table,)) for _ in range(count)]
        with slow_storage(0.03):
            started = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds[count] = time.monotonic() - started
        assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {5}
    print(f"one compactor: {seconds[1]:.1f} s, three: {seconds[3]:.1f} s")
    assert seconds[3] <= seconds[1] / 2, seconds
