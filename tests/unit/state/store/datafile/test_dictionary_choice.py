"""Which columns get a dictionary, and that no column is a third slower for one that is given up."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.state.store.datafile.dictionary_choice import DictionaryChoice, is_worth_dictionary
from bucketline.state.store.datafile.parquet_sink import ParquetSink
from bucketline.state.store.table.table import create_table

RANDOM = np.random.default_rng(7)
ROWS = 20_000


@pytest.mark.parametrize(
    ("distinct", "worth"), [(1, True), (5_000, True), (60_000, True), (1_000_000, False), (2**62, False)]
)
def test_a_dictionary_of_longs_is_chosen_up_to_what_fits_into_it(distinct: int, worth: bool) -> None:
    assert is_worth_dictionary(pa.array(RANDOM.integers(0, distinct, ROWS))) == worth


def test_long_texts_fill_a_dictionary_sooner() -> None:
    numbers = RANDOM.integers(0, 30_000, ROWS).tolist()
    assert is_worth_dictionary(pa.array([f"{n:020}" for n in numbers]))
    assert not is_worth_dictionary(pa.array([f"{n:0200}" for n in numbers]))


@pytest.mark.parametrize("column", [pa.nulls(ROWS, pa.int64()), pa.array([], pa.string()), pa.array(range(100))])
def test_short_and_empty_columns_get_one(column: pa.Array) -> None:
    assert is_worth_dictionary(column)


def test_chunks_are_one_column() -> None:
    values = RANDOM.integers(0, 2**62, ROWS)
    assert not is_worth_dictionary(pa.chunked_array([values[:10], values[10:]]))


def test_a_file_has_dictionaries_for_repeated_values_only() -> None:
    rows = pa.table({"few": RANDOM.integers(0, 9, ROWS), "many": RANDOM.integers(0, 2**62, ROWS)})
    out = pa.BufferOutputStream()
    sink = ParquetSink(out, rows.schema, codec="NONE", codec_level=None, first=rows)
    sink.write(rows)
    sink.close()
    group = pq.read_metadata(pa.BufferReader(out.getvalue())).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(2)] == [True, False]


def test_rows_with_nested_columns_are_written_however_many_there_are(tmp_path: Path) -> None:
    nested = pa.table(
        {
            "id": range(2000),
            "l": [[n] for n in range(2000)],
            "s": pa.array([{"a": n} for n in range(2000)], pa.struct([("a", pa.int64())])),
            "m": pa.array([[("k", n)] for n in range(2000)], pa.map_(pa.string(), pa.int64())),
        }
    )
    table = create_table(str(tmp_path / "shop.db" / "t"), nested.schema, options={"file.format": "parquet"})
    table.write(nested)
    assert table.to_arrow().to_pylist() == nested.to_pylist()


def test_an_eighth_of_a_small_file_is_looked_at() -> None:
    first = RANDOM.integers(0, 2**62, 2000)
    assert not is_worth_dictionary(pa.array([*first.tolist(), *[7] * 14_000]))


@pytest.mark.parametrize(("nulls", "worth"), [(1, False), (500, False), (1000, True)])
def test_a_small_file_gets_no_dictionary_for_a_few_nulls(nulls: int, worth: bool) -> None:
    values = RANDOM.integers(0, 2**62, 3000).tolist()
    assert is_worth_dictionary(pa.array([*[None] * nulls, *values])) == worth


def test_the_first_file_with_enough_rows_decides_for_those_after_it() -> None:
    dictionaries = DictionaryChoice()
    few, many = pa.table({"a": range(100), "b": [7] * 100}), pa.table({"a": range(ROWS), "b": [7] * ROWS})
    assert dictionaries.of(["a", "b"], few) == ["a", "b"]
    assert dictionaries.of(["a", "b"], many) == ["b"]
    assert dictionaries.of(["a", "b"], pa.table({"a": [7] * ROWS, "b": range(ROWS)})) == ["b"]
