"""Columns encoded at once against rows encoded one by one, over all atomic types."""

import math
import struct
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.types.binary_row import Timestamp, decode_row, encode_row, encode_rows, hash_rows
from bucketline.state.types.logical import DataType, TypeRoot, parse_type
from tests.support.models.internal_values import column_of, timestamp_unit
from tests.support.models.sweeps import draws

PRECISIONS = {"ms": (1, 1_000_000), "us": (1_000, 1_000), "ns": (1_000_000, 1)}


def _values(data_type: DataType) -> st.SearchStrategy[object]:
    root = data_type.root
    bits = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64, TypeRoot.DATE: 32}
    if root is TypeRoot.BOOLEAN:
        return st.booleans()
    if root in bits:
        return st.integers(-(2 ** (bits[root] - 1)), 2 ** (bits[root] - 1) - 1)
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return st.floats(width=32 if root is TypeRoot.FLOAT else 64)
    if root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return st.binary(max_size=30)
    if root is TypeRoot.TIME:
        return st.integers(0, 86_399_999)
    if root is TypeRoot.DECIMAL:
        assert data_type.precision is not None and data_type.scale is not None
        scale, limit = data_type.scale, 10**data_type.precision
        borders = [s * 2**k + d for k in range(7, 127, 8) for s in (1, -1) for d in (-1, 0, 1)]
        near = st.sampled_from([0, *(b for b in borders if abs(b) < limit)])
        return st.one_of(st.integers(1 - limit, limit - 1), near).map(
            lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
        )
    per_milli, nanos = PRECISIONS[timestamp_unit(data_type)]
    return st.integers(-(2**63), 2**63 - 1).map(lambda t: Timestamp(t // per_milli, t % per_milli * nanos))


TYPES = [
    parse_type(t)
    for t in (
        "BOOLEAN,TINYINT,SMALLINT,INT,BIGINT,FLOAT,DOUBLE,CHAR(20),VARCHAR(20),STRING,BINARY(30),VARBINARY(30),BYTES,DATE,"
        "TIME(3),TIMESTAMP(0),TIMESTAMP(3),TIMESTAMP(6),TIMESTAMP(9),TIMESTAMP(3) WITH LOCAL TIME ZONE,"
        "TIMESTAMP(6) WITH LOCAL TIME ZONE,DECIMAL(1;0),DECIMAL(18;2),DECIMAL(19;2),DECIMAL(38;10)"
    )
    .replace(",", "|")
    .replace(";", ",")
    .split("|")
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[DataType], list[tuple[object, ...]]]:
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5))
    rows = draw(st.lists(st.tuples(*(st.none() | _values(t) for t in types)), min_size=1, max_size=12))
    return types, rows


def _murmur(row: bytes) -> int:
    mask = 0xFFFFFFFF
    h = 42
    for (k,) in struct.iter_unpack("<I", row):
        k = k * 0xCC9E2D51 & mask
        k = (k << 15 | k >> 17) & mask
        h ^= k * 0x1B873593 & mask
        h = (h << 13 | h >> 19) & mask
        h = h * 5 + 0xE6546B64 & mask
    h ^= len(row)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


def _same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        signs = math.copysign(1, left) == math.copysign(1, right)
        return (math.isnan(left) and math.isnan(right)) or (left == right and signs)
    return left == right and type(left) is type(right)


@draws(300)
@given(tables(), st.integers(0, 11), st.integers(0, 11))
def test_columns_encode_and_hash_as_their_rows_do(table, start: int, length: int) -> None:
    types, all_rows = table
    rows = all_rows[start : start + length]
    columns = [
        column_of([r[i] for r in all_rows], t).slice(min(start, len(all_rows)), length) for i, t in enumerate(types)
    ]
    expected = [encode_row(r, types) for r in rows]
    assert encode_rows(columns, types, with_arity=True).to_pylist() == expected
    bare = encode_rows(columns, types, with_arity=False)
    assert bare.to_pylist() == [e[4:] for e in expected]
    hashes = [_murmur(e[4:]) for e in expected]
    assert hash_rows(columns, types).to_pylist() == hashes


@draws(200)
@given(tables(), st.integers(0, 12))
def test_chunks_and_dictionaries_change_nothing(table, cut: int) -> None:
    types, rows = table
    columns = [column_of([r[i] for r in rows], t) for i, t in enumerate(types)]
    chunked = [pa.chunked_array([c.slice(0, cut), c.slice(min(cut, len(c)))]) for c in columns]
    expected = encode_rows(columns, types, with_arity=True)
    assert encode_rows(chunked, types, with_arity=True).equals(expected)
    assert encode_rows([c.dictionary_encode() for c in columns], types, with_arity=True).equals(expected)


@draws(200)
@given(tables())
def test_a_decoded_row_is_what_was_encoded(table) -> None:
    types, rows = table
    for row in rows:
        assert all(map(_same, decode_row(encode_row(row, types), types), row))
