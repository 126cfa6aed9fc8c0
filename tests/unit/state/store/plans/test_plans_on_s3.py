"""Plans, leases and heartbeats on S3: compactors and a writer on one table, and a lease whose owner was killed."""

import json
import random
import signal
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.determinism import World
from bucketline.state.plans.lease import Lease
from bucketline.state.plans.plan import ItemState
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.compactor import Compactor
from bucketline.state.store.plans.item_work import TableWork
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.processes.compactor_process import start, wait_until_claimed, wait_until_closed, wait_until_up
from tests.support.servers.s3_server import S3Server
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
LEASE_MS = 60_000


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def write_batch(table: Table, root: Path, number: int, rows: int = 40) -> None:
    """A batch of a stream; all keys get its number."""
    storage = handle_of(table).storage
    sink = TableSink(table.uri, {"local-directory": str(root)}, storage_options=storage, checkpoint="c", decode=as_is)
    identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", "d", checkpoint="c")
    data = pa.table({"id": range(rows), "v": [number] * rows}, COLUMNS)
    sink.write(Cluster(random.Random(number)).frame(data, 1), identity)


def made(server: S3Server, root: Path, batches: int) -> Table:
    options = {"bucket": "3", "write-only": "true"}
    table = create_table(server.new_uri(), COLUMNS, ("id",), options=options, storage_options=server.storage)
    for number in range(batches):
        write_batch(table, root, number)
    return table


def plan(table: Table, strategy: str) -> int | None:
    session = table_at(handle_of(table), {"compaction-plan.strategy": strategy}).refreshed()
    return make_plan(session, PlanFolder(handle_of(table).io, table.path)).number


@dataclass
class Watch:
    """A stopwatch that a test moves on."""

    now_ms: int = 0

    def elapsed_ms(self) -> int:
        return self.now_ms


def compactor(table: Table, watch: Watch) -> Compactor:
    return Compactor(
        PlanFolder(handle_of(table).io, table.path),
        TableWork(table_at(handle_of(table), {})),
        LOCAL_ENGINE,
        lambda renew, lease: nullcontext(),
        lease_ms=LEASE_MS,
        take=lambda open_items: 1,
        world=World(stopwatch=watch),
    )


def check(table: Table, server: S3Server, number: int, rows: int = 40) -> None:
    found = open_table(table.uri, storage_options=server.storage).to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == dict.fromkeys(range(rows), number)
    assert examine(open_to_examine(table.uri, storage_options=server.storage), rows=True) == []


def test_two_compactors_and_a_stream_share_a_table_and_a_dead_owners_lease_is_taken_over(
    s3_server: S3Server, tmp_path: Path
) -> None:
    table = made(s3_server, tmp_path, 3)
    assert plan(table, "full") == 1
    watch = Watch()
    one, other = (compactor(open_table(table.uri, storage_options=s3_server.storage), watch) for _ in range(2))
    # A third has taken an item, has shown twice that it lives, and was killed.
    folder = PlanFolder(handle_of(table).io, table.path)
    planned = folder.plan(1)
    assert planned is not None and len(planned.items) == 3
    dead = folder.claim(planned, 0, 1, Lease("the dead one", LEASE_MS))
    assert dead is not None and folder.claim(planned, 0, 1, Lease("who comes late", LEASE_MS)) is None
    for beat in (1, 2):
        folder.renew(dead, beat)
    finished = []
    for number in (3, 4):
        finished += one.round() + other.round()
        write_batch(table, tmp_path, number)
    assert sorted(f.item.number for f in finished) == [1, 2]
    assert not folder.is_superseded(dead) and one.round() == other.round() == []
    watch.now_ms += LEASE_MS + 1
    [taken] = other.round()
    assert taken.item.number == 0 and taken.result is not None and taken.result.state is ItemState.DONE
    assert folder.is_superseded(dead) and one.round() == []
    check(table, s3_server, 4)
    compacted = [s for s in table.snapshots().to_pylist() if s["commit_kind"] == "COMPACT"]
    assert sorted(s["commit_identifier"] for s in compacted) == [0, 1, 2]
    assert {s["commit_user"] for s in compacted} == {planned.user}


@pytest.mark.stores
def test_compactors_that_are_killed_beside_a_stream_on_versitygw_lose_nothing_and_do_nothing_twice(
    versitygw: S3Server, tmp_path: Path
) -> None:
    """As processes of their own, two at a time: one is killed while it holds a lease."""
    table = made(versitygw, tmp_path, 3)
    storage = tmp_path / "storage.yaml"
    storage.write_text(json.dumps(versitygw.storage))
    running, number = [start(table, storage) for _ in range(2)], 3
    try:
        for process in running:
            wait_until_up(process)
        for _ in range(3):
            for _ in range(3):
                write_batch(table, tmp_path, number, 20_000)
                number += 1
            assert plan(table, "full") is not None
            with suppress(AssertionError):
                # Who is quick has closed the items already.
                wait_until_claimed(table, 3)
            victim = running.pop(0)
            victim.kill()
            victim.communicate()
            running.append(start(table, storage))
            wait_until_up(running[-1])
            assert set(wait_until_closed(table, 90)) == {ItemState.DONE}
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        ends = [process.communicate(timeout=60) for process in running]
    assert [p.returncode for p in running] == [0, 0], ends
    check(table, versitygw, number - 1, 20_000)
    compacted = [s for s in table.snapshots().to_pylist() if s["commit_kind"] == "COMPACT"]
    names = [(s["commit_user"], s["commit_identifier"]) for s in compacted]
    assert len(compacted) >= 3 and len(names) == len(set(names))
