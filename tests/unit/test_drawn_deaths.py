"""The deaths that `.ci/run kills-long` draws."""

import random

import pytest

from tests.support.models.drawn_deaths import FIRST_BATCH, LAST_BATCH, Victim, drawn_deaths


@pytest.mark.parametrize("count", [1, 6, 13, 41])
def test_deaths_come_in_the_order_of_their_batches_and_take_each_victim_as_often_as_the_others(count: int) -> None:
    for seed in range(20):
        found = drawn_deaths(random.Random(seed), count)
        batches = [death.batch_id for death in found]
        assert len(found) == count and batches == sorted(set(batches))
        assert batches[0] >= FIRST_BATCH and batches[-1] <= LAST_BATCH
        assert all(0 <= death.share < 1 for death in found)
        times = [sum(death.victim is victim for death in found) for victim in Victim]
        assert max(times) - min(times) <= 1


def test_a_seed_draws_the_same_deaths_again_and_another_seed_others() -> None:
    assert drawn_deaths(random.Random(3), 10) == drawn_deaths(random.Random(3), 10)
    assert drawn_deaths(random.Random(3), 10) != drawn_deaths(random.Random(4), 10)
