"""Runs come back by bucket in arrival order, whether they stayed in memory or went to disk."""

from pathlib import Path

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


def test_spills_to_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    with RunShelf(budget_bytes=0, directory=str(tmp_path / "fast" / "disk")) as shelf:
        shelf.add(_run(0, 0, 0, b"blob"))
        assert [b.to_pybytes() for _, b in shelf.take((b"", 0))] == [b"blob"]


def test_runs_may_be_added_while_those_of_another_bucket_are_read(tmp_path: Path) -> None:
    """Dealing new keys does so: what was mapped stays as it was, and what comes later is found as well."""
    with RunShelf(budget_bytes=0, directory=str(tmp_path)) as shelf:
        for flush in range(70_000):
            shelf.add(_run(0, 0, flush, flush.to_bytes(3, "big")))
        taken = shelf.take((b"", 0))  # one map each would be more than Linux allows
        for run, blob in taken[:1000]:
            shelf.add(_run(1, 0, run.flush, blob.to_pybytes() * 2000))
        assert [b.to_pybytes() for _, b in taken] == [i.to_bytes(3, "big") for i in range(70_000)]
        assert [b.to_pybytes() for _, b in shelf.take((b"", 1))] == [i.to_bytes(3, "big") * 2000 for i in range(1000)]
