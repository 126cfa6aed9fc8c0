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
    ("distinct", "worth"), [(1, True), (5_000, True), (20_000, False), (1_000_000, False), (2**62, False)]
)
def test_a_dictionary_of_longs_is_chosen_where_it_takes_fewer_bytes(distinct: int, worth: bool) -> None:
    assert is_worth_dictionary(pa.array(RANDOM.integers(0, distinct, ROWS))) == worth


def test_long_texts_fill_a_dictionary_sooner() -> None:
    numbers = RANDOM.integers(0, 10_000, ROWS).tolist()
    assert is_worth_dictionary(pa.array([f"{n:020}" for n in numbers]))
    assert not is_worth_dictionary(pa.array([f"{n:0200}" for n in numbers]))


@pytest.mark.parametrize("column", [pa.nulls(ROWS, pa.int64()), pa.array([], pa.string()), pa.array([7, 8] * 50)])
def test_empty_columns_and_short_ones_of_few_values_get_one(column: pa.Array) -> None:
    assert is_worth_dictionary(column)


@pytest.mark.parametrize("rows", [60, 500, 1_100, 30_000])
@pytest.mark.parametrize("distinct", [2, 40, 1_000, 10_000, 2**40])
def test_files_are_hardly_larger_than_with_the_better_choice(rows: int, distinct: int) -> None:
    # 500 different values took twice the bytes with a dictionary, in each small file of a stream.
    values = RANDOM.integers(0, distinct, rows)
    sizes = {}
    for column in (pa.array(values), pa.array([f"text {n}" for n in values.tolist()])):
        for choice in (True, False):
            out = pa.BufferOutputStream()
            names = ["a"] if choice else []
            with pq.ParquetWriter(
                out, pa.schema([("a", column.type)]), compression="zstd", use_dictionary=names
            ) as file:
                file.write_table(pa.table({"a": column}))
            sizes[choice] = len(out.getvalue())
        assert sizes[is_worth_dictionary(column)] <= 1.3 * min(sizes.values()), (column.type, sizes)


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
    few, many = pa.table({"a": [7] * 100, "b": [7] * 100}), pa.table({"a": range(ROWS), "b": [7] * ROWS})
    assert dictionaries.of(["a", "b"], few) == ["a", "b"]
    assert dictionaries.of(["a", "b"], many) == ["b"]
    assert dictionaries.of(["a", "b"], pa.table({"a": [7] * ROWS, "b": range(ROWS)})) == ["b"]


def test_small_files_decide_for_later_files_of_their_size() -> None:
    dictionaries, random = DictionaryChoice(), np.random.default_rng(1)
    seven, unlike = pa.array([7] * 1000), pa.array(random.integers(0, 2**62, 1000))
    for number in range(8):
        # Seven of eight files have repeated values in "a", one has them in "b".
        first = {"a": seven, "b": unlike} if number != 3 else {"a": unlike, "b": seven}
        assert dictionaries.of(["a", "b"], pa.table(first)) == [n for n in first if first[n] is seven]
    assert dictionaries.of(["a", "b"], pa.table({"a": unlike, "b": seven})) == ["a"]
    other_size = pa.table({"a": unlike.slice(0, 400), "b": seven.slice(0, 400)})
    assert dictionaries.of(["a", "b"], other_size) == ["b"]
