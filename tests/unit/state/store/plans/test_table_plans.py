"""Plans on real tables: what is planned is done, by whoever comes, and readers see the same rows all the time."""

import os
import pickle
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import StorageError
from bucketline.state.plans.lease import Lease
from bucketline.state.plans.plan import ItemState, Plan
from bucketline.state.store.engine.engine import Jobs, Outcome
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from bucketline.state.store.plans.compactor import Compactor, Finished
from bucketline.state.store.plans.item_work import BucketJob, TableWork
from bucketline.state.store.plans.make_plan import KEPT_PLANS, MadePlan, make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.table_at import table_at
from tests.support.spark.engines import JobEngine
from tests.support.storage.faulty_io import FaultyIO
from tests.support.tables.compactors import compactor_of

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
FULL = {"compaction-plan.strategy": "full"}


def rows(number: int) -> pa.Table:
    ids = list(range(number % 3, 40, 2))
    return pa.table({"id": ids, "v": [number] * len(ids), "pt": [i % 2 for i in ids]}).cast(COLUMNS)


def made(path: Path, options: Mapping[str, str] | None = None, *, keyed: bool = True, batches: int = 6) -> Table:
    table = create_table(
        str(path / "shop.db" / "t"),
        COLUMNS,
        ("id", "pt") if keyed else (),
        ("pt",),
        options={"write-only": "true", **({"bucket": "2"} if keyed else {}), **(options or {})},
    )
    for number in range(batches):
        table.write(rows(number))
    return open_table(table.path)


def plan(table: Table, options: Mapping[str, str] = FULL) -> MadePlan:
    session = table_at(handle_of(table), options).refreshed()
    return make_plan(session, PlanFolder(handle_of(table).io, table.path))


class Worker:
    """A compactor in this process."""

    def __init__(self, table: Table, *, lease_ms: int = 60_000, at_once: int = 1) -> None:
        self.work = TableWork(table_at(handle_of(table), {}))
        self.folder = PlanFolder(handle_of(table).io, table.path)
        self.before_commit = lambda: None
        self.compactor = Compactor(
            self.folder,
            self.work,
            JobEngine(self.run),
            lambda renew, lease: nullcontext(),
            lease_ms=lease_ms,
            take=lambda open_items: at_once,
        )

    def run(self, work: Jobs) -> Outcome:
        made = LOCAL_ENGINE.run(work)
        self.before_commit()
        return made

    def all(self) -> list[Finished]:
        found: list[Finished] = []
        while more := self.compactor.round():
            found += more
        return found


def content(table: Table) -> list[dict[str, object]]:
    return sorted(open_table(table.path).to_arrow().to_pylist(), key=lambda r: [str(v) for v in r.values()])


def states(folder: PlanFolder, found: Plan) -> list[ItemState]:
    results = [folder.result(found, i.number) for i in found.items]
    return [ItemState.REQUESTED if r is None else r.state for r in results]


