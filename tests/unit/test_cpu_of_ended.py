"""What benches count as CPU time when processes end between two looks."""

from tests.bench.watch import Cpu, forgotten


def test_the_time_of_a_process_that_nobody_waited_for_is_kept() -> None:
    """Spark's Python workers end in the turn of another contender, whose CPU seemed to be less by theirs."""
    before = {1: Cpu(2.0, 0.5), 2: Cpu(9.0, 0.25)}
    assert forgotten(before, {1: Cpu(3.0, 0.5)}) == 9.25


def test_the_time_of_a_process_that_its_parent_waited_for_counts_once() -> None:
    before = {1: Cpu(2.0, 0.5), 2: Cpu(9.0, 0.25)}
    assert forgotten(before, {1: Cpu(3.0, 9.75)}) == 0.0


def test_a_process_that_began_and_ended_between_two_looks_takes_nothing_away() -> None:
    assert forgotten({1: Cpu(2.0, 0.5)}, {1: Cpu(2.0, 4.5), 3: Cpu(1.0, 0.0)}) == 0.0
