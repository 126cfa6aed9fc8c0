"""`status`: what it finds in the files of buckets, and what it draws."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bucketline.conf.table.table_settings import CompactionSettings
from bucketline.state.bucket.mode import BucketMode
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.table.table import create_table
from bucketline.streaming.cli.commands import program
from bucketline.streaming.cli.survey import Backlog, BucketSurvey, advise_table, survey_bucket, survey_partitions
from tests.support.tables.commits import data_file

MB, GB = 1 << 20, 1 << 30
OPTIONS = {"num-sorted-run.compaction-trigger": "3"}


def _bucket(number: int, sizes: dict[int, list[int]], *, total: int = 2, keyed: bool = True) -> BucketSurvey:
    """A bucket whose files have these sizes, by level."""
    files = tuple(
        replace(data_file(f"f{number}-{level}-{i}", level=level), file_size=size, row_count=max(10, size // 100))
        for level, found in sizes.items()
        for i, size in enumerate(found)
    )
    return survey_bucket(BucketFiles(b"", number, total, files), "{}", CompactionSettings(OPTIONS), keyed=keyed)


def test_each_file_of_level_0_is_a_run_and_each_level_above_is_one() -> None:
    found = _bucket(0, {0: [1, 2], 3: [10, 10], 5: [100, 100, 100]})
    assert [(level.level, len(level.runs), len(level.files)) for level in found.levels] == [
        (0, 2, 2),
        (3, 1, 2),
        (5, 1, 3),
    ]
    assert (found.run_count, found.file_count, found.size_bytes, found.row_count) == (4, 7, 323, 70)


@pytest.mark.parametrize(
    ("runs", "keyed", "expected"),
    [
        (2, True, Backlog.NONE),
        (3, True, Backlog.DUE),
        (5, True, Backlog.DUE),
        (6, True, Backlog.WRITERS_WAIT),
        (9, False, Backlog.NONE),
    ],
)
def test_the_backlog_follows_the_triggers(runs: int, keyed: bool, expected: Backlog) -> None:
    assert _bucket(0, {0: [1] * runs}, keyed=keyed).backlog is expected


@pytest.mark.parametrize(
    ("buckets", "mode", "says"),
    [
        ([_bucket(0, {5: [3 * GB]}), _bucket(1, {5: [3 * GB]})], BucketMode.FIXED, "about 12 buckets instead of 2"),
        ([_bucket(0, {5: [120 * MB]}, total=8)], BucketMode.FIXED, "1 bucket instead of 8"),
        ([_bucket(0, {5: [90 * MB]}, total=8)], BucketMode.FIXED, None),
        ([_bucket(0, {5: [90 * MB]}, total=8), _bucket(1, {5: [90 * MB]}, total=8)], BucketMode.FIXED, "1 bucket"),
        ([_bucket(i, {5: [9]}, total=80) for i in range(80)], BucketMode.FIXED, "1 bucket instead of 80"),
        ([_bucket(i, {5: [9]}, total=8) for i in range(8)], BucketMode.FIXED, None),
        ([_bucket(0, {5: [1500 * MB]}, total=8)], BucketMode.FIXED, "3 buckets instead of 8"),
        ([_bucket(0, {5: [900 * MB]}), _bucket(1, {5: [900 * MB]})], BucketMode.FIXED, None),
        ([_bucket(0, {5: [900 * MB]}, total=1)], BucketMode.FIXED, None),
        ([_bucket(0, {5: [9 * MB]}, total=1)], BucketMode.FIXED, None),
        ([_bucket(0, {5: [3 * GB]}, total=4)], BucketMode.FIXED, "4.0 times the mean"),
        ([_bucket(0, {5: [900 * MB]}, total=-1)], BucketMode.DYNAMIC, None),
        ([_bucket(0, {5: [9 * MB]}, total=-1)], BucketMode.DYNAMIC, None),
        ([_bucket(0, {5: [9 * GB]}, total=-1)], BucketMode.DYNAMIC, "a smaller 'dynamic-bucket.target-row-num'"),
        ([_bucket(i, {5: [9 * MB]}, total=-1) for i in range(6)], BucketMode.CROSS_PARTITION, None),
        ([_bucket(i, {5: [25 * MB]}, total=-1) for i in range(6)], BucketMode.CROSS_PARTITION, "1 fixed bucket would"),
        ([_bucket(0, {5: [3 * GB]}, total=1)], BucketMode.POSTPONE, "about 6 buckets instead of 1"),
        ([_bucket(-2, {0: [9]}, total=-2)], BucketMode.POSTPONE, "readers do not see"),
    ],
)
def test_advice_is_given_where_another_number_of_buckets_would_serve(
    buckets: list[BucketSurvey], mode: BucketMode, says: str | None
) -> None:
    (found,) = survey_partitions(buckets, mode)
    assert found.advice is None if says is None else says in (found.advice or "")


def test_partitions_of_very_different_sizes_are_better_off_in_another_mode() -> None:
    def partition(name: str, size: int) -> list[BucketSurvey]:
        return [replace(_bucket(b, {5: [size]}), partition=name) for b in range(2)]

    unlike = survey_partitions([*partition("a", 9 * GB), *partition("b", 9 * MB)], BucketMode.FIXED)
    assert "postpone ('bucket' = '-2')" in (advise_table(unlike, BucketMode.FIXED) or "")
    alike = survey_partitions([*partition("a", 9 * GB), *partition("b", 8 * GB)], BucketMode.FIXED)
    assert advise_table(alike, BucketMode.FIXED) is None


def test_status_tells_what_is_postponed_and_since_when(tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = create_table(str(tmp_path / "w.db" / "t"), "id INT", ["id"], options=options)
    table.write(pa.table({"id": pa.array(range(20), pa.int32())}))
    table.write(pa.table({"id": pa.array(range(5), pa.int32())}))
    shown = CliRunner().invoke(program, ["status", table.path], catch_exceptions=False).stdout
    size = sum(f.stat().st_size for f in Path(table.path).glob("bucket-postpone/*"))
    assert f"postponed: 25 rows, {size} bytes, for up to " in shown
    assert "compact the table to move them to buckets" in shown
    table.compact()
    shown = CliRunner().invoke(program, ["status", table.path], catch_exceptions=False).stdout
    assert "no postponed rows" in shown and "compact the table" not in shown


def test_skew_counts_buckets_that_have_no_files() -> None:
    (found,) = survey_partitions([_bucket(0, {5: [100]}, total=4), _bucket(1, {5: [100]}, total=4)], BucketMode.FIXED)
    assert found.skew == 2.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    options = {"bucket": "2", "write-only": "true", "num-sorted-run.compaction-trigger": "2"}
    table = create_table(
        str(tmp_path / "w.db" / "t"), "id INT, dt STRING", ["dt", "id"], partition_by=["dt"], options=options
    )
    for day in ("d1", "d2"):
        for _ in range(2):
            table.write(pa.table({"id": pa.array(range(20), pa.int32()), "dt": [day] * 20}))
    return table.path


def test_status_draws_levels_runs_and_what_is_due(path: str) -> None:
    shown = CliRunner().invoke(program, ["status", path], catch_exceptions=False).stdout
    assert "primary key dt, id, partitioned by dt, fixed buckets" in shown
    assert "80 rows in 8 files" in shown
    assert "compaction due in 4 of 4 buckets" in shown
    assert "on level 0: " in shown and "runs in a bucket" in shown
    assert "partition {d1}: 2 buckets with files" in shown
    assert "bucket 1 of 2" in shown and "█│" in shown
    assert "less than 200 MB a bucket" not in shown


def test_status_gives_each_piece_of_advice_once(tmp_path: Path) -> None:
    path = str(tmp_path / "w.db" / "t")
    table = create_table(path, "id INT, dt STRING", ["dt", "id"], partition_by=["dt"], options={"bucket": "40"})
    days = pa.array(["d1", "d2"] * 500)
    table.write(pa.table({"id": pa.array(range(1000), pa.int32()), "dt": days}))
    shown = CliRunner().invoke(program, ["status", path], catch_exceptions=False).stdout
    assert shown.count("1 bucket instead of 40 would be enough") == 1


def test_status_draws_no_more_buckets_and_partitions_than_asked_for(path: str) -> None:
    shown = CliRunner().invoke(program, ["status", path, "--buckets", "1"]).stdout
    assert shown.count(" of 2: ") == 1 and "and 3 buckets with fewer runs" in shown
    shown = CliRunner().invoke(program, ["status", path, "--partition", "dt=d2"]).stdout
    assert "{d2}" in shown and "{d1}" not in shown
    found = CliRunner().invoke(program, ["status", path, "--partition", "dz=d2"])
    assert found.exit_code == 3 and "'dz' is no partition column" in found.stderr


def test_status_prints_a_row_a_bucket_for_programs(path: str) -> None:
    lines = CliRunner().invoke(program, ["status", path, "--format", "json"]).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(r["partition"], r["bucket"], r["run_count"], r["compaction"]) for r in found] == [
        ("{d1}", 0, 2, "due"),
        ("{d1}", 1, 2, "due"),
        ("{d2}", 0, 2, "due"),
        ("{d2}", 1, 2, "due"),
    ]
    assert sum(level["row_count"] for r in found for level in r["levels"]) == 80


def test_status_of_a_table_that_nothing_was_written_to(tmp_path: Path) -> None:
    path = create_table(str(tmp_path / "t"), "id INT", ["id"], options={"bucket": "1"}).path
    found = CliRunner().invoke(program, ["status", path])
    assert found.exit_code == 0 and "nothing has been written" in found.stdout
