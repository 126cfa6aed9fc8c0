"""Append tables without buckets whose files are rewritten in an order: rows stay, and files cover less."""

import itertools
import random
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import CommitConflictError, CorruptFileError, SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.engine.local_engine import LocalEngine
from bucketline.state.store.engine.sorted_rows import RowSort
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.sort_compact import range_counts
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.curves import OrderStrategy
from bucketline.streaming.cli.commands import program
from bucketline.streaming.tasks.spark_engine import SparkEngine
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema(
    [("x", pa.int64()), ("y", pa.int64()), ("name", pa.string()), ("day", pa.string()), ("l", pa.list_(pa.int32()))]
)


def rows(seed: int, count: int = 4000) -> pa.Table:
    draw = np.random.default_rng(seed)
    found = {
        "x": draw.integers(0, 1000, count),
        "y": draw.integers(0, 1000, count),
        "name": [f"name {n}" if n % 7 else None for n in draw.integers(0, 50, count)],
        "day": [f"d{n}" for n in draw.integers(0, 2, count)],
        "l": [[int(n)] for n in draw.integers(0, 9, count)],
    }
    return pa.table(found, schema=COLUMNS)


def made(path: Path, *, by_day: bool = False, **options: str) -> Table:
    given = {"target-file-size": "20 kb", "file.format": "parquet", "parquet.row-group.size.bytes": "8 kb", **options}
    table = create_table(str(path / "shop.db" / "t"), COLUMNS, (), ("day",) if by_day else (), options=given)
    for seed in range(3):
        table.write(rows(seed))
    return open_table(table.path)


def bag(table: pa.Table) -> Counter[str]:
    return Counter(map(str, table.to_pylist()))


def test_rows_are_sorted_by_columns_in_each_partition_and_readers_of_changes_see_nothing(tmp_path: Path) -> None:
    table = made(tmp_path, by_day=True)
    before = bag(table.to_arrow())
    newest = table.snapshots()["snapshot_id"].to_pylist()[-1]
    assert table.compact(order_by=["x", "name"], order_strategy="order") == newest + 1
    after = open_table(table.path)
    assert bag(after.to_arrow()) == before and after.doctor(rows=True) == []
    assert after.snapshots()["commit_kind"].to_pylist()[-1] == "COMPACT"
    assert after.to_arrow(changes_since=newest).num_rows == 0
    for day in ("d0", "d1"):
        found = after.to_arrow(filter=f"day = '{day}'").to_pylist()
        keys = [(r["x"], r["name"] is not None, r["name"] or "") for r in found]
        assert keys == sorted(keys) and len(keys) > 1000
    # The first partition alone is written again.
    files = {f["file_path"] for f in after.files().to_pylist()}
    after.compact(partitions=[{"day": "d0"}], order_by=["y"], order_strategy="order")
    left = {f["file_path"] for f in open_table(table.path).files().to_pylist()} & files
    assert left == {f for f in files if "day=d1" in f}


@pytest.mark.parametrize("strategy", ["zorder", "hilbert"])
def test_on_a_curve_a_filter_on_either_column_reads_fewer_files(tmp_path: Path, strategy: str) -> None:
    table = made(tmp_path, **{"target-file-size": "2 kb", "parquet.row-group.size.bytes": "2 kb"})
    before = bag(table.to_arrow())
    table.compact(order_by=["x", "y"], order_strategy=strategy)
    found = open_table(table.path)
    assert bag(found.to_arrow()) == before and found.doctor(rows=True) == []
    files = found.files().to_pylist()
    assert len(files) >= 8
    for column in ("x", "y"):
        read = sum(covers(f, column, value) for f in files for value in range(50, 1000, 100))
        assert read <= 10 * len(files) * 0.6


def covers(file: dict[str, object], column: str, value: int) -> bool:
    least, most = dict(_pairs(file["min_value_stats"])), dict(_pairs(file["max_value_stats"]))
    return int(least[column]) <= value <= int(most[column])


def _pairs(text: object) -> list[tuple[str, str]]:
    return [(part.split("=")[0].strip(), part.split("=")[1].strip()) for part in str(text).strip("{}").split(", ")]


