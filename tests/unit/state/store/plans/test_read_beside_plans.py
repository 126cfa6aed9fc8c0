"""Readers at every moment of a plan's run: batches that commit beside it are merged before, during and after."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.engine.engine import Jobs, Outcome
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.compactor import Compactor
from bucketline.state.store.plans.item_work import BucketJob, TableWork
from bucketline.state.store.plans.make_plan import make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from tests.support.spark.engines import JobEngine
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.watched_access import through

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
FULL = {"compaction-plan.strategy": "full"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
}
Rows = dict[int, int]
CHANGING = ("publish", "write_new", "overwrite", "delete", "open_output")


@dataclass
class Batches:
    """A writer of batches, and the rows that they amount to after each."""

    table: Table
    adds: bool
    states: list[Rows] = field(default_factory=lambda: [{}])

    def write(self) -> None:
        number = len(self.states)
        ids = [*range(number % 3, 24, 3), number]
        self.table.write(pa.table({"id": ids, "v": [number] * len(ids)}, schema=COLUMNS))
        before = self.states[-1]
        own: Rows = {}
        for key in ids:
            own[key] = own.get(key, 0) + number if self.adds else number
        self.states.append(before | {k: before.get(k, 0) + v if self.adds else v for k, v in own.items()})


def rows(table: Table, *, read_optimized: bool = False) -> Rows:
    found = open_table(table.path).to_arrow(read_optimized=read_optimized)
    assert len(set(found["id"].to_pylist())) == found.num_rows
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_right_after_every_call_to_storage_of_a_plans_run(tmp_path: Path, kind: str) -> None:
    table = create_table(
        str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "2", "write-only": "true", **KINDS[kind]}
    )
    batches, hides = Batches(table, kind == "aggregation"), kind == "deletion vectors"
    seen_optimized: list[Rows] = []
    moments, changed = 0, False

    def look(call: str = "", path: str = "") -> None:
        """Comes before each call, and looks if the one before it has changed the storage."""
        nonlocal moments, changed
        was_changed, changed = changed or not call, call in CHANGING
        if not was_changed:
            return
        moments += 1
        if moments % 9 == 0:
            batches.write()
        optimized = rows(table, read_optimized=True)
        assert rows(table) == (optimized if hides else batches.states[-1]), (moments, call, path)
        if not seen_optimized or seen_optimized[-1] != optimized:
            seen_optimized.append(optimized)

    io = FaultyIO(handle_of(table).io, before_call=look)
    handle = replace(handle_of(open_table(table.path)), io=io)
    bases: list[Rows] = [{}]

    def run(work: Jobs) -> Outcome:
        return LOCAL_ENGINE.run(Jobs([through(io, job) for job in work.jobs if isinstance(job, BucketJob)]))

    batches.write()
    for _ in range(1 if hides else 2):
        batches.write()
        session = table_at(handle, FULL).refreshed()
        snapshot = session.view.snapshot
        assert snapshot is not None
        appended = open_table(table.path).snapshots().to_pylist()[: snapshot.id]
        bases.append(batches.states[sum(s["commit_kind"] == "APPEND" for s in appended)])
        folder = PlanFolder(io, table.path)
        assert len(make_plan(session, folder).plan.items) == 2
        compactor = Compactor(
            folder,
            TableWork(table_at(handle, {})),
            JobEngine(run),
            lambda renew, lease: nullcontext(),
            lease_ms=60_000,
            take=lambda open_items: 2,
        )
        while compactor.round():
            pass
        look()
    assert moments > 15 and len(batches.states) > 3, (moments, len(batches.states))
    # What is compacted is what the plans were made of: never less, never a part of a later batch.
    assert seen_optimized == bases
    assert [f for f in open_table(table.path).doctor(rows=True) if f.severity is Severity.ERROR] == []
