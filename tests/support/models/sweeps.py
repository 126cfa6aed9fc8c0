"""How many examples a property draws. Each run draws others, so that a share of them is enough for every run of the
tests; `.ci/run sweeps-long` draws many times as many."""

import os

from hypothesis import settings

_TIMES = float(os.environ.get("BUCKETLINE_SWEEPS", "0.25"))


def draws(count: int) -> settings:
    """The share of `count` examples that this run draws, or the multiple. Where `$CI` is set, Hypothesis would draw the
    same ones in every run: not here."""
    return settings(max_examples=share_of(count), derandomize=False)


def share_of(count: int) -> int:
    """The share of `count` that this run draws, or the multiple; at least one."""
    return max(1, round(count * _TIMES))
