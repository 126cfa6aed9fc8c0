"""Compactors in a simulated world: whatever goes wrong, no inputs are committed twice and no item is lost.

`BUCKETLINE_PLAN_SEEDS` runs that many seeds of each kind instead of a few; a failing seed is in the test's name.
"""

import os
from collections import Counter
from dataclasses import dataclass

import pytest

from bucketline.state.plans.plan import InputFile, Item, ItemResult, ItemState, Plan
from bucketline.state.plans.plan_json import decode_result
from bucketline.state.store.plans.make_plan import publish_next
from bucketline.state.store.plans.plan_files import PlanFolder
from tests.support.tables.plan_world import Names, Process, SimIO, Weather, World, start_compactor

SEEDS = range(int(os.environ.get("BUCKETLINE_PLAN_SEEDS", "12")))
LONGEST_MS = 900_000

CALM = Weather()
DEATHS = Weather(kills=0.01)
SLEEPY = Weather(pauses=0.05)
BAD_STORAGE = Weather(storage_fails=0.02, answer_lost=0.05, comes_late=0.03, listing_age_ms=3000)
STORM = Weather(0.02, 0.05, 0.03, 3000, 0.03, 0.004, 0.05, 0.02)


@dataclass
class Told:
    """What a simulation came to."""

    world: World
    plans: list[Plan]

    @property
    def results(self) -> dict[tuple[str, int], ItemResult]:
        files = self.world.files.files
        return {
            (p.plan_id, i.number): decode_result(files[path], path)
            for p in self.plans
            for i in p.items
            if (path := f"t/compaction/item-{p.plan_id}-{i.number}-result") in files
        }


def simulate(seed: int, weather: Weather, *, compactors: int = 3, items: int = 8, most: int = 1) -> Told:
    """Two planners plan the same buckets in halves, then compactors work until every item is closed."""
    world = World(seed, weather)
    told = Told(world, [])
    places = [(b"", bucket) for bucket in range(items)]
    world.live = {f"f{b}-{n}" for _, b in places for n in range(3)}

    def planner(process: Process) -> None:
        folder = PlanFolder(SimIO(world, process), "t")  # type: ignore[arg-type] (what plans need of a FileIO)

        def choose(busy: object) -> Plan:
            taken = {i.place for i in busy}  # type: ignore[attr-defined]
            free = [p for p in places if p not in taken][: items // 2 or 1]
            made = tuple(
                Item(n, p[0], p[1], items, tuple(InputFile(f"f{p[1]}-{k}", 0, 10) for k in range(3)), 5)
                for n, p in enumerate(free)
            )
            return Plan(Names(world).new_uuid(), 0, 0, "minor", world.now_ms, made)

        planned = publish_next(folder, choose)
        if planned.number is not None:
            told.plans.append(planned.plan)

    calm, world.weather = weather, CALM
    for n in range(2):
        world.start(f"planner {n}", planner)
    world.run(10_000, lambda: len(told.plans) == 2)
    world.processes, world.weather = [], calm
    for n in range(compactors):
        start_compactor(world, f"compactor {n}", most=most)
    every = sum(len(p.items) for p in told.plans)
    world.run(LONGEST_MS, lambda: len(told.results) == every)
    return told


def judge(told: Told) -> None:
    """Every item is closed, by what has become of its inputs; none was committed twice."""
    world, results = told.world, told.results
    assert len(set(world.commits)) == len(world.commits)
    for plan in told.plans:
        for item in plan.items:
            key = (plan.plan_id, item.number)
            assert key in results, f"item {key} was lost: {world.now_ms} ms, {len(results)} results"
            result = results[key]
            if key in world.commits:
                # A commit that came through late may have been given up before.
                late = result.state is ItemState.FAILED and (world.weather.comes_late or world.weather.work_fails)
                assert late or (result.state is ItemState.DONE and world.commits[result.snapshot_id or 0] == key)
            elif result.state is not ItemState.FAILED:
                assert result.state is ItemState.OBSOLETE
                assert not {f.name for f in item.inputs} <= world.live


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [1, 3])
def test_in_calm_weather_each_item_is_done_once_and_by_one(seed: int, most: int) -> None:
    told = simulate(seed, CALM, most=most)
    judge(told)
    assert Counter(told.world.runs) == Counter(told.world.commits) and len(told.world.runs) == 8
    assert {r.state for r in told.results.values()} == {ItemState.DONE}
    assert len({i.place for p in told.plans for i in p.items}) == 8


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_killed_compactor_held_is_done_by_another(seed: int) -> None:
    told = simulate(seed, DEATHS)
    judge(told)
    assert {r.state for r in told.results.values()} == {ItemState.DONE}
    assert len(told.world.runs) <= 8 + told.world.kills


@pytest.mark.parametrize("seed", SEEDS)
def test_a_compactor_that_slept_longer_than_its_lease_commits_nothing_twice(seed: int) -> None:
    told = simulate(seed, SLEEPY)
    judge(told)
    assert {r.state for r in told.results.values()} == {ItemState.DONE}


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_that_are_lost_or_late_and_old_listings_lose_nothing(seed: int) -> None:
    judge(simulate(seed, BAD_STORAGE))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("most", [1, 3])
def test_all_of_it_at_once(seed: int, most: int) -> None:
    judge(simulate(seed, STORM, most=most))


def test_the_storms_are_storms() -> None:
    """Deaths, failures and double work happen, so that what was judged above means something."""
    worlds = [simulate(seed, STORM).world for seed in range(6)]
    assert sum(w.kills for w in worlds) > 3 and sum(w.failures for w in worlds) > 0
    assert sum(len(w.runs) - len(w.commits) for w in worlds) > 3
