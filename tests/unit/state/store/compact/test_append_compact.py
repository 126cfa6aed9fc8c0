"""Append tables: small files become one, rows and their order stay."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.lsm.tree.append_pick import AppendCompactOptions, pick_append
from bucketline.state.store.table.table import Table, create_table, handle_of
from tests.support.tables.levels import sized_file

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])
OPTIONS = AppendCompactOptions(target_bytes=100, small_bytes=70, min_files=3)


def sizes(groups: list[tuple]) -> list[list[int]]:  # type: ignore[type-arg]
    return [[f.file_size for f in g] for g in groups]


@pytest.mark.parametrize(
    ("given", "minor", "full"),
    [
        ([], [], []),
        ([10], [], []),
        ([10, 20], [], [[10, 20]]),
        ([10, 20, 30], [[10, 20, 30]], [[10, 20, 30]]),
        ([60, 60], [[60, 60]], [[60, 60]]),
        ([10, 80, 10, 20], [], [[10, 20]]),
        ([60, 60, 10, 10, 10], [[60, 60], [10, 10, 10]], [[60, 60], [10, 10, 10]]),
    ],
)
def test_small_neighbours_are_packed_to_the_target(
    given: list[int], minor: list[list[int]], full: list[list[int]]
) -> None:
    files = [sized_file(f"f{i}", 0, size, sequence=i) for i, size in enumerate(given)]
    assert sizes(pick_append(files, OPTIONS, full=False)) == minor
    assert sizes(pick_append(files[::-1], OPTIONS, full=True)) == full


def rows(start: int, count: int = 10) -> pa.Table:
    return pa.table({"id": list(range(start, start + count)), "v": ["x"] * count}, schema=COLUMNS)


def made(path: Path, **options: str) -> Table:
    return create_table(
        str(path / "shop.db" / "t"), COLUMNS, options={k.replace("_", "-"): v for k, v in options.items()}
    )


def test_a_table_without_buckets_is_compacted_when_asked(tmp_path: Path) -> None:
    table = made(tmp_path)
    for i in range(4):
        table.write(rows(10 * i))
    assert table.compact("minor") is None
    assert table.compact() == 5
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(40))
    files = table.files().to_pylist()
    assert len(files) == 1 and files[0]["file_source"] == "COMPACT"
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and (newest.commit_kind.value, newest.delta_record_count) == ("COMPACT", 0)
    assert table.compact() is None


def test_a_bucketed_table_compacts_as_it_is_written(tmp_path: Path) -> None:
    table = made(tmp_path, bucket="1", bucket_key="id")
    for i in range(6):
        table.write(rows(10 * i))
    kinds = table.snapshots()["commit_kind"].to_pylist()
    assert kinds == ["APPEND"] * 5 + ["COMPACT", "APPEND"]
    assert table.to_arrow()["id"].to_pylist() == list(range(60))
    numbers = [(f["min_sequence_number"], f["max_sequence_number"]) for f in table.files().to_pylist()]
    assert sorted(numbers) == [(0, 49), (50, 59)]