def test_more_rows_than_memory_are_sorted_through_local_disk(tmp_path: Path) -> None:
    """Chunks, several passes over them, blocks of one value: the order is that of a sort in memory."""
    given = pa.concat_tables([rows(seed, 3000) for seed in range(4)]).drop_columns(["l"])
    given = given.set_column(0, "x", pa.array([n // 1500 for n in range(given.num_rows)]))
    batches = (
        given.take(np.random.default_rng(1).permutation(given.num_rows)).combine_chunks().to_batches(max_chunksize=500)
    )
    by = RowSort(("x", "y", "name"), OrderStrategy.ORDER, 100_000, str(tmp_path / "spill"))
    found = pa.Table.from_batches(by.sorted(batches))
    keys = [(r["x"], r["y"], r["name"] is not None, r["name"] or "") for r in found.to_pylist()]
    assert keys == sorted(keys) and bag(found) == bag(given)
    assert list((tmp_path / "spill").iterdir()) == []
    assert list(by.sorted([])) == []
    one = RowSort(("y",), OrderStrategy.ORDER, 64 << 20).sorted(batches)
    assert pa.Table.from_batches(one)["y"].to_pylist() == sorted(given["y"].to_pylist())


def test_rows_that_were_deleted_by_position_are_gone_and_others_stay(tmp_path: Path) -> None:
    table = made(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.delete("x < 500")
    before = bag(open_table(table.path).to_arrow())
    assert sum(before.values()) < 3 * 4000
    table.compact(order_by=["x"], order_strategy="order")
    after = open_table(table.path)
    assert bag(after.to_arrow()) == before and after.doctor(rows=True) == []


def test_rows_that_are_appended_meanwhile_stay_and_a_race_is_lost_without_a_trace(tmp_path: Path) -> None:
    table = made(tmp_path)
    others = open_table(table.path)
    before = bag(table.to_arrow()) + bag(rows(9))

    def append(done: int, total: int) -> None:
        if done == total:
            others.write(rows(9))

    compact_table(handle_of(table), order_by=["x"], order_strategy="order", engine=LocalEngine(append))
    assert bag(open_table(table.path).to_arrow()) == before

    def compact(done: int, total: int) -> None:
        if done == total:
            others.compact(order_by=["y"], order_strategy="order")

    with pytest.raises(CommitConflictError):
        compact_table(handle_of(table), order_by=["x"], order_strategy="order", engine=LocalEngine(compact))
    after = open_table(table.path)
    assert bag(after.to_arrow()) == before
    ys = after.to_arrow()["y"].to_pylist()
    assert ys == sorted(ys) and after.remove_orphan_files(older_than=timedelta(0)).files == ()


@pytest.mark.parametrize("strategy", ["order", "zorder", "hilbert"])
def test_tasks_that_sort_ranges_make_what_one_process_makes(tmp_path: Path, strategy: str) -> None:
    """The same rows in the same order, those of one key too, and the same sequence numbers, in hardly more files."""
    options = {"deletion-vectors.enabled": "true", "target-file-size": "10 kb"}
    here = made(tmp_path / "here", by_day=True, **options)
    # A fourth of the rows have one key.
    here.write(rows(5).set_column(0, "x", pa.array([7] * 4000)).set_column(1, "y", pa.array([7] * 4000)))
    open_table(here.path).delete("name = 'name 3'")
    there = open_table(str(shutil.copytree(here.path, tmp_path / "there.db" / "t")))
    cluster = Cluster(random.Random(3), 4, unrest=0.3)
    for table, engine in ((here, LocalEngine()), (there, SparkEngine(cluster))):
        compact_table(handle_of(open_table(table.path)), order_by=["y", "x"], order_strategy=strategy, engine=engine)
    found, expected = open_table(there.path), open_table(here.path)
    assert found.to_arrow().to_pylist() == expected.to_arrow().to_pylist()
    assert found.doctor(rows=True) == [] and found.snapshots()["commit_kind"].to_pylist()[-1] == "COMPACT"
    for day in ("d0", "d1"):
        ours, theirs = numbers(found, day), numbers(expected, day)
        assert (ours[0][0], ours[-1][1]) == (theirs[0][0], theirs[-1][1])
        assert all(before + 1 == low for (_, before), (low, _) in itertools.pairwise(ours))
    assert 4 < len(expected.files()) <= len(found.files()) <= len(expected.files()) + 8
    # A task of each of the four reads a sample; four make bounds of it, and as many ranges as there are are sorted.
    assert cluster.actions == 2 and cluster.tasks_run >= 4 * 4


def numbers(table: Table, day: str) -> list[tuple[int, int]]:
    """The first and last sequence number of each file of a partition, in order."""
    files = [f for f in table.files().to_pylist() if f"day={day}" in f["file_path"]]
    return sorted((f["min_sequence_number"], f["max_sequence_number"]) for f in files)


def test_partitions_are_divided_among_the_tasks_by_their_bytes() -> None:
    sizes = {b"large": 4000, b"small": 90, b"middle": 900}
    for target, parallelism, expected in (
        (100, 4, (10, 1, 3)),  # no task sorts more than four files' worth
        (500, 4, (4, 1, 1)),  # a share for each task
        (2000, 100, (2, 1, 1)),  # files of their size, whoever has no work
        (10**6, 8, (1, 1, 1)),
    ):
        assert tuple(range_counts(sizes, target_bytes=target, parallelism=parallelism).values()) == expected


def test_tasks_that_fail_leave_the_table_as_it_was(tmp_path: Path) -> None:
    table = made(tmp_path)
    damaged = min(Path(table.path).glob("bucket-0/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    count = table.snapshots().num_rows
    with pytest.raises(CorruptFileError, match=damaged.name):
        compact_table(
            handle_of(table), order_by=["x"], order_strategy="order", engine=SparkEngine(Cluster(random.Random(1), 4))
        )
    assert open_table(table.path).snapshots().num_rows == count


def test_what_cannot_be_sorted_is_refused_by_name(tmp_path: Path) -> None:
    table = made(tmp_path, by_day=True)
    count = table.snapshots().num_rows
    for error, why, arguments in (
        (OptionError, "'order_by' also needs 'order_strategy'", {"order_by": ["x"]}),
        (OptionError, "'order_strategy' also needs 'order_by'", {"order_strategy": "zorder"}),
        (OptionError, "is none of 'order', 'zorder', 'hilbert'", {"order_by": ["x"], "order_strategy": "z"}),
        (SchemaMismatchError, "'w' is not in the table", {"order_by": ["w"], "order_strategy": "order"}),
        (OptionError, "is a partition column", {"order_by": ["day"], "order_strategy": "order"}),
        (OptionError, "named twice", {"order_by": ["x", "x"], "order_strategy": "order"}),
        (OptionError, "its type is nested", {"order_by": ["l"], "order_strategy": "order"}),
        (OptionError, "at least two columns", {"order_by": ["x"], "order_strategy": "hilbert"}),
        (OptionError, "strategy 'minor' does not", {"strategy": "minor", "order_by": ["x"], "order_strategy": "order"}),
    ):
        with pytest.raises(error, match=why):
            table.compact(**arguments)  # type: ignore[arg-type]
    assert open_table(table.path).snapshots().num_rows == count
    keyed = bl.create_table(str(tmp_path / "k.db" / "t"), "id INT, v INT", ["id"], options={"bucket": "1"})
    bucketed = bl.create_table(
        str(tmp_path / "b.db" / "t"), "id INT, v INT", options={"bucket": "1", "bucket-key": "id"}
    )
    for other in (keyed, bucketed):
        with pytest.raises(UnsupportedTableError, match="only append tables without buckets can be sorted"):
            other.compact(order_by=["v"], order_strategy="order")


def test_the_command_sorts(tmp_path: Path) -> None:
    table = made(tmp_path)
    done = CliRunner().invoke(
        program, ["compact", table.path, "--order-by", "y, x", "--order-strategy", "order"], catch_exceptions=False
    )
    assert done.exit_code == 0 and "snapshot 4" in done.stdout
    found = [(r["y"], r["x"]) for r in open_table(table.path).to_arrow().to_pylist()]
    assert found == sorted(found)
