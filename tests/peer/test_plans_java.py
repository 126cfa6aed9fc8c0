"""Plans beside Paimon Java: its tools pass the folder over, and what it compacts itself makes items obsolete."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.plans.plan import ItemState
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.plans.serve import Stop, compactor_of, run_here, serve_plans
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.state.store.write.write_session import WriteSession
from tests.support.peer import PaimonJava

pytestmark = pytest.mark.peer

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def plan(table: Table) -> int | None:
    session = WriteSession(table.uri, {"compaction-plan.strategy": "full"}, table=open_table(table.path))
    session.refresh()
    return make_plan(session, PlanFolder(table.io, table.path), session.plan.sink.plans).number


def work_off(table: Table) -> list[ItemState]:
    found: list[ItemState] = []
    compactors = {table.path: compactor_of(open_table(table.path), {}, run_here, lease_ms=60_000)}
    tell = lambda path, item: found.append(item.result.state)  # noqa: E731 (one line)
    serve_plans(compactors, poll_ms=1, once=True, stop=Stop(), tell=tell)
    return found


def test_paimon_reads_writes_and_compacts_beside_open_plans_and_leaves_their_files_alone(
    tmp_path: Path, paimon_java: PaimonJava
) -> None:
    options = {"bucket": "2", "write-only": "true"}
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
