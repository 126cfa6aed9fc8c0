"""Arguments that mean nothing are refused by name, before anything is written."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink


@pytest.mark.parametrize("value", [4, None, True, 1.5])
def test_values_of_options_are_text(value: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    text = r"'bucket' = .* in the table's options is no string"
    with pytest.raises(OptionError, match=text):
        create_table(path, "k INT", ("k",), options={"bucket": value})
    assert not (tmp_path / "t").exists()
    table = create_table(path, "k INT", ("k",), options={"bucket": "1"})
    with pytest.raises(OptionError, match=text):
        table.set_options({"bucket": value})
    with pytest.raises(OptionError, match="is no string"):
        open_table(path, options={"scan.snapshot-id": value})
    with pytest.raises(OptionError, match="is no string"):
        TableSink(path, options={"write-parallelism": value})


@pytest.mark.parametrize("name", ["", "  "])
def test_a_column_has_a_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a column or field needs a name"):
        create_table(
            str(tmp_path / "a"), pa.schema({"k": pa.int32(), name: pa.int32()}), ("k",), options={"bucket": "1"}
        )
    with pytest.raises(OptionError, match="a column or field needs a name"):
        create_table(str(tmp_path / "b"), pa.schema({"r": pa.struct({name: pa.int32()})}))
    table = create_table(str(tmp_path / "c"), "k INT, v INT", ("k",), options={"bucket": "1"})
    with pytest.raises(OptionError, match="a column or field needs a name"):
        table.rename_column("v", name)
    with pytest.raises(OptionError, match="a column or field needs a name"):
        table.add_column(name, "INT")
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_a_table_has_a_column(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a table needs at least one column"):
        create_table(str(tmp_path / "t"), pa.schema({}))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("bucket_num", [10**10, 2**31, 0, -1, "3", True, 2.0])
def test_a_number_of_buckets_is_a_number_that_files_can_name(bucket_num: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT", ("k",), options={"bucket": "1"})
    table.write(pa.table({"k": pa.array([1], pa.int32())}))
    with pytest.raises(OptionError, match="is not a number of buckets; give a whole number from 1 to 2147483647"):
        table.rescale(bucket_num)
    assert table.snapshots().num_rows == 1


@pytest.mark.parametrize("retained", [timedelta(days=-1), timedelta(0)])
def test_a_tag_is_kept_for_some_time(retained: timedelta, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT", ("k",), options={"bucket": "1"})
    table.write(pa.table({"k": pa.array([1], pa.int32())}))
    with pytest.raises(OptionError, match="a tag must be kept for a time above 0"):
        table.create_tag("x", retained=retained)
    assert table.tags().num_rows == 0


@pytest.mark.parametrize("argument", ["primary_key", "partition_by"])
def test_names_are_no_single_text(argument: str, tmp_path: Path) -> None:
    names: Any = {argument: "id"}
    with pytest.raises(OptionError, match=rf"{argument} must be a list of names, not a single string; write \('id',\)"):
        create_table(str(tmp_path / "t"), "id INT, i INT, d INT", **names)
    assert not (tmp_path / "t").exists()
    table = create_table(str(tmp_path / "t"), "id INT, i INT, d INT")
    with pytest.raises(OptionError, match="columns must be a list of names"):
        table.to_arrow(columns="id")


@pytest.mark.parametrize("value", ["x", 2.5, "1 ", True])
def test_a_value_that_no_partition_can_have_is_refused(value: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT, n INT, v INT", ("k", "n"), ("n",), options={"bucket": "1"})
    table.write(pa.table({name: pa.array([1], pa.int32()) for name in ("k", "n", "v")}))
    with pytest.raises(OptionError, match=r"is not a value of partition column 'n', which is INT; give a whole number"):
        table.drop_partitions([{"n": value}])
    with pytest.raises(OptionError, match=r"partitions must be a list of mappings; write \[\{'n': 1\}\]"):
        table.compact(partitions={"n": 1})  # type: ignore[arg-type]
    assert table.snapshots().num_rows == 1
    table.drop_partitions([{"n": None}])
    assert table.to_arrow().num_rows == 1
    table.drop_partitions([{"n": "1"}])
    assert table.to_arrow().num_rows == 0


def test_a_forgotten_filter_changes_no_row(tmp_path: Path) -> None:
    """`delete(None)` emptied the table."""
    table = create_table(str(tmp_path / "t"), "k INT, v INT", ("k",), options={"bucket": "1"})
    table.write(pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())}))
    for change in (table.delete, lambda none: table.update(none, {"v": 2})):
        with pytest.raises(OptionError, match="needs a filter, but the filter is None; give the filter 'true'"):
            change(None)  # type: ignore[arg-type, no-untyped-call]
    assert table.to_arrow().to_pylist() == [{"k": 1, "v": 1}]
    table.delete("true")
    assert table.to_arrow().num_rows == 0


@pytest.mark.parametrize("limit", [1.0, True, "1"])
def test_a_limit_is_a_whole_number(limit: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT")
    with pytest.raises(OptionError, match="the limit of a read must be a whole number of rows"):
        table.to_arrow(limit=limit)


@pytest.mark.parametrize("kinds", [[0], ("+I",), 0])
def test_row_kinds_are_an_array_or_a_name(kinds: Any, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "k INT", ("k",), options={"bucket": "1"})
    with pytest.raises(
        SchemaMismatchError, match=r"row_kinds must be an int8 array of pyarrow or the name of a column"
    ):
        table.write(pa.table({"k": pa.array([1], pa.int32())}), kinds)
    assert table.snapshots().num_rows == 0
