"""Rows of every type that Avro holds, written by us and read back by fastavro."""

import json
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.format.avro.container import BlockReader, encode_varint
from bucketline.state.format.avro.data_schema import map_entry
from bucketline.state.format.avro.encode import AvroEncoder
from bucketline.state.format.avro.schema import inline_schema
from bucketline.state.types.arrow import arrow_schema, arrow_type
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type
from tests.support.models.sweeps import draws

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
INTEGERS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64, TypeRoot.DATE: 32}
ATOMIC = [
    parse_type(text)
    for text in (
        *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME(0)", "TIME(3)"),
        *("CHAR(20)", "VARCHAR(20)", "STRING", "BINARY(30)", "VARBINARY(30)", "BYTES"),
        *("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(4)", "TIMESTAMP(6)"),
        *("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        *("DECIMAL(1, 0)", "DECIMAL(9, 2)", "DECIMAL(18, 0)", "DECIMAL(19, 2)", "DECIMAL(38, 38)"),
    )
]


@st.composite
def data_types(draw: st.DrawFn, depth: int = 2) -> DataType:
    nullable = draw(st.booleans())
    roots = [TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW]
    root = draw(st.sampled_from([None, *roots])) if depth else None
    if root is None:
        found = draw(st.sampled_from(ATOMIC))
        return found if nullable else found.not_null()
    if root is TypeRoot.ROW:
        inner = draw(st.lists(data_types(depth - 1), min_size=1, max_size=3))
        return DataType(root, nullable, fields=tuple(DataField(i, f"f{i}", t) for i, t in enumerate(inner)))
    if root is TypeRoot.MAP:
        return DataType(root, nullable, key=draw(st.sampled_from(ATOMIC)), value=draw(data_types(depth - 1)))
    element = draw(data_types(depth - 1) if root is TypeRoot.ARRAY else st.sampled_from(ATOMIC))
    return DataType(root, nullable, element=element)


def values(data_type: DataType) -> st.SearchStrategy[object]:
    """Values as pyarrow takes them; those of times are plain integers."""
    found = present(data_type)
    return st.none() | found if data_type.nullable else found


def present(data_type: DataType) -> st.SearchStrategy[object]:
    root = data_type.root
    if root is TypeRoot.BOOLEAN:
        return st.booleans()
    if root in INTEGERS:
        limit = 2 ** (INTEGERS[root] - 1)
        return st.integers(-limit, limit - 1)
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return st.floats(width=32 if root is TypeRoot.FLOAT else 64, allow_nan=False)
    if root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return TEXT
    if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return st.binary(max_size=70)
    if root is TypeRoot.TIME:
        return st.integers(0, 86_399_999)
    if root is TypeRoot.DECIMAL:
        return decimals(data_type)
    if root is TypeRoot.ROW:
        return st.tuples(*(values(f.type) for f in data_type.fields)).map(
            lambda row: {f.name: v for f, v in zip(data_type.fields, row, strict=True)}
        )
    if root is TypeRoot.ARRAY:
        assert data_type.element is not None
        return st.lists(values(data_type.element), max_size=4)
    if root in (TypeRoot.MAP, TypeRoot.MULTISET):
        key, value = map_entry(data_type)
        counts = st.integers(1, 2**31 - 1) if root is TypeRoot.MULTISET else values(value)
        return st.lists(st.tuples(present(key), counts), max_size=4)
    return st.integers(-(2**63), 2**63 - 1)


def decimals(data_type: DataType) -> st.SearchStrategy[Decimal]:
    assert data_type.precision is not None and data_type.scale is not None
    scale, limit = data_type.scale, 10**data_type.precision
    borders = [s * 2**k + d for k in range(7, 127, 8) for s in (1, -1) for d in (-1, 0, 1)]
    near = st.sampled_from([0, -1, *(b for b in borders if abs(b) < limit)])
    return st.one_of(st.integers(1 - limit, limit - 1), near).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
    )


