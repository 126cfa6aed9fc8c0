"""Upserts across partitions through table.write: one row a key, wherever its newest row says."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.table.write import write_table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])


def crossing(path: Path, **options: str) -> Table:
    chosen = {"bucket": "-1", **options}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), chosen)


def rows(*triples: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, t, strict=True)) for t in triples], schema=COLUMNS)


def write(table: Table, data: pa.Table, kinds: list[int] | None = None) -> int:
    given = None if kinds is None else pa.array(kinds, pa.int8())
    return write_table(
        handle_of(table), data, given, options={"local-directory": str(Path(table.path).parent / "local")}
    )


def content(table: Table) -> list[tuple[int, int, int]]:
    return sorted((r["id"], r["v"], r["pt"]) for r in table.to_arrow().to_pylist())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (1, 11, 2)),
        ({"merge-engine": "partial-update"}, (1, 11, 1)),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, (1, 21, 1)),
    ],
)
def test_a_key_that_comes_from_another_partition(
    options: dict[str, str], expected: tuple[int, int, int], tmp_path: Path
) -> None:
    table = crossing(tmp_path, **options)
    write(table, rows((1, 10, 1), (2, 20, 1), (3, 30, 1), (4, 40, 1)))
    write(table, rows((1, 11, 2)))
    assert content(table) == [expected, (2, 20, 1), (3, 30, 1), (4, 40, 1)]
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None and newest.index_manifest is None


def test_random_moves_equal_a_dictionary_and_survive_a_lost_index(tmp_path: Path) -> None:
    table, expected = crossing(tmp_path, **{"dynamic-bucket.target-row-num": "40"}), dict[int, tuple[int, int]]()
    random = np.random.default_rng(11)
    for batch in range(10):
        ids, parts = random.integers(0, 150, 80), random.integers(0, 3, 80)
        kinds = np.where(random.random(80) < 0.15, 3, 0)
        write(table, rows(*((int(i), batch, int(p)) for i, p in zip(ids, parts, strict=True))), kinds.tolist())
        for i, p, k in zip(ids.tolist(), parts.tolist(), kinds.tolist(), strict=True):
            if k:
                expected.pop(i, None)
            else:
                expected[i] = (batch, p)
        assert content(table) == sorted((i, v, p) for i, (v, p) in expected.items())
        if batch == 4:
            for path in sorted((Path(table.path).parent / "local").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        if batch == 6:
            table.compact()


def test_a_retract_takes_no_partition_away(tmp_path: Path) -> None:
    table = crossing(tmp_path, **{"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"})
    write(table, rows((1, 10, 1)))
    write(table, rows((1, 4, 2)), [3])
    assert content(table) == [(1, 6, 1)]
    table.compact()
    assert content(table) == [(1, 6, 1)]
