"""Runs come back by bucket in arrival order, whether they stayed in memory or went to disk."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.write.run_buffer import Blob, RunBuffer, SpilledBlob
from bucketline.state.store.write.sealed_runs import BLOB_BYTES, SealedRun, seal, seal_here, unseal


def content(blob: Blob) -> bytes:
    found: bytes = blob.readall() if isinstance(blob, SpilledBlob) else blob.to_pybytes()
    return found


def _run(bucket: int, origin: int, flush: int, blob: bytes | pa.Table) -> SealedRun:
    return SealedRun(b"", bucket, origin, flush, 1, 1, 1, blob)


@pytest.mark.parametrize("budget_bytes", [0, 7, 1 << 20])
def test_runs_come_back_whole_and_in_arrival_order(budget_bytes: int) -> None:
    runs = [_run(b, o, f, bytes([b, o, f]) * (o + 1)) for o in (2, 0, 1) for f in (1, 0) for b in (1, 0)]
    with RunBuffer(budget_bytes=budget_bytes) as buffer:
        for run in runs:
            buffer.add(run)
        assert buffer.buckets() == [(b"", 0), (b"", 1)]
        for bucket in (0, 1):
            taken = buffer.take((b"", bucket))
            assert [(r.origin, r.flush) for r, _ in taken] == [(o, f) for o in (0, 1, 2) for f in (0, 1)]
            assert [content(b) for _, b in taken] == [
                bytes([bucket, o, f]) * (o + 1) for o in (0, 1, 2) for f in (0, 1)
            ]
        assert buffer.buckets() == []
        assert (buffer.spilled_bytes > 0) == (budget_bytes < 100)


def test_spills_to_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    with RunBuffer(budget_bytes=0, directory=str(tmp_path / "fast" / "disk")) as buffer:
        buffer.add(_run(0, 0, 0, b"blob"))
        assert [content(b) for _, b in buffer.take((b"", 0))] == [b"blob"]


def test_runs_may_be_added_while_those_of_another_bucket_are_read(tmp_path: Path) -> None:
    """Dealing new keys does so: what was taken stays as it was, and what comes later is found as well."""
    with RunBuffer(budget_bytes=0, directory=str(tmp_path)) as buffer:
        for flush in range(70_000):
            buffer.add(_run(0, 0, flush, flush.to_bytes(3, "big")))
        taken = buffer.take((b"", 0))  # a map or a file each would be more than Linux allows
        for run, blob in taken[:1000]:
            buffer.add(_run(1, 0, run.flush, content(blob) * 2000))
        assert [content(b) for _, b in taken[1000:]] == [i.to_bytes(3, "big") for i in range(1000, 70_000)]
        assert [content(b) for _, b in buffer.take((b"", 1))] == [i.to_bytes(3, "big") * 2000 for i in range(1000)]


def test_the_record_batches_of_a_run_are_small_however_wide_its_rows(tmp_path: Path) -> None:
    """A merge holds one batch of each run, and a bucket may have hundreds of runs."""
    rows = pa.table({"k": pa.array(range(5000)), "v": pa.array([bytes(2000)] * 5000)})
    with RunBuffer(budget_bytes=0, directory=str(tmp_path)) as buffer:
        buffer.add(_run(0, 0, 0, seal(rows)))
        ((_, blob),) = buffer.take((b"", 0))
        batches = list(unseal(blob))
    assert pa.Table.from_batches(batches) == rows
    assert max(b.nbytes for b in batches) <= BLOB_BYTES < rows.nbytes


def test_rows_that_stay_in_the_process_are_sealed_only_where_they_go_to_disk(tmp_path: Path) -> None:
    rows = pa.table({"k": pa.array(range(5000)), "v": pa.array([bytes(2000)] * 5000)})
    with RunBuffer(budget_bytes=rows.nbytes, directory=str(tmp_path), packs_spills=True) as buffer:
        for flush in range(3):
            buffer.add(_run(0, 0, flush, rows))
        (_, held), *spilled = buffer.take((b"", 0))
        assert held is rows
        assert max(b.nbytes for b in unseal(held)) <= BLOB_BYTES
        assert [unseal(blob).read_all() for _, blob in spilled] == [rows, rows]
        assert 0 < buffer.spilled_bytes < rows.nbytes // 10
        buffer.add(_run(1, 0, 0, rows))
        assert [blob for _, blob in buffer.take((b"", 1))] == [rows], "what was taken takes up no budget"


def test_runs_without_compression_are_compressed_where_they_go_to_disk(tmp_path: Path) -> None:
    rows = pa.table({"k": pa.array(range(5000)), "v": pa.array([bytes(2000)] * 5000)})
    plain = seal_here(rows)
    assert len(plain) > rows.nbytes
    with RunBuffer(budget_bytes=len(plain), directory=str(tmp_path), packs_spills=True) as buffer:
        buffer.add(_run(0, 0, 0, plain))
        buffer.add(_run(0, 0, 1, plain))
        (_, held), (_, spilled) = buffer.take((b"", 0))
        assert content(held) == plain.to_pybytes()
        assert buffer.spilled_bytes < len(plain) // 10
        assert unseal(spilled).read_all() == rows
