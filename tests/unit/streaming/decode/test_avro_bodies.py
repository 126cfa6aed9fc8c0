"""Avro's odd cases: what has no Arrow type, what is damaged, and what would take too long side by side."""

import json

import pyarrow as pa
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.streaming.decode.avro.avro_bodies import Bodies, read_bodies
from bucketline.streaming.decode.avro.avro_schema import parse_avro_schema
from tests.support.models.avro_values import body_of


def record(**fields: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def read(schema: object, *bodies: bytes, copies: int = 20) -> Bodies:
    """The bodies, often enough that they are read side by side."""
    return read_bodies(pa.array(list(bodies) * copies, pa.binary()), parse_avro_schema(schema))


def reasons(schema: object, body: bytes) -> set[str]:
    """Why a body is bad, alone and among others."""
    alone, among = read(schema, body, copies=1), read(schema, body)
    assert len(among.positions) == 0
    return {reason for _, reason in (*alone.bad, *among.bad)}


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("string", b"\x0aab", "field a: the record ends too early"),
        ("string", b"\x01", "field a: a length is negative"),
        ("string", b"\x04\xff\xfe", "field a: a text is not UTF-8"),
        ("boolean", b"\x02", "field a: a boolean is neither 0 nor 1"),
        (
            ["null", "string"],
            b"\x01\x02a",
            "field a: the union has 2 branches, and the record names one beyond them",
        ),
        (["null", "string"], b"\x04", "field a: the union has 2 branches, and the record names one beyond them"),
        ("int", b"\xfe\xff\xff\xff\xff\x01", "field a: an int has more than 32 bits"),
        ("long", b"\xff" * 9 + b"\x02", "field a: a number has more than 64 bits"),
        ("long", b"\xff" * 3, "field a: the record ends too early"),
        (
            {"type": "enum", "name": "E", "symbols": ["x"]},
            b"\x01",
            "field a: the enum has 1 symbols, and the record names one beyond them",
        ),
        ({"type": "array", "items": "int"}, b"\x7f\x02", "field a: a block is longer than the record"),
        (
            {"type": "array", "items": "long"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "field a: there are more items than bytes",
        ),
        ("int", b"\x02\x02", "bytes remain after the value; was it written with another schema?"),
        (record(b="double"), b"\x00", "field a.b: the record ends too early"),
    ],
)
def test_a_damaged_body_says_what_is_wrong_with_it(kind: object, body: bytes, reason: str) -> None:
    if isinstance(kind, dict) and kind.get("name") == "R":
        kind = {**kind, "name": "Inner"}
    assert reasons(record(a=kind), body) == {reason}


def test_a_union_of_unlike_types_is_text() -> None:
    schema = record(a=["null", "string", "long", "bytes"])
    bodies = [body_of(schema, {"a": value}) for value in (None, "x", 7, b"\x01")]
    assert read(schema, *bodies, copies=1).values.field("a").to_pylist() == [None, "x", "7", '"AQ=="']


def test_int_and_long_in_one_union_are_long() -> None:
    schema = record(a=["int", "long"])
    read_ = read(schema, body_of(schema, {"a": 2**40}))
    assert read_.values.field("a").type == pa.int64()
    assert set(read_.values.field("a").to_pylist()) == {2**40}


def test_a_record_that_contains_itself_is_text_from_there_on() -> None:
    schema = record(v="int", next=["null", "R"])
    value = {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}
    read_ = read(schema, body_of(schema, value))
    assert not read_.bad
    row = read_.values[0].as_py()
    assert row["v"] == 1
    assert json.loads(row["next"]) == value["next"]


def test_each_item_of_an_array_of_the_record_around_it_is_text() -> None:
    schema = record(v="int", parts={"type": "array", "items": "R"})
    value = {"v": 1, "parts": [{"v": 2, "parts": []}, {"v": 3, "parts": [{"v": 4, "parts": []}]}]}
    row = read(schema, body_of(schema, value)).values[0].as_py()
    assert [json.loads(part) for part in row["parts"]] == value["parts"]


def test_a_record_that_contains_itself_without_end_is_one_bad_record() -> None:
    schema = record(next=["null", "R"])
    deep = b"\x02" * 1_000_000 + b"\x00"
    read_ = read_bodies(pa.array([deep, b"\x00"], pa.binary()), parse_avro_schema(schema))
    assert [reason[-34:] for _, reason in read_.bad] == ["the value is nested more than 200 deep"[-34:]]
    assert read_.positions.tolist() == [1]


