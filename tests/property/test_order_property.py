"""Sorting, key borders and normalized keys against a comparator that follows Java's rules one value at a time."""

import datetime
import functools
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.binary_row import encode_rows
from bucketline.state.types.logical import DataType, parse_type_text
from bucketline.state.types.order import key_changes, key_order, normalized_keys, sort_indices


def _scaled(unscaled: int, scale: int) -> Decimal:
    # Decimal's own arithmetic rounds to the context's 28 digits.
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


_TIMES = st.datetimes(min_value=datetime.datetime(1700, 1, 1), max_value=datetime.datetime(2200, 1, 1))
_SHORT_TEXT = st.text(st.sampled_from("\0\x01aé\uffff\U00010000\U0010ffff"), max_size=4)
_FLOATS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1e-40, 1.5, math.inf, math.nan])
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 2),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "FLOAT": _FLOATS,
    "DOUBLE": _FLOATS | st.floats(),
    "DECIMAL(9, 2)": st.decimals(-9999999, 9999999, places=2),
    "DECIMAL(18, 0)": st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal),
    "DECIMAL(30, 3)": st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: _scaled(n, 3)),
    "STRING": _SHORT_TEXT | st.text(max_size=12),
    "BYTES": st.binary(max_size=4),
    "DATE": st.dates(),
    "TIME(3)": st.integers(0, 86_399_999),
    "TIMESTAMP(3)": _TIMES.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "TIMESTAMP(6)": _TIMES,
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": _TIMES,
}


def _compare_value(one: Any, other: Any) -> int:
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    if isinstance(one, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) - math.isnan(other)
        if one == other:
            return (math.copysign(1, one) > 0) - (math.copysign(1, other) > 0) if one == 0 else 0
    return (one > other) - (one < other)


def _compare(one: Sequence[Any], other: Sequence[Any]) -> int:
    return next((c for a, b in zip(one, other, strict=True) if (c := _compare_value(a, b))), 0)


def _array(values: Sequence[Any], data_type: DataType) -> pa.Array:
    if "TIME(" in str(data_type):
        return pa.array(values, pa.int32()).cast(arrow_type(data_type))
    return pa.array(values, arrow_type(data_type))


@st.composite
def _keyed_rows(draw: st.DrawFn, *, nulls: bool) -> tuple[list[DataType], list[tuple[Any, ...]]]:
    texts = draw(st.lists(st.sampled_from(sorted(_VALUES)), min_size=1, max_size=3))
    values = [_VALUES[t] | st.none() if nulls else _VALUES[t] for t in texts]
    rows = draw(st.lists(st.tuples(*values), max_size=12))
    # Repeated rows are what stability and borders are about.
    rows += draw(st.lists(st.sampled_from(rows), max_size=4)) if rows else []
    return [parse_type_text(t) if nulls else parse_type_text(t).not_null() for t in texts], rows


def _columns(types: Sequence[DataType], rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
    return [_array([row[i] for row in rows], t) for i, t in enumerate(types)]


def _naive_order(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return sorted(range(len(rows)), key=functools.cmp_to_key(lambda a, b: _compare(rows[a], rows[b])))


@settings(deadline=None, max_examples=150)
@given(_keyed_rows(nulls=True), st.integers(1, 5))
def test_rows_sort_as_java_compares_them_and_ties_keep_their_order(
    keyed: tuple[list[DataType], list[tuple[Any, ...]]], chunk_rows: int
) -> None:
    types, rows = keyed
    names = [f"k{i}" for i in range(len(types))]
    table = pa.table(_columns(types, rows), names=names)
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=chunk_rows), schema=table.schema)
    expected = _naive_order(rows)
    assert sort_indices(table, names).to_pylist() == expected
    assert sort_indices(chunked, names).to_pylist() == expected
    in_order = [rows[i] for i in expected]
    borders = [i == 0 or _compare(in_order[i - 1], in_order[i]) != 0 for i in range(len(rows))]
    assert key_changes(table.take(pa.array(expected, pa.int64())), names).tolist() == borders


@settings(deadline=None, max_examples=150)
@given(_keyed_rows(nulls=True))
def test_then_columns_run_their_own_way_with_nulls_first_in_both(
    keyed: tuple[list[DataType], list[tuple[Any, ...]]],
) -> None:
    types, rows = keyed
    names = [f"k{i}" for i in range(len(types))]
    table = pa.table([*_columns(types, rows), pa.array([i % 2 for i in range(len(rows))])], names=[*names, "key"])

    def compare(a: int, b: int) -> int:
        if a % 2 != b % 2:
            return a % 2 - b % 2
        for one, other in zip(rows[a], rows[b], strict=True):
            found = _compare_value(one, other)
            if found:
                return found if one is None or other is None else -found
        return 0

    found = sort_indices(table, ["key"], then=[(n, "descending") for n in names])
    assert found.to_pylist() == sorted(range(len(rows)), key=functools.cmp_to_key(compare))


@settings(deadline=None, max_examples=200)
@given(_keyed_rows(nulls=False), st.integers(0, 3))
def test_normalized_keys_are_ordered_as_the_keys_are(
    keyed: tuple[list[DataType], list[tuple[Any, ...]]], skipped: int
) -> None:
    types, rows = keyed
    columns = [c.slice(skipped) for c in _columns(types, rows)]
    rows = rows[skipped:]
    found = normalized_keys(columns, types)
    assert len(found) == len(rows)
    assert found.type in (pa.int64(), pa.large_binary())
    found.validate(full=True)
    keys = found.to_pylist()
    for a in range(len(rows)):
        for b in range(len(rows)):
            assert (keys[a] > keys[b]) - (keys[a] < keys[b]) == _compare(rows[a], rows[b])


@settings(deadline=None, max_examples=100)
@given(_keyed_rows(nulls=True))
def test_serialized_keys_are_ordered_as_their_rows_are(keyed: tuple[list[DataType], list[tuple[Any, ...]]]) -> None:
    types, rows = keyed
    serialized = encode_rows(_columns(types, rows), types, with_arity=True).to_pylist()
    keys = [key_order(types)(s) for s in serialized]
    for a in range(len(rows)):
        for b in range(len(rows)):
            assert (keys[a] > keys[b]) - (keys[a] < keys[b]) == _compare(rows[a], rows[b])


@pytest.mark.parametrize("text", ["FLOAT", "DOUBLE"])
def test_every_nan_is_one_key_and_the_last_one(text: str) -> None:
    if text == "FLOAT":
        values = np.array([0x7FC00000, 0xFFC00001, 0x7F800000, 0x80000000, 0], dtype=np.uint32).view(np.float32)
    else:
        bits = [0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0 << 48, 1 << 63, 0]
        values = np.frombuffer(b"".join(struct.pack("<Q", b) for b in bits), dtype=np.float64)
    table = pa.table({"k": pa.array(values)})
    assert sort_indices(table, ["k"]).to_pylist() == [3, 4, 2, 0, 1]
    assert key_changes(table.take(pa.array([3, 4, 2, 0, 1])), ["k"]).tolist() == [True, True, True, True, False]
    keys = normalized_keys([table["k"]], [parse_type_text(text)]).to_pylist()
    assert keys[0] == keys[1] == max(keys)
