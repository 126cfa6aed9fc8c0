"""How often a lost change is planned again, and how long it waits before."""

import pytest

from bucketline.state.commit.conflict import ALREADY_ADDED
from bucketline.state.determinism import World
from bucketline.state.errors import CommitConflictError
from bucketline.state.store.commit.repeat import CHANGED_TIMES, repeat_if_changed


class Waits(list[int]):
    """A pause that remembers, and a chance that is always the same."""

    def wait_ms(self, duration_ms: int) -> None:
        self.append(duration_ms)

    def fraction(self) -> float:
        return 0.5


def lost(times: int, rule: str = "rows-changed") -> tuple[list[int], Waits]:
    tries, waits = list[int](), Waits()

    def work() -> int:
        tries.append(len(tries))
        if len(tries) <= times:
            raise CommitConflictError("somebody was faster", rule=rule)
        return 7

    assert repeat_if_changed(work, World(pause=waits, random=waits)) == (7, times)
    return tries, waits


def test_pauses_double_and_the_result_counts_the_plans() -> None:
    assert lost(0) == ([0], [])
    tries, waits = lost(CHANGED_TIMES - 1)
    assert len(tries) == CHANGED_TIMES
    assert waits == [25, 50, 100, 200, 400]


def test_it_is_given_up_at_last_and_at_once_when_it_may_be_in_the_table() -> None:
    with pytest.raises(CommitConflictError, match=f"planned {CHANGED_TIMES} times.*faster"):
        lost(CHANGED_TIMES)
    with pytest.raises(CommitConflictError, match=r"^somebody"):
        lost(1, ALREADY_ADDED)
