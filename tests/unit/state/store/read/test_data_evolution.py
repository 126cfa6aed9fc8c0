"""Tables with data evolution and row tracking: columns of a row in several files, row ids, deletion vectors.

The tables are append tables of ours whose manifests are edited to say what such writers say.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import CorruptFileError, SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.data_file import EMPTY_STATS, DataFileMeta
from bucketline.state.format.row_ranges import row_ranges
from bucketline.state.store.table.table import Table, handle_of, open_table
from tests.support.peers.our_tables import make_table
from tests.support.tables.edited_manifests import edit_manifests

COLUMNS = {"k": "INT NOT NULL", "a": "STRING", "b": "INT"}
TRACKING = {"row-tracking.enabled": "true"}
EVOLUTION = {**TRACKING, "data-evolution.enabled": "true"}

Change = Callable[[DataFileMeta, int], DataFileMeta]


def evolved(
    path: Path, commits: list[list[tuple[Any, ...]]], change: Change, options: dict[str, str] = EVOLUTION
) -> Table:
    """A table of these commits, one file each; `change` edits the file of commit n (from 0) in all manifests."""
    table = make_table(path, COLUMNS, options={"bucket": "-1"})
    for rows in commits:
        arrays = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), table.schema, strict=True)]
        table.write(pa.table(arrays, schema=table.schema))
    numbers: dict[str, int] = {}
    for snapshot_id in table.snapshots()["snapshot_id"].to_pylist():
        snapshot = handle_of(table).snapshot_store.get(snapshot_id)
        assert snapshot is not None
        for entry in handle_of(table).manifests.delta_entries(snapshot):
            numbers.setdefault(entry.file.file_name, len(numbers))

    def numbered(file: DataFileMeta) -> DataFileMeta:
        number = numbers[file.file_name]
        return change(replace(file, min_sequence_number=number + 1, max_sequence_number=number + 1), number)

    edit_manifests(path, numbered)
    schema = path / "schema" / "schema-0"
    found = json.loads(schema.read_text())
    schema.write_text(json.dumps(found | {"options": found["options"] | options}))
    return open_table(str(path))


def ids(*firsts: int, columns: dict[int, tuple[str, ...]] | None = None) -> Change:
    """The first row id of each commit's file; the columns of those that do not hold all."""

    def change(file: DataFileMeta, number: int) -> DataFileMeta:
        held = (columns or {}).get(number)
        if held is None:
            return replace(file, first_row_id=firsts[number])
        # The statistics of the file that was written say more columns than it is said to hold.
        return replace(file, first_row_id=firsts[number], write_cols=held, value_stats=EMPTY_STATS, value_stats_cols=())

    return change