KINDS: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row"},
    "changelog by lookup": {"changelog-producer": "lookup"},
    "changelog by full compaction": {"changelog-producer": "full-compaction"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "7"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_is_done_item_by_item_each_a_commit_under_the_plans_name(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path, KINDS[kind])
    expected = open_table(made(tmp_path / "other", KINDS[kind]).path)
    expected.compact()
    planned = plan(table)
    assert planned.number == 1 and len(planned.plan.items) > 3
    done = Worker(table).all()
    assert [f.result is not None and f.result.state for f in done] == [ItemState.DONE] * len(planned.plan.items)
    assert content(table) == content(expected)
    compacted = [s for s in table.snapshots().to_pylist() if s["commit_kind"] == "COMPACT"]
    assert {s["commit_user"] for s in compacted} == {planned.plan.user}
    assert sorted(s["commit_identifier"] for s in compacted) == list(range(len(planned.plan.items)))
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {5}
    assert open_table(table.path).doctor() == []
    assert plan(table).plan.items == ()


def test_an_append_tables_small_files_are_packed(tmp_path: Path) -> None:
    table = made(tmp_path, {"bucket": "-1"}, keyed=False)
    before = content(table)
    planned = plan(table)
    assert [len(i.inputs) for i in planned.plan.items] == [4, 2]
    assert [f.result is not None and f.result.state for f in Worker(table).all()] == [ItemState.DONE] * 2
    assert len(open_table(table.path).files()) == 2 and content(table) == before


def test_batches_that_come_while_a_plan_waits_stay_on_level_0(tmp_path: Path) -> None:
    table = made(tmp_path)
    planned = plan(table)
    table.write(rows(7))
    before = content(table)
    Worker(table).all()
    assert content(table) == before
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {0, 5}
    assert len(planned.plan.items) == 4


def test_a_bucket_has_one_open_item_whoever_plans(tmp_path: Path) -> None:
    table = made(tmp_path)
    first = plan(table, {**FULL, "compaction-plan.max-bytes": "1 b"})
    second, third = plan(table), plan(table)
    assert [len(p.plan.items) for p in (first, second, third)] == [1, 3, 0]
    assert (first.number, second.number, third.number) == (1, 2, None)
    places = [i.place for p in (first, second) for i in p.plan.items]
    assert len(set(places)) == 4
    assert len(Worker(table).all()) == 4


def test_what_is_done_by_a_slow_compactor_too_is_done_once(tmp_path: Path) -> None:
    """The lease of the first ends while it works; another finishes the item before the first commits."""
    table = made(tmp_path)
    plan(table, {**FULL, "compaction-plan.max-bytes": "1 b"})
    slow, quick = Worker(table, lease_ms=0), Worker(table)
    others: list[Finished] = []

    def overtake() -> None:
        quick.all()
        others.extend(quick.all() or quick.compactor.round())

    slow.before_commit = overtake
    [late] = slow.compactor.round()
    files = {p.name for p in Path(table.path).rglob("bucket-*/*.parquet")}
    assert late.result is not None and late.result.state is ItemState.DONE
    assert [s["commit_kind"] for s in table.snapshots().to_pylist()].count("COMPACT") == 1
    live = {f["file_path"].rpartition("/")[2] for f in open_table(table.path).files().to_pylist()}
    inputs = {f.name for f in (slow.folder.plan(1) or pytest.fail()).items[0].inputs}
    assert live | inputs <= files and open_table(table.path).doctor() == []


@pytest.mark.parametrize("change", ["overwritten", "compacted", "rescaled"])
def test_an_item_whose_inputs_are_gone_becomes_obsolete_without_noise(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path)
    planned = plan(table)
    if change == "overwritten":
        table.overwrite(pa.concat_tables([rows(0), rows(1)]))
    elif change == "compacted":
        table.compact()
    else:
        table.rescale(3)
    before = content(table)
    caplog.clear()
    worker = Worker(table)
    assert {f.result is not None and f.result.state for f in worker.all()} == {ItemState.OBSOLETE}
    assert states(worker.folder, planned.plan) == [ItemState.OBSOLETE] * 4
    assert content(table) == before and not [r for r in caplog.records if r.levelname == "WARNING"]


def test_a_commit_whose_record_was_lost_is_found_in_the_table(tmp_path: Path) -> None:
    table = made(tmp_path)
    planned = plan(table)
    worker = Worker(table)
    worker.all()
    for path in Path(table.path, "compaction").glob("item-*"):
        path.unlink()
    again = Worker(table)
    found = [f.result for f in again.all()]
    assert [r is not None and (r.state, r.snapshot_id is not None) for r in found] == [(ItemState.DONE, True)] * 4
    for path in Path(table.path, "compaction").glob("item-*"):
        path.unlink()
    table.expire_snapshots(retain_min=1, retain_max=1)
    table.write(rows(3))
    table.expire_snapshots(retain_min=1, retain_max=1)
    assert {f.result is not None and f.result.state for f in Worker(table).all()} == {ItemState.OBSOLETE}
    assert states(again.folder, planned.plan) == [ItemState.OBSOLETE] * 4


def test_items_of_a_round_are_one_commit_that_is_found_again_for_each(tmp_path: Path) -> None:
    table = made(tmp_path)
    planned = plan(table)
    assert len(Worker(table, at_once=9).all()) == 4
    compacted = [s for s in table.snapshots().to_pylist() if s["commit_kind"] == "COMPACT"]
    assert len(compacted) == 1 and compacted[0]["commit_user"] == planned.plan.user
    for path in Path(table.path, "compaction").glob("item-*"):
        path.unlink()
    found = [f.result for f in Worker(table).all()]
    assert [r is not None and (r.state, r.snapshot_id) for r in found] == [
        (ItemState.DONE, compacted[0]["snapshot_id"])
    ] * 4
    assert open_table(table.path).doctor() == []


def test_one_item_that_loses_does_not_make_the_others_of_its_commit_fail(tmp_path: Path) -> None:
    table = made(tmp_path)
    planned = plan(table)
    slow = Worker(table, at_once=9)

    def compact_a_partition() -> None:
        slow.before_commit = lambda: None
        open_table(table.path).compact(partitions=[{"pt": 0}])

    slow.before_commit = compact_a_partition
    found = slow.all()
    assert [f.result for f in found[:4]].count(None) == 2 and len(found) == 6
    assert (
        sorted(states(slow.folder, planned.plan), key=lambda s: s.value)
        == [ItemState.DONE] * 2 + [ItemState.OBSOLETE] * 2
    )
    assert {f["level"] for f in open_table(table.path).files().to_pylist()} == {5}
    assert open_table(table.path).doctor() == []


def test_an_item_that_fails_three_times_is_given_up_and_planned_again(tmp_path: Path) -> None:
    table = made(tmp_path)
    planned = plan(table, {**FULL, "compaction-plan.max-bytes": "1 b"})
    worker = Worker(table)

    def fail() -> None:
        raise OSError("the disk is full")

    worker.before_commit = fail
    found = [f for _ in range(4) for f in worker.compactor.round()]
    *tried, given_up = found
    assert [(f.result, f.reason) for f in tried] == [(None, "OSError('the disk is full')")] * 3
    assert given_up.result is not None and "the disk is full" in (given_up.reason or "") and given_up.failures == 3
    assert states(worker.folder, planned.plan) == [ItemState.FAILED]
    again = plan(table, {**FULL, "compaction-plan.max-bytes": "1 b"})
    assert again.number == 2 and again.plan.items[0].inputs == planned.plan.items[0].inputs


def test_what_is_interrupted_is_given_back_at_once(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan(table)
    stopped, other = Worker(table), Worker(table)

    def stop() -> None:
        raise KeyboardInterrupt

    stopped.before_commit = stop
    with pytest.raises(KeyboardInterrupt):
        stopped.compactor.round()
    assert len(other.all()) == 4


def test_a_compactor_that_runs_on_does_the_plans_of_a_table_that_was_dropped_and_made_anew(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan(table)
    running = Worker(table)
    assert running.compactor.round()[0].result is not None
    shutil.rmtree(table.path)
    again = made(tmp_path, batches=2)
    planned = plan(again)
    assert planned.number == 1
    listing = running.folder.list()
    assert running.folder.plan(1, listing) == planned.plan
    assert len(Worker(again).all()) == len(planned.plan.items)


def test_old_plans_are_cleaned_up_and_the_newest_stay(tmp_path: Path) -> None:
    table = made(tmp_path, batches=1)
    numbers = []
    for number in range(KEPT_PLANS + 3):
        table.write(rows(number))
        numbers.append(plan(table, {**FULL, "compaction-plan.max-bytes": "1 b"}).number)
        Worker(table).all()
    assert numbers == list(range(1, KEPT_PLANS + 4))
    kept = {p.name for p in Path(table.path, "compaction").iterdir()}
    assert {int(n.partition("-")[2]) for n in kept if n.startswith("plan-")} == set(range(3, KEPT_PLANS + 4))
    folder = PlanFolder(handle_of(table).io, table.path)
    assert {n[5:41] for n in kept if n.startswith("item-")} == {p.plan_id for p in folder.plans(folder.list()).values()}


def test_orphan_removal_and_doctor_know_the_folder(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan(table)
    Worker(table).all()
    folder = Path(table.path, "compaction")
    (folder / ".plan-9.0a1b2c3d-0000-0000-0000-000000000000.tmp").write_text("{")
    stray = folder / "item-0a1b2c3d-0000-0000-0000-000000000000-0-beat-1"
    stray.write_text("1")
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    found = remove_orphan_files(handle_of(open_table(table.path)), dry_run=False)
    names = {f.path.rpartition("/")[2] for f in found.files if "/compaction/" in f.path}
    assert names == {".plan-9.0a1b2c3d-0000-0000-0000-000000000000.tmp", stray.name}
    assert open_table(table.path).doctor() == [] and not stray.exists()
    (folder / "plan-2").write_text("{")
    [finding] = open_table(table.path).doctor()
    assert finding.rule == "compaction-plan" and "plan-2" in finding.message
    Worker(table).all()


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"compaction-plan\.strategy"):
        plan(made(tmp_path), {"compaction-plan.strategy": "random"})


def test_a_job_travels(tmp_path: Path) -> None:
    table = made(tmp_path)
    planned = plan(table)
    work = TableWork(table_at(handle_of(table), {}))
    work.refresh()
    job = work.look(planned.plan, planned.plan.items[0])
    assert isinstance(job, BucketJob)
    assert pickle.loads(pickle.dumps(job)).unit == job.unit and Lease("a", 1).period_ms == 1


def all_files(table: Table) -> set[str]:
    return {str(path) for path in Path(table.path).rglob("*") if path.is_file()}


def test_items_done_before_one_fails_leave_neither_data_files_nor_index_files_behind(tmp_path: Path) -> None:
    table = made(tmp_path, {"deletion-vectors.enabled": "true"}, batches=0)
    ids = list(range(20_000))
    table.write(pa.table({"id": ids, "v": ids, "pt": [i % 2 for i in ids]}).cast(COLUMNS))
    table.compact()
    # The small files do not merge with the large ones, but mark older rows in them as deleted.
    table.write(rows(0))
    table.compact("minor")
    found, work = plan(table).plan, Worker(table).work
    work.refresh()
    jobs = [work.look(found, item) for item in found.items]
    first, last = jobs[0], jobs[-1]
    assert len(jobs) > 1 and isinstance(first, BucketJob) and isinstance(last, BucketJob)
    (done,) = LOCAL_ENGINE.run(Jobs([first])).messages
    assert done.compact_index_files and done.compact_after
    bucket = BucketFiles(*last.place, total_buckets=0, files=())
    os.remove(last.access.files.place(bucket, last.unit.files[0])[1])
    before = all_files(table)
    with pytest.raises(StorageError):
        LOCAL_ENGINE.run(Jobs([first, last]))
    assert all_files(table) == before


def test_a_branch_has_plans_of_its_own_and_its_table_is_not_touched(tmp_path: Path) -> None:
    table = made(tmp_path, batches=3)
    table.create_tag("fork")
    table.create_branch("b", "fork")
    of_branch = {"branch": "b"}
    branch = open_table(table.path, options=of_branch)
    for number in range(3, 6):
        branch.write(rows(number))
    branch = open_table(table.path, options=of_branch)
    before, of_table, files = branch.to_arrow().num_rows, content(table), table.files()
    session = table_at(handle_of(branch), FULL).refreshed()
    folder = PlanFolder(handle_of(branch).io, handle_of(branch).metadata_path)
    planned = make_plan(session, folder)
    assert planned.number == 1 and not Path(table.path, "compaction").exists()
    assert Path(table.path, "branch", "branch-b", "compaction", "plan-1").is_file()
    # The table's own plan takes the same files, and neither is in the way of the other.
    assert plan(table).number == 1
    compactor = compactor_of(handle_of(branch), {}, LOCAL_ENGINE, lease_ms=60_000, take=lambda open_items: 9)
    assert {f.result.state for f in compactor.round() if f.result} == {ItemState.DONE}
    found = open_table(table.path, options=of_branch)
    assert {f["level"] for f in found.files().to_pylist()} == {5} and found.to_arrow().num_rows == before
    assert found.snapshots()["commit_kind"].to_pylist()[-1] == "COMPACT"
    assert content(table) == of_table and open_table(table.path).files() == files
    assert remove_orphan_files(handle_of(open_table(table.path)), older_than_ms=0).files == ()
    Worker(table).all()
    assert content(table) == of_table and open_table(table.path).doctor() == [] and found.doctor() == []
    # What belongs to no plan any more is found as everywhere.
    folder.remove(1, planned.plan, folder.list())
    left = Path(folder.directory, f"item-{planned.plan.plan_id}-0-result")
    left.write_text("{}")
    os.utime(left, (1, 1))
    assert [f.path for f in remove_orphan_files(handle_of(open_table(table.path)), older_than_ms=0).files] == [
        str(left)
    ]


def test_an_item_that_is_done_while_another_plan_is_made_is_not_planned_again(tmp_path: Path) -> None:
    """Its result comes after its snapshot, so that who sees the result has to look at snapshots after that."""
    table = made(tmp_path)
    first = plan(table)
    assert first.number == 1

    def finish(call: str, path: str) -> None:
        if call.startswith("list") and path.endswith("/compaction"):
            io.before_call = None
            assert {f.result and f.result.state for f in Worker(table).all()} == {ItemState.DONE}

    io = FaultyIO(handle_of(table).io, before_call=finish)
    session = table_at(handle_of(table), FULL).refreshed()
    second = make_plan(session, PlanFolder(io, table.path))
    assert io.before_call is None and second.plan.items == () and second.number is None