def stored(value: object, data_type: DataType) -> object:
    """What Avro holds of a value: decimals as bytes, maps as entries."""
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        number = (-1) ** sign * int("".join(map(str, digits)))
        return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
    if isinstance(value, dict):
        return {f.name: stored(value[f.name], f.type) for f in data_type.fields}
    if isinstance(value, list) and data_type.root is TypeRoot.ARRAY:
        assert data_type.element is not None
        return [stored(v, data_type.element) for v in value]
    if isinstance(value, list):
        key, item = map_entry(data_type)
        return [{"key": stored(k, key), "value": stored(v, item)} for k, v in value]
    return value


def read_back(data: bytes) -> list[dict[str, object]]:
    blocks = BlockReader(BytesIO(data).read, len(data))
    fastavro.parse_schema(json.loads(blocks.schema_text))
    items = fastavro.parse_schema({"type": "array", "items": inline_schema(blocks.schema_text)})
    found: list[dict[str, object]] = []
    for block in blocks:
        source = BytesIO(encode_varint(block.count) + block.body + b"\0")
        found += fastavro.schemaless_reader(source, items)
        assert source.tell() == len(source.getvalue())
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[DataField], list[tuple[object, ...]]]:
    fields = [DataField(i, f"c{i}", t) for i, t in enumerate(draw(st.lists(data_types(), min_size=1, max_size=4)))]
    return fields, draw(st.lists(st.tuples(*(values(f.type) for f in fields)), max_size=9))


@draws(300)
@given(tables(), st.integers(0, 4), st.integers(0, 9), st.sampled_from(["null", "deflate", "snappy", "zstandard"]))
def test_fastavro_reads_exactly_the_rows(table, start: int, cut: int, codec: str) -> None:
    fields, rows = table
    columns = [pa.array([row[i] for row in rows], arrow_type(f.type)) for i, f in enumerate(fields)]
    whole = pa.Table.from_arrays(columns, schema=arrow_schema(fields))
    encoder = AvroEncoder(tuple(fields), codec, None, b"seed")
    slices = [whole.slice(start, cut), whole.slice(start + cut)]
    chunked = pa.concat_tables(slices)
    for parts in ([chunked], slices):
        data = encoder.header() + b"".join(b for part in parts for b in encoder.block(part))
        expected = [{f.name: stored(v, f.type) for f, v in zip(fields, row, strict=True)} for row in rows[start:]]
        assert read_back(data) == expected


def test_nulls_that_lie_over_values_have_no_bytes() -> None:
    """Arrow lets a null list or struct lie over items; none of them may be written."""
    inner = pa.ListArray.from_arrays(pa.array([0, 2, 3, 5]), pa.array([1, 2, 3, 4, 5], pa.int32()))
    validity, offsets = pa.py_buffer(b"\x05"), inner.buffers()[1]
    lists = pa.Array.from_buffers(inner.type, 3, [validity, offsets], children=[inner.values])
    absent = pa.array([True, False, True])
    rows = pa.StructArray.from_arrays([inner, pa.array(["a", "b", "c"])], ["l", "s"], mask=absent)
    fields = [
        DataField(0, "lists", parse_type({"type": "ARRAY", "element": "INT"})),
        DataField(1, "rows", row_of(parse_type({"type": "ARRAY NOT NULL", "element": "INT NOT NULL"}))),
    ]
    encoder = AvroEncoder(tuple(fields), "null", None, b"")
    table = pa.table({"lists": lists, "rows": rows})
    assert read_back(encoder.header() + b"".join(encoder.block(table))) == [
        {"lists": [1, 2], "rows": None},
        {"lists": None, "rows": {"l": [3], "s": "b"}},
        {"lists": [4, 5], "rows": None},
    ]


def row_of(listed: DataType) -> DataType:
    text = parse_type("STRING NOT NULL")
    return DataType(TypeRoot.ROW, fields=(DataField(2, "l", listed), DataField(3, "s", text)))
