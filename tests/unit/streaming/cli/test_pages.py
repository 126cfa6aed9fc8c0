"""How rows of several record batches are laid out as one table."""

import pyarrow as pa
import pytest

from bucketline.streaming.cli.rows import PAGE_ROWS, Format, print_rows


def printed(batches: list[pa.RecordBatch], capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_rows(batches, batches[0].schema, Format.TABLE)
    return capsys.readouterr().out.splitlines()


def test_rows_of_several_buckets_stand_under_one_head(capsys: pytest.CaptureFixture[str]) -> None:
    buckets = [pa.record_batch({"id": [n]}) for n in range(3)]
    lines = printed(buckets, capsys)
    assert [line.strip() for line in lines if line.strip().isalnum()] == ["id", "0", "1", "2"]


def test_no_row_is_lost_where_batches_and_pages_do_not_end_together(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [1, PAGE_ROWS - 2, 0, PAGE_ROWS + 5, 3]
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    batches = [
        pa.record_batch({"id": pa.array(range(start, start + size), pa.int64())})
        for start, size in zip(starts, sizes, strict=True)
    ]
    lines = printed(batches, capsys)
    assert [int(line) for line in lines if line.strip().isdigit()] == list(range(sum(sizes)))
