"""Readers hand out batches by bytes as well as by rows, whatever the file says of its size."""

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.state.store.datafile.parquet_rows import ParquetRows, TextSizes

KIB = 1 << 10


def rows_of(path: Path, table: pa.Table, *, group_rows: int = 4000, **options: object) -> ParquetRows:
    pq.write_table(table, path, row_group_size=group_rows, **options)
    return ParquetRows(pa.OSFile(str(path)))


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_values_that_pack_to_nothing_count_as_what_they_are_in_memory(tmp_path: Path, use_dictionary: bool) -> None:
    table = pa.table({"id": range(10_000), "body": ["x" * KIB] * 10_000})
    rows = rows_of(tmp_path / "f", table, compression="zstd", use_dictionary=use_dictionary)
    batches = list(rows.batches(["id", "body"], 32768, 256 * KIB))
    assert pa.Table.from_batches(batches).equals(table)
    assert max(b.nbytes for b in batches) <= 280 * KIB
    assert len(batches) < 60


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_values_that_leave_out_what_they_share_count_as_what_they_are_in_memory(tmp_path: Path, encoding: str) -> None:
    table = pa.table({"id": range(10_000), "body": ["x" * KIB] * 10_000})
    rows = rows_of(tmp_path / "f", table, use_dictionary=False, column_encoding={"body": encoding})
    batches = list(rows.batches(["id", "body"], 32768, 256 * KIB))
    assert pa.Table.from_batches(batches).equals(table)
    assert max(b.nbytes for b in batches) <= 280 * KIB


def test_nested_values_count_as_what_they_are_in_memory(tmp_path: Path) -> None:
    table = pa.table({"items": [[i] * 128 for i in range(4000)], "part": [{"body": "x" * KIB}] * 4000})
    batches = list(rows_of(tmp_path / "f", table).batches(["items", "part"], 32768, 256 * KIB))
    assert pa.Table.from_batches(batches).equals(table)
    assert max(b.nbytes for b in batches) <= 280 * KIB


def test_a_file_whose_rows_grow_gets_smaller_batches_from_the_next_row_group_on(tmp_path: Path) -> None:
    table = pa.table({"body": ["x"] * 4000 + ["x" * KIB] * 8000})
    rows = rows_of(tmp_path / "f", table)
    batches = list(rows.batches(["body"], 1000, 256 * KIB))
    assert pa.Table.from_batches(batches).equals(table)
    assert [b.num_rows for b in batches[:4]] == [1000] * 4
    assert max(b.nbytes for b in batches[8:]) <= 280 * KIB


def test_small_row_groups_are_put_together(tmp_path: Path) -> None:
    table = pa.table({"body": [f"row {i}" for i in range(1000)]})
    rows = rows_of(tmp_path / "f", table, group_rows=10)
    assert [b.num_rows for b in rows.batches(["body"], 500, 1 << 20)] == [500, 500]


def test_row_groups_that_are_chosen_are_read_alone(tmp_path: Path) -> None:
    table = pa.table({"body": [f"row {i}" for i in range(100)]})
    rows = rows_of(tmp_path / "f", table, group_rows=10)
    found = pa.Table.from_batches(rows.batches(["body"], 15, 1 << 20, [1, 2, 7]))
    assert found["body"].to_pylist() == [f"row {i}" for i in (*range(10, 30), *range(70, 80))]


def test_a_row_larger_than_a_batch_comes_alone(tmp_path: Path) -> None:
    table = pa.table({"body": ["x" * (64 * KIB)] * 5})
    assert [b.num_rows for b in rows_of(tmp_path / "f", table).batches(["body"], 100, KIB)] == [1] * 5


def test_columns_of_files_with_the_same_leaves_keep_their_own_names(tmp_path: Path) -> None:
    """Parquet's schemas are equal where their leaves are."""
    times = pa.array([{"a": 1}], pa.struct([("a", pa.timestamp("us"))]))
    found = []
    for name in ("before", "after"):
        pq.write_table(pa.table({name: times}), tmp_path / name, use_deprecated_int96_timestamps=True)
        found.append(ParquetRows(pa.OSFile(str(tmp_path / name))).int96_paths)
    assert found == [("before.a",), ("after.a",)]


def test_the_first_rows_of_a_file_are_not_looked_at_where_one_written_alike_was_read(tmp_path: Path) -> None:
    table = pa.table({"id": range(10_000), "body": [f"value {i % 50}" for i in range(10_000)]})
    pq.write_table(table, tmp_path / "f", row_group_size=10_000)
    sizes = TextSizes()
    asked, found = [], []
    for _ in range(3):
        source = _Counted((tmp_path / "f").read_bytes())
        found.append(
            list(ParquetRows(pa.PythonFile(source, mode="r")).batches(["id", "body"], 4000, 1 << 20, sizes=sizes))
        )
        asked.append(source.asked)
    assert asked[0] > asked[1] == asked[2]
    assert found[0] == found[1] == found[2]
    assert pa.Table.from_batches(found[2]).equals(table)


def test_a_file_with_larger_text_than_those_before_is_looked_at(tmp_path: Path) -> None:
    sizes = TextSizes()
    for size in (1, KIB):
        table = pa.table({"id": range(10_000), "body": [f"{i % 50}" * size for i in range(10_000)]})
        rows = rows_of(tmp_path / "f", table, group_rows=10_000)
        batches = list(rows.batches(["id", "body"], 32768, 256 * KIB, sizes=sizes))
        assert pa.Table.from_batches(batches).equals(table)
        assert max(b.nbytes for b in batches) <= 280 * KIB * 2


@pytest.mark.parametrize("value", ["long" * 900, "long" * 9000])
def test_a_file_that_holds_a_large_value_once_is_looked_at(tmp_path: Path, value: str) -> None:
    """Before it comes a file with many small ones that takes as many bytes."""
    sizes = TextSizes()
    for of_row in (lambda i: f"value {i % 3000}", lambda i: value if i % 50 else f"{i}"):
        table = pa.table({"id": range(10_000), "body": [of_row(i) for i in range(10_000)]})
        rows = rows_of(tmp_path / "f", table, group_rows=10_000)
        batches = list(rows.batches(["id", "body"], 32768, 256 * KIB, sizes=sizes))
        assert pa.Table.from_batches(batches).equals(table)
        assert max(b.nbytes for b in batches) <= 280 * KIB


class _Counted(BytesIO):
    """A file that counts how often it is read."""

    asked = 0

    def read(self, size: int | None = -1) -> bytes:
        self.asked += 1
        return super().read(size)
