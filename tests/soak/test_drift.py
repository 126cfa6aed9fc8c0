"""The judge of the soak: what it calls growth."""

import pytest

from tests.soak.drift import Bound, TooFewValuesError, drift_of, table_of

STEADY = [(float(second), 100.0) for second in range(121)]


def drift(values: list[tuple[float, float]], share: float = 0.05, noise: float = 0.0) -> bool:
    return drift_of("memory", values, Bound(share, noise), begun=0, ended=120).is_broken


def test_a_value_that_grows_to_the_end_breaks_its_bound() -> None:
    assert not drift(STEADY)
    assert drift([(time, 100 + time / 4) for time, _ in STEADY])
    assert not drift([(time, 100 - time / 4) for time, _ in STEADY])


def test_growth_before_the_warm_up_is_over_does_not_count() -> None:
    assert not drift([(time, 10.0 if time < 30 else 100.0) for time, _ in STEADY])
    assert drift([(time, 10.0 if time < 50 else 100.0) for time, _ in STEADY])


def test_single_high_values_do_not_count() -> None:
    assert not drift([(time, 900.0 if time % 10 == 0 else 100.0) for time, _ in STEADY])


def test_growth_within_the_noise_does_not_count() -> None:
    grown = [(time, 2.0 if time < 60 else 4.0) for time, _ in STEADY]
    assert drift(grown) and drift(grown, noise=1) and not drift(grown, noise=2)


def test_a_value_that_was_nothing_and_is_something_breaks_its_bound() -> None:
    grown = drift_of("left files", [(t, float(t > 60)) for t, _ in STEADY], Bound(0.05), begun=0, ended=120)
    assert grown.is_broken and grown.share == 1


@pytest.mark.parametrize("values", [[], STEADY[:60], STEADY[60:]], ids=["none", "no last", "no first"])
def test_too_few_values_are_an_error_and_no_pass(values: list[tuple[float, float]]) -> None:
    with pytest.raises(TooFewValuesError, match=r"^memory: \d+ values in the first third, \d+ in the last one"):
        drift(values)


def test_the_table_names_each_value_with_its_bound_and_marks_those_beyond() -> None:
    grown = [(time, 5.0 + (time > 60) * 5) for time, _ in STEADY]
    memory = drift_of("driver memory", STEADY, Bound(0.05), begun=0, ended=120)
    threads = drift_of("driver threads", grown, Bound(0, 2), begun=0, ended=120)
    lines = table_of([memory, threads]).splitlines()
    assert len(lines) == 3 and "100.00" in lines[1] and "BROKEN" not in lines[1]
    assert lines[2].endswith("100.0%  0% or 2.0  BROKEN")