FIRST = [(1, "a1", 10), (2, "a2", 20), (3, "a3", 30)]
SECOND = [(4, "a4", 40)]
NEWER_A = [(0, "A1", 0), (0, None, 0), (0, "A3", 0)]
NEWEST_B = [(0, "x", 100), (0, "x", 200), (0, "x", 300)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Rows 0 to 2 with newer values of `a` and then of `b`, and row 3."""
    held = {2: ("a",), 3: ("b",)}
    return evolved(tmp_path / "t", [FIRST, SECOND, NEWER_A, NEWEST_B], ids(0, 3, 0, 0, columns=held))


def rows(table: Table, **arguments: Any) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in table.to_arrow(**arguments).to_pylist()]


def test_each_column_comes_from_the_newest_file_that_holds_it(table: Table) -> None:
    assert rows(table) == [(1, "A1", 100), (2, None, 200), (3, "A3", 300), (4, "a4", 40)]
    assert rows(table, columns=["b"]) == [(100,), (200,), (300,), (40,)]
    assert rows(table, columns=["a", "k"]) == [("A1", 1), (None, 2), ("A3", 3), ("a4", 4)]
    assert table.to_arrow(columns=[]).num_rows == 4
    assert [rows(table, snapshot=n) for n in (1, 2, 3)] == [
        FIRST,
        FIRST + SECOND,
        [(1, "A1", 10), (2, None, 20), (3, "A3", 30), (4, "a4", 40)],
    ]


def test_filters_see_whole_rows(table: Table) -> None:
    assert rows(table, filter=(pc.field("a") == "A1") & (pc.field("b") == 100)) == [(1, "A1", 100)]
    assert rows(table, filter=pc.field("b") == 10) == []
    assert rows(table, filter=pc.field("a").is_null()) == [(2, None, 200)]
    assert rows(table, filter=pc.field("k") == 4) == [(4, "a4", 40)]
    assert rows(table, filter=pc.field("k") <= 2, columns=["b"]) == [(100,), (200,)]


def test_statistics_of_older_files_do_not_hide_newer_values(tmp_path: Path) -> None:
    def change(file: DataFileMeta, number: int) -> DataFileMeta:
        return replace(file, first_row_id=0, write_cols=("k", "a", "b") if number else None)

    table = evolved(tmp_path / "t", [FIRST, [(7, "z", 70), (8, "z", 80), (9, "z", 90)]], change)
    assert rows(table, filter=pc.field("k") == 7) == [(7, "z", 70)]
    assert rows(table, filter=pc.field("k") == 1) == []


def test_row_ids_and_sequence_numbers_are_read_where_they_are_asked_for(table: Table) -> None:
    assert table.to_arrow().schema.names == ["k", "a", "b"]
    assert rows(table, columns=["_ROW_ID", "k"]) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert rows(table, columns=["_SEQUENCE_NUMBER"]) == [(4,), (4,), (4,), (2,)], "of the newest file"
    for filter in (pc.field("_ROW_ID") >= 2, "_ROW_ID >= 2", "_ROW_ID >= 2 AND k > 0 AND _SEQUENCE_NUMBER IN (2, 4)"):
        assert rows(table, columns=["k"], filter=filter) == [(3,), (4,)]
    assert table.to_arrow(columns=["_ROW_ID"]).schema.field("_ROW_ID").type == pa.int64()


def test_row_ids_are_those_of_the_file_where_it_holds_them(tmp_path: Path) -> None:
    table = evolved(tmp_path / "t", [FIRST, SECOND], ids(5, 0), TRACKING)
    assert rows(table, columns=["k", "_ROW_ID"]) == [(1, 5), (2, 6), (3, 7), (4, 0)]
    plain = make_table(tmp_path / "plain", COLUMNS, options={"bucket": "-1"})
    with pytest.raises(SchemaMismatchError, match="unknown column '_ROW_ID'"):
        plain.to_arrow(columns=["_ROW_ID"])


def test_a_column_that_no_file_of_a_range_holds_is_null_unless_it_may_not_be(tmp_path: Path) -> None:
    table = evolved(tmp_path / "t", [FIRST, NEWER_A], ids(0, 0, columns={0: ("k",), 1: ("a",)}))
    assert rows(table) == [(1, "A1", None), (2, None, None), (3, "A3", None)]
    assert rows(table, filter=pc.field("b").is_null(), columns=["k"]) == [(1,), (2,), (3,)]
    keyless = evolved(tmp_path / "u", [FIRST, NEWER_A], ids(0, 0, columns={0: ("b",), 1: ("a",)}))
    with pytest.raises(CorruptFileError, match="column k is NOT NULL"):
        keyless.to_arrow()


def test_a_column_in_files_of_its_own_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    def change(file: DataFileMeta, number: int) -> DataFileMeta:
        if not number:
            return replace(file, first_row_id=0, write_cols=("k", "b"), value_stats=EMPTY_STATS, value_stats_cols=())
        name = file.file_name.replace(".parquet", ".vector.parquet")
        return replace(file, first_row_id=1, file_name=name, write_cols=("a",), value_stats=EMPTY_STATS)

    table = evolved(tmp_path / "t", [FIRST, SECOND], change)
    assert rows(table, columns=["k", "b"], filter=pc.field("b") > 10) == [(2, 20), (3, 30)]
    with pytest.raises(UnsupportedTableError, match=r"column a is stored in a separate file, .*\.vector\.parquet"):
        table.to_arrow()


def test_blob_columns_are_refused_with_the_columns_that_can_be_read(table: Table) -> None:
    schema = Path(table.path) / "schema" / "schema-0"
    found = json.loads(schema.read_text())
    blob = {"id": 9, "name": "picture", "type": "BLOB"}
    schema.write_text(json.dumps(found | {"fields": [*found["fields"], blob], "highestFieldId": 9}))
    with pytest.raises(UnsupportedTableError, match=r"column picture.*BLOB cannot be read.*columns=\['k', 'a', 'b'\]"):
        open_table(table.path).to_arrow()
    assert rows(open_table(table.path), columns=["k"]) == [(1,), (2,), (3,), (4,)]


def test_renamed_columns_are_found_by_their_id(table: Table) -> None:
    schema = Path(table.path) / "schema" / "schema-0"
    found = json.loads(schema.read_text())
    fields = [f | {"name": "renamed"} if f["name"] == "a" else f for f in found["fields"]]
    schema.with_name("schema-1").write_text(json.dumps(found | {"id": 1, "fields": fields}))
    assert rows(open_table(table.path), columns=["renamed"]) == [("A1",), (None,), ("A3",), ("a4",)]


def test_batches_of_files_need_not_have_the_same_rows(tmp_path: Path) -> None:
    count = 70_000
    first = [(n, "w" * (n % 50), n) for n in range(count)]
    newer = [(0, None, -n) for n in range(count)]
    table = evolved(tmp_path / "t", [first, newer], ids(0, 0, columns={1: ("b",)}))
    found = table.to_arrow(columns=["k", "b", "_ROW_ID"])
    assert found["b"].to_pylist() == [-n for n in range(count)]
    assert found["k"].to_pylist() == found["_ROW_ID"].to_pylist() == list(range(count))


@pytest.mark.parametrize("firsts", [(0, 1), (1, 0)])
def test_ranges_that_overlap_without_being_the_same_are_corrupt(tmp_path: Path, firsts: tuple[int, int]) -> None:
    table = evolved(tmp_path / "t", [FIRST, NEWER_A], ids(*firsts, columns={1: ("a",)}))
    with pytest.raises(CorruptFileError, match="files that overlap must hold the same rows"):
        table.to_arrow()


def test_files_without_row_ids_are_corrupt(tmp_path: Path) -> None:
    table = evolved(tmp_path / "t", [FIRST], lambda file, number: file)
    with pytest.raises(CorruptFileError, match="has no row ids"):
        table.to_arrow()


def test_changes_are_the_rows_of_each_commit(table: Table) -> None:
    """Source: Paimon reads the new files of a commit by themselves; columns that they do not hold are null."""
    assert rows(table, changes_since=1, snapshot=2) == [(4, "a4", 40, 0)]
    assert rows(table, columns=["a"], changes_since=2, snapshot=3) == [("A1", 0), (None, 0), ("A3", 0)]


def test_files_show_columns_that_they_do_not_hold_as_null(table: Table) -> None:
    found = {f["max_sequence_number"]: f for f in table.files().to_pylist()}
    assert (found[3]["write_cols"], found[3]["null_value_counts"]) == (["a"], "{a=null, b=3, k=3}")
    assert found[1]["null_value_counts"] == "{a=0, b=0, k=0}"
    assert [found[n]["first_row_id"] for n in (1, 2, 3, 4)] == [0, 3, 0, 0]


def test_the_doctor_finds_nothing_wrong_with_rows_in_several_files(table: Table) -> None:
    assert [f for f in table.doctor(rows=True) if f.severity == "error"] == []


def test_tables_with_data_evolution_are_not_written(table: Table) -> None:
    with pytest.raises(OptionError, match=r"data-evolution\.enabled"):
        table.write(table.to_arrow())


def test_ranges_are_in_the_order_of_row_ids_and_newest_files_first(table: Table) -> None:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    files = [e.file for e in handle_of(table).manifests.live_entries(newest)]
    found = row_ranges(reversed(files))
    assert [(r.first_row_id, r.row_count, len(r.files)) for r in found] == [(0, 3, 3), (3, 1, 1)]
    assert [f.max_sequence_number for f in found[0].files] == [4, 3, 1]
    assert found[0].anchor.max_sequence_number == 1
