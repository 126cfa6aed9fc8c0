"""How many examples a property draws. Each run draws others, so that a share of them is enough for every run of the
tests; `.ci/run sweeps-long` draws many times as many."""

import os

_TIMES = float(os.environ.get("BUCKETLINE_SWEEPS", "0.25"))


def examples(count: int) -> int:
    """The share of `count` that this run draws, or the multiple."""
    return round(count * _TIMES)
