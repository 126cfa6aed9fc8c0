"""The limits by name, with the bound of each step. `docs/how-far.md` says the same, which a test compares."""

from collections.abc import Mapping

from tests.limits import files, history, rows
from tests.limits.case import Case, Step, scaled
from tests.limits.files import FilesShape
from tests.limits.history import HistoryShape

_CASES = (
    Case(
        "large-rows",
        "40 rows of 20 MB in a bucket",
        "40,000 rows of 20 kB",
        lambda scale: rows.large_rows(scaled(20, scale, 2), scaled(20_000_000, scale, 1000)),
        lambda scale: rows.large_rows(scaled(20_000, scale, 2), 20_000),
        (
            Step("write", rows.write, 700, 2.0),
            Step("compact", rows.compact, 420, 2.0),
            Step("read", rows.read, 420, 1.5),
        ),
    ),
    Case(
        "many-buckets",
        "batches into 5,000 pairs of partition and bucket, 200 rows of 300 bytes each",
        "the same into 500 pairs",
        lambda scale: rows.text_rows(
            scaled(1_000_000, scale, 100), scaled(1000, scale, 2), 5, units=scaled(5000, scale)
        ),
        lambda scale: rows.text_rows(scaled(100_000, scale, 100), scaled(100, scale, 2), 5, units=scaled(500, scale)),
        (
            Step("write", rows.write, 700, 2.5),
            Step("compact", rows.compact, 420, 1.2),
            Step("read", rows.read, 300, 1.2),
        ),
    ),
    Case(
        "one-large-bucket",
        "10 buckets, one of them with 90 percent of 2 million rows of 300 bytes",
        "10 buckets with as many rows each",
        lambda scale: rows.text_rows(scaled(1_000_000, scale, 100), 10, first_share=0.9, units=scaled(10**6, scale)),
        lambda scale: rows.text_rows(scaled(1_000_000, scale, 100), 10, units=scaled(10**6, scale)),
        (
            Step("write", rows.write, 700, 1.2),
            Step("compact", rows.compact, 420, 1.2),
            Step("read", rows.read, 300, 1.2),
        ),
    ),
    Case(
        "long-bucket",
        "3 million rows of 300 bytes in a bucket, of two batches",
        "300,000 such rows",
        lambda scale: rows.text_rows(scaled(1_500_000, scale, 100), 1, units=scaled(1_500_000, scale)),
        lambda scale: rows.text_rows(scaled(150_000, scale, 100), 1, units=scaled(150_000, scale)),
        (
            Step("write", rows.write, 700, 1.5),
            Step("compact", rows.compact, 420, 1.3),
            Step("read", rows.read, 300, 1.3),
        ),
    ),
    Case(
        "wide",
        "20,000 rows of 1,000 columns",
        "2 million rows of 10 columns",
        lambda scale: rows.wide_rows(scaled(10_000, scale, 20), scaled(1000, scale, 20)),
        lambda scale: rows.wide_rows(scaled(1_000_000, scale, 20), 10),
        (
            Step("write", rows.write, 700, 2.5),
            Step("compact", rows.compact, 420, 2.5),
            Step("read", rows.read, 420, 2.5),
        ),
    ),
    Case(
        "snapshots",
        "10,000 snapshots",
        "1,000 snapshots",
        lambda scale: HistoryShape(scaled(10_000, scale, 5)),
        lambda scale: HistoryShape(scaled(1000, scale, 5)),
        (
            Step("open and read", history.open_and_read, 64, 1.5, is_whole=True),
            Step("three more batches", history.write_once_more, 64, 1.5, is_whole=True),
            Step("list", history.list_snapshots, 128, 1.3),
            Step("expire all but three", history.expire, 128, 1.3),
        ),
    ),
    Case(
        "files",
        "100,000 files in 100 buckets",
        "10,000 files in 100 buckets",
        lambda scale: FilesShape(scaled(100_000, scale, files.BUCKETS)),
        lambda scale: FilesShape(scaled(10_000, scale, files.BUCKETS)),
        (
            Step("plan a read", files.plan_a_read, 200, 1.3),
            Step("list", files.list_files, 300, 1.3),
            Step("find orphans", files.find_orphans, 200, 1.3),
            Step("truncate", files.truncate, 300, 1.3),
            Step("expire", files.expire, 200, 1.3),
        ),
    ),
    Case(
        "partitions",
        "5,000 partitions of one bucket, two files each",
        "500 partitions of one bucket",
        lambda scale: rows.text_rows(scaled(50_000, scale, 100), scaled(5000, scale, 10), units=scaled(5000, scale)),
        lambda scale: rows.text_rows(scaled(5000, scale, 100), scaled(500, scale, 10), units=scaled(500, scale)),
        (
            Step("write", rows.write, 300, 1.2),
            Step("read one partition", rows.read_one_partition, 64, 4.0, is_whole=True),
            Step("list", rows.list_partitions, 64, 1.2),
            Step("read", rows.read, 200, 1.2),
        ),
    ),
)
CASES: Mapping[str, Case] = {case.name: case for case in _CASES}