def test_one_long_array_does_not_slow_down_the_others() -> None:
    schema = record(a={"type": "array", "items": "int"})
    values = [{"a": [1, 2]}] * 50 + [{"a": list(range(5000))}] + [{"a": []}] * 50
    read_ = read(schema, *(body_of(schema, v) for v in values), copies=1)
    assert read_.values.to_pylist() == values


def test_items_in_several_blocks_with_and_without_their_sizes_come_in_order() -> None:
    schema = record(a={"type": "array", "items": "int"})
    # two items, then a block of one item that says its size (1 byte), then the end
    body = bytes([4, 2, 4, 1, 2, 6, 0])
    assert read(schema, body).values[0].as_py() == {"a": [1, 2, 3]}
    assert read(schema, body, copies=1).values[0].as_py() == {"a": [1, 2, 3]}


def test_the_last_entry_of_a_key_stays() -> None:
    schema = record(a={"type": "map", "values": "int"})
    body = bytes([4, 2, 97, 2, 2, 97, 4, 0])
    assert read(schema, body).values[0].as_py() == {"a": [("a", 2)]}
    assert read(schema, body, copies=1).values[0].as_py() == {"a": [("a", 2)]}


def test_a_map_without_values_in_a_union_is_read() -> None:
    schema = record(a=["null", {"type": "map", "values": "null"}])
    bodies = [body_of(schema, {"a": value}) for value in (None, {"k": None, "l": None}, {"m": None})]
    read_ = read(schema, *bodies)
    read_.values.validate(full=True)
    assert read_.values.field("a").to_pylist()[:3] == [None, [("k", None), ("l", None)], [("m", None)]]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "Other"}]}, "Other"),
        ("strin", "strin"),
        (7, "not an Avro schema"),
        (record(a={"type": "fixed", "name": "F", "size": -1}), "the fixed type F has -1 bytes"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "two fields of the same name"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(schema: object, why: str) -> None:
    with pytest.raises(SchemaMismatchError, match=why):
        parse_avro_schema(schema)


def test_what_a_schema_says_beyond_the_bytes_makes_it_no_bad_schema() -> None:
    kinds: list[object] = [
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": -2},
        {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 5},
        {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 30},
        {"type": "enum", "name": "E", "symbols": ["x"], "default": "y"},
        "long",
    ]
    fields = [{"name": f"f{at}", "type": kind, "default": None} for at, kind in enumerate(kinds)]
    parsed = parse_avro_schema({"type": "record", "name": "R", "fields": fields})
    assert parsed.root.children[0].properties["logicalType"] == "decimal"
    read_ = read_bodies(pa.array([b"\x02\x07\x02\x08\x09\x00\x02"] * 20, pa.binary()), parsed)
    assert read_.values[0].as_py() == {"f0": b"\x07", "f1": b"\x08", "f2": b"\x09", "f3": "x", "f4": 1}


def test_numbers_that_json_lacks_are_words_in_a_text() -> None:
    schema = record(a=["null", "string", "double", {"type": "array", "items": "double"}])
    bodies = [body_of(schema, {"a": value}) for value in (float("nan"), [1.5, float("inf"), float("-inf")])]
    assert read(schema, *bodies).values.field("a").to_pylist()[:2] == ["NaN", '[1.5,"Infinity","-Infinity"]']


def test_a_schema_that_grows_by_its_names_is_refused() -> None:
    fields: list[object] = [{"name": "a", "type": "long"}]
    schema: dict[str, object] = {"type": "record", "name": "R0", "fields": fields}
    for i in range(1, 30):
        twice = [{"name": "x", "type": schema}, {"name": "y", "type": f"R{i - 1}"}]
        schema = {"type": "record", "name": f"R{i}", "fields": twice}
    with pytest.raises(SchemaMismatchError, match="more than 20000 types"):
        parse_avro_schema(schema)


def test_referenced_schemas_are_found_by_name() -> None:
    other = {"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}
    schema = record(a="shop.Address")
    parsed = parse_avro_schema(schema, [other])
    read_ = read_bodies(pa.array([b"\x06abc"] * 20, pa.binary()), parsed)
    assert read_.values[3].as_py() == {"a": {"city": "abc"}}
