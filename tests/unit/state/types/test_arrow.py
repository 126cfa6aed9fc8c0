"""Logical types as Arrow types, physical columns of key-value files, and what conform lets through."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.arrow import (
    arrow_field,
    arrow_schema,
    arrow_type,
    conform,
    key_value_fields,
    logical_fields,
    logical_type,
)
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type, parse_type_text

UTC = datetime.UTC
ATOMIC = [
    ("BOOLEAN", pa.bool_()),
    ("TINYINT", pa.int8()),
    ("SMALLINT", pa.int16()),
    ("INT", pa.int32()),
    ("BIGINT", pa.int64()),
    ("FLOAT", pa.float32()),
    ("DOUBLE", pa.float64()),
    ("DECIMAL(9, 2)", pa.decimal128(9, 2)),
    ("DECIMAL(38, 10)", pa.decimal128(38, 10)),
    ("STRING", pa.string()),
    ("BYTES", pa.binary()),
    ("DATE", pa.date32()),
    ("TIME(3)", pa.time32("ms")),
    ("TIMESTAMP(3)", pa.timestamp("ms")),
    ("TIMESTAMP(6)", pa.timestamp("us")),
    ("TIMESTAMP(9)", pa.timestamp("ns")),
    ("TIMESTAMP(3) WITH LOCAL TIME ZONE", pa.timestamp("ms", "UTC")),
    ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.timestamp("us", "UTC")),
]
ROW = {"type": "ROW", "fields": [{"id": 28, "name": "a", "type": "INT"}, {"id": 29, "name": "b", "type": "STRING"}]}


def _schema(**types: object) -> TableSchema:
    fields = tuple(DataField(i, n, parse_type(t)) for i, (n, t) in enumerate(types.items()))
    return TableSchema(0, fields, len(fields) - 1)


def _conform(data_type: object, values: pa.Array) -> pa.Array:
    batch = pa.record_batch([values], names=["c"])
    return conform(batch, _schema(c=data_type)).column(0)


def _refused(data_type: object, values: pa.Array) -> SchemaMismatchError:
    with pytest.raises(SchemaMismatchError) as caught:
        _conform(data_type, values)
    assert str(caught.value.fields["column"]).split(".")[0] == "c"
    assert caught.value.fields["expected"] and caught.value.fields["found"]
    return caught.value


@pytest.mark.parametrize(("text", "arrow"), ATOMIC)
def test_atomic_types_go_to_arrow_and_back(text: str, arrow: pa.DataType) -> None:
    assert arrow_type(parse_type_text(text)) == arrow
    assert logical_type(arrow, nullable=True) == parse_type_text(text)
    assert logical_type(arrow, nullable=False) == parse_type_text(text).not_null()


@pytest.mark.parametrize(
    ("text", "arrow"),
    [
        ("CHAR(3)", pa.string()),
        ("VARCHAR(3)", pa.string()),
        ("BINARY(3)", pa.binary()),
        ("VARBINARY(3)", pa.binary()),
        ("TIME(0)", pa.time32("ms")),
        ("TIMESTAMP(0)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP(7) WITH LOCAL TIME ZONE", pa.timestamp("ns", "UTC")),
    ],
)
def test_parameters_choose_the_arrow_type(text: str, arrow: pa.DataType) -> None:
    assert arrow_type(parse_type_text(text)) == arrow


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.uint8(), "SMALLINT"),
        (pa.uint16(), "INT"),
        (pa.uint32(), "BIGINT"),
        (pa.large_string(), "STRING"),
        (pa.dictionary(pa.int8(), pa.string()), "STRING"),
        (pa.binary(4), "BINARY(4)"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("ns", "Asia/Shanghai"), "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        (pa.time32("s"), "TIME(0)"),
        (pa.time64("us"), "TIME(3)"),
        (pa.date64(), "DATE"),
        (pa.decimal256(38, 2), "DECIMAL(38, 2)"),
    ],
)
def test_tables_are_created_from_other_arrow_layouts(arrow: pa.DataType, text: str) -> None:
    assert logical_type(arrow, nullable=True) == parse_type_text(text)


@pytest.mark.parametrize(
    "arrow", [pa.null(), pa.uint64(), pa.duration("s"), pa.decimal256(39, 0), pa.decimal128(5, -1)]
)
def test_arrow_types_without_a_place_in_paimon_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="column x: Arrow type") as caught:
        logical_fields(pa.schema([pa.field("x", arrow)]))
    assert caught.value.fields["column"] == "x"


@pytest.mark.parametrize("text", ["VARIANT", "BLOB"])
def test_types_that_we_do_not_store_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedTableError, match=text):
        arrow_type(parse_type_text(text))


def test_rows_get_their_id_before_their_sub_fields() -> None:
    inner = pa.struct(
        [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.struct([("c", pa.int8())])))]
    )
    fields = logical_fields(pa.schema([("x", pa.int64()), ("r", inner), ("y", pa.int64())]))
    assert [f.id for f in fields] == [0, 1, 5]
    assert [(f.id, f.name) for f in fields[1].type.fields] == [(2, "a"), (3, "b")]
    assert fields[1].type.fields[1].type.element is not None
    assert fields[1].type.fields[1].type.element.fields[0].id == 4
    assert not fields[1].type.fields[0].type.nullable


def _ids(schema: pa.Schema) -> dict[str, int]:
    found = {}

    def visit(field: pa.Field, path: str) -> None:
        found[path] = int(field.metadata[b"PARQUET:field_id"])
        if pa.types.is_struct(field.type):
            for child in field.type:
                visit(child, f"{path}.{child.name}")
        if pa.types.is_list(field.type):
            visit(field.type.value_field, f"{path}.element")
        if pa.types.is_map(field.type):
            visit(field.type.key_field, f"{path}.key")
            visit(field.type.item_field, f"{path}.value")

    for field in schema:
        visit(field, field.name)
    return found


def test_nested_field_ids_are_those_java_writes() -> None:
    fields = [
        DataField(25, "arr", parse_type({"type": "ARRAY", "element": "INT"})),
        DataField(26, "map", parse_type({"type": "MAP", "key": "STRING", "value": "INT"})),
        DataField(27, "row", parse_type(ROW)),
    ]
    assert _ids(arrow_schema(fields)) == {
        "arr": 25,
        "arr.element": 536896512,
        "map": 26,
        "map.key": 536844286,
        "map.value": 536897536,
        "row": 27,
        "row.a": 28,
        "row.b": 29,
    }
    multiset = arrow_field(DataField(3, "m", parse_type({"type": "MULTISET", "element": "STRING"}))).type
    assert multiset.key_type == pa.string() and multiset.item_type == pa.int32()
    assert not multiset.item_field.nullable


def test_key_value_files_have_javas_columns() -> None:
    fields = (
        DataField(0, "dt", parse_type_text("STRING NOT NULL")),
        DataField(1, "a", parse_type_text("INT NOT NULL")),
        DataField(4, "k", parse_type_text("BIGINT NOT NULL")),
        DataField(2, "b", parse_type_text("STRING")),
    )
    schema = TableSchema(0, fields, 4, partition_keys=("dt",), primary_keys=("dt", "k", "a"))
    physical = arrow_schema((*key_value_fields(schema), *schema.fields))
    assert physical.names == ["_KEY_k", "_KEY_a", "_SEQUENCE_NUMBER", "_VALUE_KIND", "dt", "a", "k", "b"]
    assert list(_ids(physical).values()) == [1073741827, 1073741824, 2147483646, 2147483645, 0, 1, 4, 2]
    assert [f.nullable for f in physical] == [False] * 7 + [True]
    assert physical.field("_VALUE_KIND").type == pa.int8()


def test_field_ids_reach_the_parquet_file() -> None:
    schema = arrow_schema(
        key_value_fields(TableSchema(0, (DataField(0, "a", parse_type_text("INT NOT NULL")),), 0, (), ("a",)))
    )
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    found = str(pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema)
    assert "required int32 field_id=1073741823 _KEY_a" in found
    assert "required int32 field_id=2147483645 _VALUE_KIND (Int(bitWidth=8, isSigned=true))" in found


def test_columns_are_matched_by_name_and_extra_ones_follow() -> None:
    schema = _schema(a="INT NOT NULL", b="STRING")
    table = pa.table({"_row_kind": pa.array([0], pa.int8()), "b": ["x"], "a": pa.array([1], pa.int64())})
    found = conform(table, schema, extra={"_row_kind", "absent"})
    assert isinstance(found, pa.Table)
    assert found.schema.equals(
        pa.schema([*arrow_schema(schema.fields), pa.field("_row_kind", pa.int8())]), check_metadata=True
    )
    assert found.to_pylist() == [{"a": 1, "b": "x", "_row_kind": 0}]
    batch = conform(table.to_batches()[0], schema, extra=("_row_kind",))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.equals(found.to_batches()[0])


@pytest.mark.parametrize(
    ("names", "column", "words"),
    [
        (["a", "b", "c"], "c", "unknown"),
        (["a", "B"], "B", "unknown"),
        (["a"], "b", "missing"),
        (["a", "b", "b"], "b", "given 2 times"),
    ],
)
def test_unknown_missing_and_doubled_columns_are_named(names: list[str], column: str, words: str) -> None:
    batch = pa.record_batch([pa.array([1], pa.int32())] * len(names), names=names)
    with pytest.raises(SchemaMismatchError, match=f"column {column}: {words}") as caught:
        conform(batch, _schema(a="INT", b="INT"))
    assert caught.value.fields["column"] == column
    assert {"expected", "found"} <= set(caught.value.fields)


@pytest.mark.parametrize(
    ("data_type", "values", "expected"),
    [
        ("TINYINT", pa.array([-128, None], pa.int64()), [-128, None]),
        ("BIGINT", pa.array([7], pa.uint64()), [7]),
        ("INT", pa.array([2.0]), [2]),
        ("DOUBLE", pa.array([1.5], pa.float32()), [1.5]),
        ("DOUBLE", pa.array([2**53]), [float(2**53)]),
        ("FLOAT", pa.array([1.5, float("inf"), None]), [1.5, float("inf"), None]),
        ("DECIMAL(9, 2)", pa.array([5], pa.int64()), [Decimal("5.00")]),
        ("DECIMAL(20, 0)", pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
        ("DECIMAL(9, 2)", pa.array([Decimal("1.500")]), [Decimal("1.50")]),
        ("STRING", pa.array(["a", None], pa.large_string()), ["a", None]),
        ("STRING", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        ("STRING", pa.nulls(2), [None, None]),
        ("VARCHAR(2)", pa.array(["éé"]), ["éé"]),
        ("BYTES", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ("DATE", pa.array([datetime.date(2024, 1, 1)], pa.date64()), [datetime.date(2024, 1, 1)]),
        ("TIME(3)", pa.array([datetime.time(1, 0, 0, 5000)], pa.time64("us")), [datetime.time(1, 0, 0, 5000)]),
        ("TIMESTAMP(6)", pa.array([1], pa.timestamp("s")), [datetime.datetime(1970, 1, 1, 0, 0, 1)]),
        ("TIMESTAMP(0)", pa.array([1000], pa.timestamp("ms")), [datetime.datetime(1970, 1, 1, 0, 0, 1)]),
    ],
)
def test_values_that_fit_take_the_tables_type(data_type: str, values: pa.Array, expected: list[Any]) -> None:
    found = _conform(data_type, values)
    assert found.type == arrow_type(parse_type_text(data_type))
    assert found.to_pylist() == expected
    found.validate(full=True)


def test_a_nan_stays_one_when_a_double_becomes_a_float() -> None:
    assert str(_conform("FLOAT", pa.array([float("nan"), 1.0])).to_pylist()) == "[nan, 1.0]"


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        ("INT NOT NULL", pa.array([1, None], pa.int32())),
        ("STRING NOT NULL", pa.nulls(1)),
        ("TINYINT", pa.array([128])),
        ("INT", pa.array([1.5])),
        ("INT", pa.array([float("nan")])),
        ("INT", pa.array(["1"])),
        ("INT", pa.array([True])),
        ("INT", pa.array([1], pa.date32())),
        ("BOOLEAN", pa.array([1])),
        ("FLOAT", pa.array([0.1])),
        ("FLOAT", pa.array([2**24 + 1])),
        ("DECIMAL(3, 2)", pa.array([10])),
        ("DECIMAL(3, 2)", pa.array([Decimal("1.234")])),
        ("DECIMAL(3, 2)", pa.array([1.5])),
        ("STRING", pa.array([1])),
        ("STRING", pa.array([b"a"])),
        ("BYTES", pa.array(["a"])),
        ("VARCHAR(2)", pa.array(["abc"])),
        ("CHAR(1)", pa.array(["éé"])),
        ("VARBINARY(2)", pa.array([b"abc"])),
        ("BINARY(1)", pa.array([b"ab"], pa.binary(2))),
        ("DATE", pa.array([datetime.datetime(2024, 1, 1)])),
        ("TIME(3)", pa.array([1], pa.time64("us"))),
        ("TIME(0)", pa.array([1], pa.time32("ms"))),
        ("TIMESTAMP(3)", pa.array([1], pa.timestamp("us"))),
        ("TIMESTAMP(4)", pa.array([1], pa.timestamp("us"))),
        ("TIMESTAMP(9)", pa.array([2**40], pa.timestamp("s"))),
        ("TIMESTAMP(6)", pa.array([1], pa.timestamp("us", "UTC"))),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.array([1], pa.timestamp("us"))),
        ("TIMESTAMP(6)", pa.array([1])),
    ],
)
def test_values_that_do_not_fit_are_refused_by_column(data_type: str, values: pa.Array) -> None:
    assert "column c: expected " in _refused(data_type, values).message


def test_instants_of_any_zone_become_utc() -> None:
    values = pa.array([datetime.datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "Asia/Shanghai"))
    found = _conform("TIMESTAMP(3) WITH LOCAL TIME ZONE", values)
    assert found.type == pa.timestamp("ms", "UTC")
    assert found.cast(pa.int64()).to_pylist() == [1704067200000]


def test_a_type_is_judged_even_without_rows() -> None:
    table = pa.table({"c": pa.chunked_array([], pa.string())})
    with pytest.raises(SchemaMismatchError, match="column c: expected INT, found string"):
        conform(table, _schema(c="INT"))
    assert conform(pa.table({"c": pa.chunked_array([], pa.int64())}), _schema(c="INT")).num_rows == 0


ARRAY = {"type": "ARRAY", "element": "INT NOT NULL"}
LIST_OF_ROWS = {"type": "ARRAY", "element": ROW}
ROWS = [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]
MAP = {"type": "MAP", "key": "STRING", "value": "BIGINT"}


@pytest.mark.parametrize("skipped", [0, 1])
@pytest.mark.parametrize(
    ("data_type", "arrow", "values"),
    [
        (ARRAY, pa.list_(pa.int64()), [[1], None, [], [2, 3]]),
        (ARRAY, pa.large_list(pa.int8()), [[1], None, [], [2, 3]]),
        (ARRAY, pa.list_(pa.int64(), 2), [[1, 2], None, [3, 4]]),
        ({"type": "VECTOR", "element": "FLOAT", "length": 2}, pa.list_(pa.float64()), [[1.0, 2.0], None, [3.0, 4.0]]),
        (MAP, pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, [], [("b", None), ("c", 2)]]),
        (
            ROW,
            pa.struct([("b", pa.large_string()), ("a", pa.int64())]),
            [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
        ),
        (
            {"type": "ARRAY", "element": ROW},
            pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])),
            [None, [None]],
        ),
    ],
)
def test_nested_values_take_the_tables_types(
    data_type: object, arrow: pa.DataType, values: list[Any], skipped: int
) -> None:
    found = _conform(data_type, pa.array(values, arrow).slice(skipped))
    found.validate(full=True)
    assert found.type == arrow_field(DataField(0, "c", parse_type(data_type))).type
    assert found.to_pylist() == values[skipped:]


@pytest.mark.parametrize(
    ("data_type", "arrow", "values", "column"),
    [
        (ARRAY, pa.list_(pa.int64()), [[None]], "c.element"),
        (ARRAY, pa.list_(pa.int64()), [[2**40]], "c.element"),
        (ARRAY, pa.int64(), [1], "c"),
        (MAP, pa.map_(pa.int32(), pa.int32()), [[(1, 1)]], "c.key"),
        (MAP, pa.list_(pa.int32()), [[1]], "c"),
        (ROW, pa.struct([("a", pa.int32())]), [{"a": 1}], "c.b"),
        (ROW, pa.struct([("a", pa.string()), ("b", pa.string())]), [{"a": "1", "b": "1"}], "c.a"),
        (ROW, pa.int32(), [1], "c"),
        ({"type": "VECTOR", "element": "FLOAT", "length": 2}, pa.list_(pa.float32()), [[1.0]], "c"),
        (
            {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "INT NOT NULL"}]},
            pa.struct([("a", pa.int32())]),
            [{"a": None}],
            "c.a",
        ),
    ],
)
def test_nested_values_that_do_not_fit_are_refused_by_path(
    data_type: object, arrow: pa.DataType, values: list[Any], column: str
) -> None:
    assert _refused(data_type, pa.array(values, arrow)).fields["column"] == column


def test_a_map_without_rows_may_lack_its_one_offset() -> None:
    """Spark sends lists without elements so. What lay behind the buffer was read as the offset."""
    entries = pa.array([], pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.int32())]))
    offsets = pa.py_buffer(b"\xff" * 64).slice(8, 0)
    maps = pa.MapArray.from_buffers(pa.map_(pa.string(), pa.int32()), 0, [None, offsets], children=[entries])
    assert _conform(MAP, maps).to_pylist() == []
    lists = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), maps)
    assert _conform({"type": "ARRAY", "element": MAP}, lists).to_pylist() == [[]]


def test_an_absent_row_may_lack_required_sub_fields() -> None:
    required = {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": "INT NOT NULL"}]}
    found = _conform(required, pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])))
    assert found.to_pylist() == [{"a": 1}, None]


def test_map_keys_are_never_null() -> None:
    assert logical_type(pa.map_(pa.string(), pa.int32()), nullable=True) == DataType(
        TypeRoot.MAP, key=parse_type_text("STRING NOT NULL"), value=parse_type_text("INT")
    )
