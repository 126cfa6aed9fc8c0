"""Worlds of the first seeds; `.ci/run simulate` tries others. A failure prints its seed and a shorter script."""

import os
from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.draw import MOST_OPERATIONS, draw_script
from tests.simulation.faults import Fault, FaultKind, Store, Trouble
from tests.simulation.life import Life
from tests.simulation.rows import DAYS, DELETE, INSERT, KINDS, followed, table_of
from tests.simulation.script import Script, Step, TablePlan, Track
from tests.simulation.shorten import failure_of, shortened

SEEDS = int(os.environ.get("BUCKETLINE_SIMULATION_SEEDS", "200"))
_PARTS = 8


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(_PARTS))
def test_in_every_world_readers_see_what_was_written(part: int) -> None:
    for number in range(part, SEEDS, _PARTS):
        script = draw_script(str(number))
        failure = failure_of(script)
        if failure is not None:
            shorter = shortened(script)
            pytest.fail(f"seed {number}: {failure}\n" + "\n".join([*shorter.lines(), str(failure_of(shorter))]))


@pytest.mark.parametrize(
    "seed",
    [
        "20062",  # a late request that the catalog refuses
        "20257",  # a commit whose base is replaced after a rollback
        "20919",  # readers beside a fast-forward that was interrupted
        "21355",  # expiry, and a branch whose first snapshot has the id of the oldest one that the table keeps
        "21729",  # changelogs that expire in a table that was forwarded to a branch
        "30882",  # changes whose changelog comes with the next compaction
        "31014",  # a commit on a snapshot that was rolled back, while another commit builds on it
        "40039",  # a fast-forward beside a snapshot that an expiry has half removed
        "40110",  # a compaction under `first-row` beside a truncate
        "41101",  # a fast-forward to a branch whose snapshots are older than those of the table
        "41232",  # a late request that brings back a snapshot which was rolled back
        "862",  # a partition that is begun while the table is rescaled
        "1382",  # a fast-forward in a catalog, beside a writer whose schema it takes away
        "50156",  # a rollback that was interrupted while a writer committed
        "50455",  # a request that waits in the catalog, beside another
        "50058",  # a publication without an answer, and a stop until its snapshot and its lists have expired
        "42307",  # a late request for the id of a snapshot that has expired
        "41281",  # orphan removal beside an expiry that was stopped
        "95527",  # a writer that is stopped before it writes the hint, beside a rollback
        "97399",  # a writer in a catalog that is stopped until its snapshot has expired
        "95530",  # a branch that dies while it is taken back
        "85726",  # a batch that is stopped until its HASH index file has expired
        "92520",  # a rollback that dies when it has put back a snapshot, which a consumer then waits for
        "92595",  # changelogs that expire beside another expiry
        "85341",  # a batch that has expired when the table is rolled back to before it
    ],
)
def test_worlds_that_have_failed_once_are_right(seed: str) -> None:
    assert Life(draw_script(seed)).live().failure is None


@pytest.mark.parametrize("seed", ["1", "7", "14"])
def test_equal_seeds_give_equal_histories(seed: str) -> None:
    first, second = (Life(draw_script(seed)).live() for _ in range(2))
    assert first.digest == second.digest and first.log == second.log
    assert first.digest != Life(draw_script(f"{seed} another")).live().digest


def test_a_disk_lists_its_files_by_folder() -> None:
    life = Life(draw_script("5"))
    life.live()
    paths = sorted(life.disk.files)
    assert paths == [f.path for f in life.disk.below("/simulated")]
    for folder in {p.rpartition("/")[0] for p in paths} | {"/simulated/shop.db", "/none"}:
        inside = sorted({p[len(folder) + 1 :].partition("/")[0] for p in paths if p.startswith(f"{folder}/")})
        assert life.disk.names(folder) == inside


def test_a_row_that_moves_to_another_partition_is_followed_in_either_order() -> None:
    kind = KINDS["cross-partition"]
    old, new = (3, DAYS[1], 7, None), (3, DAYS[0], 8, None)
    moved = [(new, INSERT), (old, DELETE)]
    for changes in (moved, moved[::-1]):
        assert followed(kind, {old: 1}, table_of(changes, has_more=True)) == {new: 1}


@pytest.mark.parametrize(("kind", "settled"), [("fixed", {7}), ("first row", set()), ("partial update", set())])
def test_a_later_write_settles_a_key_of_two_writers_only_where_its_row_replaces_theirs(
    kind: str, settled: set[int]
) -> None:
    """Seed 357: the first of two rows was open, and a third row changed nothing."""
    assert KINDS[kind].still_open(frozenset({1, 7}), {7}, {8}) == {1, 7} - settled
    assert KINDS[kind].still_open(frozenset({1}), {7, 8}, {8}) == {1, 8}


def test_a_world_has_few_operations() -> None:
    assert max(len(draw_script(str(n)).steps) for n in range(100)) <= MOST_OPERATIONS


def test_what_shows_a_mistake_is_made_shorter() -> None:
    script = draw_script("3")
    wanted = {s.number for s in script.steps[::7]}

    short = shortened(script, failing=lambda s: wanted <= {step.number for step in s.steps})

    assert {s.number for s in short.steps} == wanted
    assert all(s.faults == () for s in short.steps)


def test_a_fault_with_a_mark_strikes_at_its_distance_from_that_mark() -> None:
    lost, death = Fault(FaultKind.AFTER, 0, mark=1), Fault(FaultKind.KILL, 1, mark=2)
    trouble = Trouble()
    trouble.begin(None, (lost, death))
    calls = (
        ("publish", "/t/schema/schema-1"),
        ("read", "/t/snapshot/snapshot-1"),
        ("publish", "/t/snapshot/snapshot-2"),
        ("read", "/t/snapshot/snapshot-2"),
        ("read", "/t/snapshot/snapshot-2"),
    )
    assert [trouble.call(*call) for call in calls] == [(lost,), (), (), (death,), ()]


def test_readers_see_the_target_of_a_rollback_that_was_interrupted() -> None:
    def steps(first: int, *names: str) -> tuple[Step, ...]:
        return tuple(Step(first + n, "t0", name, n, 500) for n, name in enumerate(names))

    cut = Fault(FaultKind.CUT, 1, 130_000, mark=1)
    undone = [replace(s, gap_ms=20_000, faults=(cut,)) for s in steps(10, "roll back")]
    late = [replace(s, gap_ms=40_000) for s in steps(20, "read")]
    tracks = (
        Track("writer", steps(0, "write", "write", "write")),
        Track("undoing", tuple(undone)),
        Track("reader", tuple(late)),
    )
    ends = Counter[tuple[str, str]]()
    for seed in range(3):
        history = Life(Script(f"interrupted {seed}", Store.POSIX, (TablePlan("t0", "fixed"),), tracks)).live()
        assert history.failure is None, history.failure
        ends += history.outcomes
    assert ends["roll back", "STORAGE"] >= 2
    assert ends["read", "done"] == 3
