"""Runs come back by bucket in arrival order, whether they stayed in memory or went to disk."""

import pytest

from bucketline.state.store.run_shelf import RunShelf
from bucketline.state.store.sealed_runs import SealedRun


def _run(bucket: int, origin: int, flush: int, blob: bytes) -> SealedRun:
    return SealedRun(b"", bucket, origin, flush, 1, 1, 1, blob)


@pytest.mark.parametrize("budget_bytes", [0, 7, 1 << 20])
def test_runs_come_back_whole_and_in_arrival_order(budget_bytes: int) -> None:
    runs = [_run(b, o, f, bytes([b, o, f]) * (o + 1)) for o in (2, 0, 1) for f in (1, 0) for b in (1, 0)]
    with RunShelf(budget_bytes=budget_bytes) as shelf:
        for run in runs:
            shelf.add(run)
        assert shelf.buckets() == [(b"", 0), (b"", 1)]
        for bucket in (0, 1):
            taken = shelf.take((b"", bucket))
            assert [(r.origin, r.flush) for r, _ in taken] == [(o, f) for o in (0, 1, 2) for f in (0, 1)]
            assert [b.to_pybytes() for _, b in taken] == [
                bytes([bucket, o, f]) * (o + 1) for o in (0, 1, 2) for f in (0, 1)
            ]
        assert shelf.buckets() == []
        assert (shelf.spilled_bytes > 0) == (budget_bytes < 100)
