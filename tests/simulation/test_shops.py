"""Worlds of jobs of several tables, of a few seeds; `.ci/run simulate` tries others."""

import os

import pytest

from tests.simulation.shops import Change, changed, shop_world

_SEEDS = int(os.environ.get("BUCKETLINE_SIMULATION_SHOPS", "2"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(_SEEDS))
def test_tables_of_a_job_hold_each_batch_once_whatever_is_done_to_them(seed: int) -> None:
    history = shop_world(str(seed))
    assert history.failure is None, "\n".join([f"seed {seed}: {history.failure}", *history.log])
    assert history.operations["batch"] >= 8


def test_the_rows_after_changes_are_those_of_the_last_change_of_each_key() -> None:
    one, other = {"id": 1, "n": 1}, {"id": 1, "n": 2}
    changes: list[Change] = [("c", one), ("d", one), ("c", other), ("c", {"id": 2}), ("d", {"id": 2})]
    assert changed({3: {"id": 3}}, changes) == {1: other, 3: {"id": 3}}
