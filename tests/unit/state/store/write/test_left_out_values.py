"""Rows of which the source leaves values out: the newest value that is there wins, in a batch and in the table."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketline.state.lsm.merge.left_out import NewestValues, pack_left_out, unpack_left_out
from bucketline.state.types.arrow import SEQUENCE, UNAVAILABLE, VALUE_KIND

NAMES = ("k", "a", "b", "c")
Row = tuple[int, int, tuple[int | None, int | None, int | None], tuple[bool, bool, bool]]
"""A key, a row kind, values of a, b and c, and which of them are left out."""


def drawn_rows(kinds: tuple[int, ...] = (0, 2, 3)) -> st.SearchStrategy[list[Row]]:
    values = st.tuples(*(st.none() | st.integers(0, 99) for _ in range(3)))
    row = st.tuples(st.integers(0, 3), st.sampled_from(kinds), values, st.tuples(*(st.booleans() for _ in range(3))))
    return st.lists(row, min_size=1, max_size=30)


def as_table(rows: list[Row]) -> pa.Table:
    """The rows as a write has them: a delete leaves nothing out."""
    left_out = {name: np.array([bool(row[3][i]) and row[1] != 3 for row in rows]) for i, name in enumerate(NAMES[1:])}
    columns: dict[str, Any] = {"k": pa.array([row[0] for row in rows], pa.int32())}
    for i, name in enumerate(NAMES[1:]):
        shown = [None if left_out[name][n] else row[2][i] for n, row in enumerate(rows)]
        columns[name] = pa.array(shown, pa.int32())
    columns[SEQUENCE] = pa.array(range(len(rows)), pa.int64())
    columns[VALUE_KIND] = pa.array([row[1] for row in rows], pa.int8())
    columns[UNAVAILABLE] = pack_left_out(left_out, NAMES, len(rows))
    return pa.table(columns)


def reference(rows: list[Row]) -> dict[int, tuple[int, list[Any], bool]]:
    """Row by row: of each key the kind, the values ("?" where nothing is known), and whether a delete came before."""
    state: dict[int, tuple[int, list[Any], bool]] = {}
    for key, kind, values, left_out in rows:
        if kind == 3:
            state[key] = (3, list(values), True)
            continue
        before = state.get(key)
        had_delete = before is not None and before[2]
        known = ["?"] * 3 if before is None or before[0] == 3 else before[1]
        state[key] = (kind, [known[i] if left_out[i] else values[i] for i in range(3)], had_delete)
    return state


def in_key_order(table: pa.Table) -> tuple[pa.Table, np.ndarray]:
    table = table.sort_by([("k", "ascending"), (SEQUENCE, "ascending")])
    keys = table["k"].to_numpy()
    return table, np.append(True, keys[1:] != keys[:-1])


@settings(max_examples=300, deadline=None)
@given(drawn_rows())
def test_folding_takes_the_newest_value_that_is_there(rows: list[Row]) -> None:
    table, starts = in_key_order(as_table(rows))
    folded = NewestValues(NAMES).fold(table, starts)
    bits = unpack_left_out(folded[UNAVAILABLE].combine_chunks(), len(NAMES))
    expected = reference(rows)
    assert folded["k"].to_pylist() == sorted(expected)
    for at, row in enumerate(folded.to_pylist()):
        kind, values, had_delete = expected[row["k"]]
        assert row[VALUE_KIND] == kind
        open_values = [bool(b) for b in bits[at][1:4]]
        if kind == 3:
            assert not any(open_values)
            continue
        assert open_values == [value == "?" for value in values]
        assert [row[n] for n, value in zip(NAMES[1:], values, strict=True) if value != "?"] == [
            value for value in values if value != "?"
        ]
        assert bits[at][4] == (had_delete and "?" in values)


@settings(max_examples=200, deadline=None)
@given(drawn_rows(), st.integers(0, 30))
def test_folding_parts_first_gives_the_same(rows: list[Row], cut: int) -> None:
    table, starts = in_key_order(as_table(rows))
    whole = NewestValues(NAMES).fold(table, starts)
    parts = []
    for part in (
        table.filter(pa.array(table[SEQUENCE].to_numpy() < cut)),
        table.filter(pa.array(table[SEQUENCE].to_numpy() >= cut)),
    ):
        if part.num_rows:
            parts.append(NewestValues(NAMES).fold(*in_key_order(part)))
    again = NewestValues(NAMES).fold(*in_key_order(pa.concat_tables(parts)))
    assert again.drop_columns(UNAVAILABLE).equals(whole.drop_columns(UNAVAILABLE))
    marks = [unpack_left_out(t[UNAVAILABLE].combine_chunks(), len(NAMES)) for t in (whole, again)]
    assert np.array_equal(*marks)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(0, 20), st.randoms())
def test_marks_are_unpacked_as_they_were_packed(column_count: int, count: int, random: Any) -> None:
    names = [f"c{i}" for i in range(column_count)]
    marks = {name: np.array([random.random() < 0.3 for _ in range(count)], dtype=bool) for name in names}
    gone = np.array([random.random() < 0.3 for _ in range(count)], dtype=bool)
    column = pack_left_out(marks, names, count, gone)
    bits = unpack_left_out(column, column_count)
    some = np.logical_or.reduce(list(marks.values()))
    assert column.is_valid().to_pylist() == some.tolist()
    assert all(np.array_equal(bits[:, i], marks[name]) for i, name in enumerate(names))
    assert np.array_equal(bits[:, -1], gone & some)
