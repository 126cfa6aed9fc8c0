"""Plans of postpone tables: an item moves what waits in a partition to its real buckets, as a compaction does."""

import pickle
import random
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.determinism import World
from bucketline.state.plans.plan import ItemState
from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.engine.engine import GivenBack, Jobs, Outcome, Parts
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.plans.compactor import Compactor, Finished
from bucketline.state.store.plans.item_work import ITEMS, GivenBackWatch, MoveJob, TableWork
from bucketline.state.store.plans.make_plan import MadePlan, make_plan
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import Workers
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.spark.tasks import Cluster, killed_at
from tests.support.tables.compactors import compactor_of

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("v", pa.int64())]
)
FULL = {"compaction-plan.strategy": "full"}


def made(path: Path, options: Mapping[str, str] | None = None) -> Table:
    waiting = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "2"}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("day", "id"), ("day",), {**waiting, **(options or {})})


def write(table: Table, number: int, *, deletes: bool = True) -> None:
    """A batch of changes of two partitions; every fifth one is a delete."""
    draw = random.Random(number)
    ids = [draw.randrange(40) for _ in range(60)]
    kinds = [3 if deletes and draw.random() < 0.2 else 0 for _ in ids]
    rows = {"id": ids, "day": [f"d{i % 2}" for i in ids], "v": [100 * number + n for n in range(60)]}
    open_table(table.path).write(pa.table(rows, schema=COLUMNS), pa.array(kinds, pa.int8()))


def plan(table: Table, options: Mapping[str, str] | None = None) -> MadePlan:
    session = table_at(handle_of(open_table(table.path)), options or {}).refreshed()
    return make_plan(session, PlanFolder(handle_of(table).io, table.path))


@dataclass
class Engine:
    """This process; `before` is called once the work is planned, `after` between the work and its commit."""

    after: Callable[[], object] = lambda: None
    before: Callable[[], object] = lambda: None

    @property
    def workers(self) -> Workers:
        return Workers(3, 8)

    def run(self, work: Stages[Parts] | Jobs) -> Outcome:
        self.before()
        done = LOCAL_ENGINE.run(work)
        self.after()
        return done


def worker(
    table: Table,
    after: Callable[[], object] = lambda: None,
    *,
    before: Callable[[], object] = lambda: None,
    lease_ms: int = 60_000,
) -> Compactor:
    return compactor_of(
        handle_of(open_table(table.path)), {}, Engine(after, before), lease_ms=lease_ms, take=lambda open_items: 9
    )


def work_off(table: Table) -> list[Finished]:
    found: list[Finished] = []
    compactor = worker(table)
    while more := compactor.round():
        found += more
    return found


def states(found: list[Finished]) -> list[ItemState | None]:
    return [None if f.result is None else f.result.state for f in found]


def content(table: Table) -> dict[tuple[str, int], int]:
    return {(r["day"], r["id"]): r["v"] for r in open_table(table.path).to_arrow().to_pylist()}


def live(table: Table) -> set[tuple[int, int]]:
    """Bucket and level of each live file."""
    newest = handle_of(table).snapshot_store.latest()
    return (
        set() if newest is None else {(e.bucket, e.file.level) for e in handle_of(table).manifests.live_entries(newest)}
    )


