"""Rows of other libraries are written, merged and put in the place of others as they are."""

from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.store.engine.given_streams import plain_type

COLUMNS = (
    "id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>, place ROW<city STRING>, raw BYTES, amount DECIMAL(10, 2)"
)


def table(folder: Path, name: str = "t") -> bl.Table:
    return bl.create_table(f"{folder}/shop.db/{name}", COLUMNS, ["id"], options={"bucket": "2"})


def frame(*ids: int, note: str = "n") -> pl.DataFrame:
    return pl.DataFrame(
        {
            "id": list(ids),
            "name": pl.Series([f"{note}{i % 2}" for i in ids], dtype=pl.Categorical),
            "tags": [[f"t{i}"] for i in ids],
            "place": [{"city": f"c{i}"} for i in ids],
            "raw": [bytes([i]) for i in ids],
            "amount": pl.Series([f"{i}.25" for i in ids]).cast(pl.Decimal(10, 2)),
        }
    )


def test_frames_of_polars_pandas_and_duckdb_are_written(tmp_path: Path) -> None:
    found = table(tmp_path)
    found.write(frame(1, 2))
    found.write(found.to_pandas().assign(id=[3, 4]))
    found.write(
        duckdb.sql("SELECT 5::BIGINT id, 'x' \"name\", ['q'] tags, {'city': 'y'} place, 'a'::BLOB raw, 1.5 amount")
    )
    rows = found.to_arrow().sort_by("id").to_pylist()
    assert [r["id"] for r in rows] == [1, 2, 3, 4, 5]
    assert rows[0] | {"id": 3} == rows[2] and rows[0]["tags"] == ["t1"] and rows[4]["place"] == {"city": "y"}


def test_a_table_is_written_into_another_one(tmp_path: Path) -> None:
    one, other = table(tmp_path), table(tmp_path, "other")
    one.write(frame(1, 2, 3))
    other.write(one)
    other.overwrite(one.dataset().filter(pa.compute.field("id") > 1))
    assert other.to_arrow().sort_by("id").equals(one.to_arrow(filter="id > 1").sort_by("id"))


def test_a_frame_is_merged_and_takes_the_place_of_rows(tmp_path: Path) -> None:
    found = table(tmp_path)
    found.write(frame(1, 2))
    found.merge(frame(2, 3, note="new"), on=["id"], when_matched={"name": bl.expr("concat(source.name, '!')")})
    assert found.to_arrow(["id", "name"]).sort_by("id")["name"].to_pylist() == ["n1", "new0!", "new1"]
    found.overwrite(frame(9))
    assert found.to_arrow(["id"])["id"].to_pylist() == [9]


def test_row_kinds_come_as_a_column_of_a_frame(tmp_path: Path) -> None:
    found = table(tmp_path)
    found.write(frame(1, 2))
    found.write(frame(1).with_columns(kind=pl.lit(3, pl.Int8)), row_kinds="kind")
    assert found.to_arrow(["id"])["id"].to_pylist() == [2]


def test_one_array_of_rows_is_taken_too(tmp_path: Path) -> None:
    class Rows:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return pa.record_batch({"id": [7], "name": ["x"]}).__arrow_c_array__(requested_schema)

    found = bl.create_table(f"{tmp_path}/shop.db/a", "id BIGINT NOT NULL, name STRING", ["id"], options={"bucket": "1"})
    found.write(Rows())
    assert found.to_arrow().to_pylist() == [{"id": 7, "name": "x"}]


@pytest.mark.parametrize("data", [5, [1], "x", {"id": [1]}])
def test_what_is_no_arrow_data_is_refused(tmp_path: Path, data: object) -> None:
    with pytest.raises(bl.SchemaMismatchError, match="__arrow_c_stream__"):
        table(tmp_path).write(data)  # type: ignore[arg-type]


def test_the_index_of_a_pandas_frame_is_a_column_that_the_table_does_not_have(tmp_path: Path) -> None:
    found = bl.create_table(f"{tmp_path}/shop.db/a", "id BIGINT NOT NULL", ["id"], options={"bucket": "1"})
    with pytest.raises(bl.SchemaMismatchError, match="__index_level_0__"):
        found.write(pd.DataFrame({"id": [1]}, index=[5]))
    found.write(pd.DataFrame({"id": [1]}))
    assert found.to_arrow().num_rows == 1


def test_views_become_plain_types_at_any_depth() -> None:
    view = pa.string_view()
    nested = pa.struct([("a", pa.large_list(view)), ("m", pa.map_(view, pa.binary_view()))])
    assert plain_type(nested) == pa.struct([("a", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.binary()))])
    assert plain_type(pa.dictionary(pa.int8(), view)) == pa.string()
    kept = pa.dictionary(pa.int8(), pa.string())
    assert plain_type(kept) == kept and plain_type(pa.large_string()) == pa.large_string()