KINDS: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "first-row": {"merge-engine": "first-row"},
    "changelog by lookup": {"changelog-producer": "lookup"},
    "changelog by full compaction": {"changelog-producer": "full-compaction"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_items_move_what_a_compaction_by_hand_moves(tmp_path: Path, kind: str) -> None:
    """Twice: into new buckets, and into those that are there; with minor compactions, and with full ones."""
    table, by_hand = (made(tmp_path / name, KINDS[kind]) for name in ("plans", "by hand"))
    for strategy, first in (("minor", 0), ("full", 3)):
        for number in range(first, first + 3):
            for one in (table, by_hand):
                write(one, number, deletes=kind != "first-row")
        open_table(by_hand.path).compact(strategy)
        planned = plan(table, {"compaction-plan.strategy": strategy})
        assert [(i.bucket, len(i.inputs), i.total_buckets) for i in planned.plan.items] == [(-2, 3, first and 2)] * 2
        assert states(work_off(table)) == [ItemState.DONE] * 2
        assert content(table) == content(by_hand) and live(table) == live(by_hand)
        changes = [open_table(t.path).to_arrow(changes_since=0).sort_by("id") for t in (table, by_hand)]
        assert changes[0].num_rows == changes[1].num_rows
    newest = table.snapshots().to_pylist()[-1]
    assert (newest["commit_kind"], newest["commit_user"]) == ("COMPACT", planned.plan.user)
    assert open_table(table.path).doctor(rows=True) == [] and plan(table).plan.items == ()


def test_rows_that_come_later_wait_for_another_item(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, 0)
    planned = plan(table)
    assert plan(table).plan.items == ()
    write(table, 1)
    before = content(table)
    assert before == {} and states(work_off(table)) == [ItemState.DONE] * len(planned.plan.items)
    moved = content(table)
    assert moved and all(v < 100 for v in moved.values())
    again = plan(table)
    assert {i.bucket for i in again.plan.items} == {-2} and states(work_off(table)) == [ItemState.DONE] * 2
    other = made(tmp_path / "other")
    for number in (0, 1):
        write(other, number)
    other.compact("minor")
    assert content(table) == content(other)


def test_while_rows_wait_their_partition_has_one_item_and_its_buckets_come_next(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, 0)
    plan(table)
    assert states(work_off(table)) == [ItemState.DONE] * 2
    open_table(table.path).write(pa.table({"id": [1], "day": ["d1"], "v": [5]}, schema=COLUMNS))
    found = plan(table, FULL).plan.items
    assert sorted((i.bucket, i.output_level) for i in found) == [(-2, 5), (0, 5), (1, 5)]
    assert len({i.partition for i in found if i.bucket >= 0}) == 1
    # Rows wait in the other partition too: its buckets have items.
    write(table, 3)
    assert plan(table, FULL).plan.items == ()
    assert states(work_off(table)) == [ItemState.DONE] * 3
    assert live(table) == {(-2, 0), (0, 5), (1, 5)} and open_table(table.path).doctor() == []


@pytest.mark.parametrize("change", ["compacted", "truncated", "rescaled"])
def test_items_whose_rows_are_gone_are_obsolete_without_noise(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path)
    write(table, 0)
    table.compact()
    write(table, 1)
    plan(table)
    if change == "compacted":
        open_table(table.path).compact()
    elif change == "truncated":
        open_table(table.path).truncate()
    else:
        open_table(table.path).rescale(3)
    before = content(table)
    caplog.clear()
    assert states(work_off(table)) == [ItemState.OBSOLETE] * 2
    assert content(table) == before and not [r for r in caplog.records if r.levelname == "WARNING"]
    assert len(plan(table).plan.items) == (2 if change == "rescaled" else 0)


def test_rows_are_moved_once_whoever_is_late(tmp_path: Path) -> None:
    """The lease of the first ends while it works; another moves the rows, or a compaction by hand does."""
    table = made(tmp_path, {"changelog-producer": "lookup"})
    write(table, 0)
    plan(table)

    others: list[Finished] = []

    def overtake() -> None:
        quick = worker(table)
        while len(others) < 2:
            others.extend(quick.round())

    late = worker(table, overtake, lease_ms=0).round()
    assert states(late) == states(others) == [ItemState.DONE] * 2
    snapshots = handle_of(table).snapshot_store.newest_first(handle_of(table).snapshot_store.latest_id() or 0)
    committed = [n for s in snapshots for n in s.properties.get(ITEMS, "").split(",") if n]
    assert sorted(committed) == ["0", "1"]
    write(table, 1)
    plan(table)
    lost = worker(table, lambda: open_table(table.path).compact())
    assert states(lost.round()) == [ItemState.OBSOLETE] * 2
    other = made(tmp_path / "other")
    for number in (0, 1):
        write(other, number)
        other.compact("minor")
    assert content(table) == content(other) and open_table(table.path).doctor(rows=True) == []
    assert open_table(table.path).remove_orphan_files(older_than=timedelta(0), no_writers=True).files == ()


def expire(table: Table) -> None:
    """Keeps the newest snapshot alone, and its files."""
    found = open_table(table.path)
    found.expire_snapshots(retain_min=1, retain_max=1)
    assert found.snapshots().num_rows == 1


def test_expiry_keeps_what_an_open_item_needs_and_the_snapshots_of_its_plan_may_go(tmp_path: Path) -> None:
    """Snapshots end before the item is claimed, while it is worked on, and between its commit and its record."""
    table, other = made(tmp_path, {"changelog-producer": "lookup"}), made(tmp_path / "other")
    write(table, 0)
    plan(table)
    write(table, 1)
    expire(table)
    during = worker(table, lambda: (write(table, 2), expire(table)))
    assert states(during.round()) == [ItemState.DONE] * 2
    write(other, 0)
    other.compact("minor")
    assert content(table) == content(other)
    for path in Path(table.path, "compaction").glob("item-*"):
        path.unlink()
    write(table, 3)
    expire(table)
    # Nobody can find the commit any more. The inputs are gone.
    assert states(work_off(table)) == [ItemState.OBSOLETE] * 2
    plan(table)
    assert states(work_off(table)) == [ItemState.DONE] * 2
    for number in (1, 2, 3):
        write(other, number)
    other.compact("minor")
    assert content(table) == content(other) and open_table(table.path).doctor(rows=True) == []


@pytest.mark.parametrize("bucket", ["-2", "1"])
def test_items_whose_files_expire_while_they_are_read_are_obsolete_without_noise(
    tmp_path: Path, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody else has compacted them meanwhile, and the snapshots before that have expired."""
    table = made(tmp_path, {"bucket": bucket, "write-only": "true"})
    for number in range(2):
        write(table, number)
    assert len(plan(table, FULL).plan.items) == 2

    def compact_and_expire() -> None:
        if open_table(table.path).compact() is not None:
            expire(table)

    caplog.clear()
    assert states(worker(table, before=compact_and_expire).round()) == [ItemState.OBSOLETE] * 2
    assert [r for r in caplog.records if r.levelname == "WARNING"] == []
    assert plan(table, FULL).plan.items == () and open_table(table.path).doctor(rows=True) == []


def test_what_was_interrupted_leaves_nothing_and_another_moves_the_rows(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, 0)
    plan(table)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker(table, stop).round()
    assert states(work_off(table)) == [ItemState.DONE] * 2
    for path in Path(table.path, "compaction").glob("item-*"):
        path.unlink()
    # Their records are lost, their commit is not.
    assert states(work_off(table)) == [ItemState.DONE] * 2
    assert [s["commit_kind"] for s in table.snapshots().to_pylist()].count("COMPACT") == 1


def test_rows_are_moved_once_wherever_a_compactor_dies(tmp_path: Path) -> None:
    """It dies at a call to storage, or half way through a write; another one finishes what it had claimed."""
    table = made(tmp_path, {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"})
    write(table, 0)
    table.compact()
    write(table, 1)
    plan(table)

    def run(path: str) -> list[Finished]:
        found: list[Finished] = []
        session = table_at(handle_of(open_table(path)), {})
        folder = PlanFolder(session.table.io, path)
        working = Compactor(folder, TableWork(session), Engine(), lambda renew, lease: nullcontext(), lease_ms=1)
        while len(found) < 2 and not all(
            folder.result(p, i.number) for p in folder.plans(folder.list()).values() for i in p.items
        ):
            found += [f for f in working.round() if f.result is not None]
        return found

    alive = str(shutil.copytree(table.path, tmp_path / "alive" / "t"))
    with killed_at(None) as death:
        assert states(run(alive)) == [ItemState.DONE] * 2
    expected = content(open_table(alive))
    draw = random.Random(11)
    assert len(expected) > 20 and death.calls > 60
    for at in sorted(draw.sample(range(1, death.calls), 6)):
        path = str(shutil.copytree(table.path, tmp_path / str(at) / "t"))
        with killed_at(at, draw.choice(("before", "after", "torn"))) as died:
            run(path)
        assert died.is_dead
        run(path)
        found = open_table(path)
        assert content(found) == expected, at
        assert [s["commit_kind"] for s in found.snapshots().to_pylist()][3:] == ["COMPACT"] * 2, at
        assert [f for f in found.doctor(rows=True) if f.severity is Severity.ERROR] == [], at


def moving(table: Table, given_back: Path) -> MoveJob:
    work = TableWork(table_at(handle_of(open_table(table.path)), {}))
    work.refresh()
    found = plan(table)
    job = work.look(found.plan, found.plan.items[0], str(given_back))
    assert isinstance(job, MoveJob)
    return job


@dataclass
class Ticks:
    """Two seconds pass between any two looks."""

    now_ms: int = 0

    def elapsed_ms(self) -> int:
        self.now_ms += 2000
        return self.now_ms


def test_an_item_that_is_given_back_ends_in_its_tasks_and_leaves_no_file(tmp_path: Path) -> None:
    table = made(tmp_path)
    write(table, 0)
    release = Path(table.path, "compaction", "release")
    job = moving(table, release)
    watch = job.stages.write.write.watch
    assert isinstance(watch, GivenBackWatch)
    watch.access = replace(watch.access, world=World(stopwatch=Ticks()))
    travelled = pickle.loads(pickle.dumps(job))
    before = {str(p) for p in Path(table.path).rglob("*")}
    release.write_text("{}")
    with pytest.raises(GivenBack):
        LOCAL_ENGINE.run(travelled.stages)
    assert {str(p) for p in Path(table.path).rglob("*") if p.is_file()} - before == {str(release)}
    release.unlink()
    assert LOCAL_ENGINE.run(travelled.stages).messages


def test_tasks_share_an_item_and_a_new_partition_gets_a_bucket_for_each(tmp_path: Path) -> None:
    table = made(tmp_path)
    table = open_table(table.path)
    cluster = Cluster(random.Random(2), 3, unrest=0.3)
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = create_table(str(tmp_path / "other.db" / "t"), COLUMNS, ("day", "id"), ("day",), options)
    for number in range(2):
        write(table, number)
    plan(table)
    compactor = compactor_of(handle_of(open_table(table.path)), {}, SparkEngine(cluster), lease_ms=60_000)
    found = [*compactor.round(), *compactor.round()]
    assert states(found) == [ItemState.DONE] * 2
    other = made(tmp_path / "there")
    for number in range(2):
        write(other, number)
    other.compact()
    assert content(table) == content(other) and open_table(table.path).doctor(rows=True) == []
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and {e.total_buckets for e in handle_of(table).manifests.live_entries(newest)} == {3}
