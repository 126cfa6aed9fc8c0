"""What records need beyond the columns of a table: found in the same pass, whatever the rest of the block is like."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketline.conf.job import RecordFormat
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.arrow import logical_type
from bucketline.state.types.logical import DataField, parse_type
from bucketline.state.types.schema_need import decode_need
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.json_values.json_blocks import read_exact, read_objects
from bucketline.streaming.decode.json_values.json_shape import row_shape
from bucketline.streaming.decode.records import decode_debezium, decode_json
from bucketline.streaming.decode.schema_needs import WatchFor, joined, joined_needs, pruned


def columns(**types: Any) -> tuple[DataField, ...]:
    return tuple(DataField(i, name, parse_type(kind)) for i, (name, kind) in enumerate(types.items()))


PLACE = {"type": "ROW", "fields": [{"id": 9, "name": "town", "type": "STRING"}]}
FIELDS = columns(id="INT", name="STRING", big="BIGINT", real="FLOAT", place=PLACE)


def texts(*records: object) -> pa.Array:
    return pa.array([(r if isinstance(r, str) else json.dumps(r)).encode() for r in records], pa.binary())


def need_of(*records: object, watch: WatchFor = WatchFor.ALL) -> dict[str, str]:
    """Columns and types, as the table would get them."""
    return shown(decode_json(texts(*records), FIELDS, watch).need)


def shown(need: pa.DataType) -> dict[str, str]:
    return {} if pa.types.is_null(need) else {f.name: str(f.type) for f in need}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, "BIGINT"),
        (2**63, "DECIMAL(38, 0)"),
        (10**40, "DOUBLE"),
        (1.5, "DOUBLE"),
        ("2024-01-01 10:00:00", "STRING"),
        (True, "BOOLEAN"),
        ({"a": 1, "b": None, "c": []}, "ROW"),
        ([1, None, 2.5], "ARRAY"),
    ],
)
def test_unknown_fields_get_the_type_of_their_values(value: object, kind: str) -> None:
    for records in ([{"id": 1, "new": value}], [{"id": 1}] * 500 + [{"id": 2, "new": value}, "{"]):
        need = decode_json(texts(*records), FIELDS, WatchFor.ALL).need
        assert [f.name for f in need] == ["new"]
        assert str(logical_type(need.field(0).type, True)) == kind


def test_nothing_is_found_that_is_known_null_or_empty() -> None:
    assert need_of({"id": 1, "place": {"town": "x"}}, {"name": "a", "real": 1e38}) == {}
    assert need_of(*[{"id": 1, "a": None, "b": {}, "c": [], "d": {"e": None}, "f": [[]]}] * 3) == {}
    assert need_of({"id": 1, "new": 5}, watch=WatchFor.NOTHING) == {}


def test_values_of_several_kinds_become_what_holds_them_all() -> None:
    assert need_of({"new": 1}, {"new": 1.5}) == {"new": "double"}
    assert need_of({"new": 1}, {"new": 2**64}) == {"new": "decimal128(38, 0)"}
    assert need_of({"new": 1}, {"new": "a"}) == {"new": "string"}
    assert need_of({"new": {}}, {"new": 1}) == {"new": "string"}
    assert need_of({"new": [{"a": 1}]}, {"new": [{"b": True}]}) == {"new": "list<item: struct<a: int64, b: bool>>"}


def test_rare_fields_are_found_among_many_records() -> None:
    records: list[dict[str, object]] = [{"id": i, "name": "n"} for i in range(5000)]
    records[777]["new"], records[4321]["other"] = 1, "x"
    found = read_objects(texts(*records), row_shape(FIELDS), WatchFor.ALL)
    assert len(found.structs) == 5000 and found.bad == ()
    assert shown(pruned(found.need)) == {"new": "int64", "other": "string"}


def test_fields_inside_of_known_rows_count_as_well() -> None:
    assert need_of({"place": {"town": "x", "zip": 5}}) == {"place": "struct<zip: int64>"}


def test_numbers_too_large_for_their_column_ask_for_a_wider_one() -> None:
    assert need_of({"id": 2**31}) == {"id": "int64"}
    assert need_of({"id": 1.5}, {"id": 2**40}) == {"id": "double"}
    assert need_of({"real": 1e39}) == {"real": "double"}
    assert need_of({"id": 2.0}, {"id": "12"}) == {}
    assert need_of({"id": 2**63}, {"big": 2**63}, {"big": 1.5}) == {}, "no type holds both the old and the new values"


def test_bad_records_ask_for_nothing_unless_a_type_would_mend_them() -> None:
    assert need_of({"id": "x", "new": 1}, "{") == {}
    assert need_of({"id": 2**31, "new": 1}) == {"id": "int64", "new": "int64"}


def test_objects_that_are_maps_in_truth_and_deep_values_become_texts() -> None:
    assert need_of(*[{"new": {f"k{i}": 1}} for i in range(1100)]) == {"new": "string"}
    assert need_of({"new": {f"k{i}": 1 for i in range(1100)}}) == {"new": "string"}
    (kind,) = need_of('{"new":' + "[" * 500 + "1" + "]" * 500 + "}").values()
    assert kind.count("list") < 30
    assert need_of('{"new":' + "[" * 100_000 + "]" * 100_000 + "}") == {}


SOURCE = {"version": "3.0.0.Final", "connector": "mysql", "name": "db", "snapshot": "false", "pos": 154}


def event(before: object, after: object, op: str = "u", **more: object) -> dict[str, object]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1, "transaction": None, **more}


def test_debezium_events_are_asked_for_the_fields_of_their_rows() -> None:
    events = [event({"id": 1, "old": "x"}, {"id": 1, "new": 1}), event(None, {"id": 2, "place": {"zip": "1"}}, "c")]
    found = decode_debezium(texts(*events), FIELDS, primary_key=("id",), watch=WatchFor.ALL)
    assert shown(found.need) == {"old": "string", "new": "int64", "place": "struct<zip: string>"}
    assert len(found.bad) == 0
    quiet = [event(None, {"id": 1, "name": "a", "n": None}, "c", extra={"x": [1]})] * 20
    assert shown(decode_debezium(texts(*quiet), FIELDS, primary_key=("id",), watch=WatchFor.ALL).need) == {}


def test_a_column_named_source_is_read_whatever_is_cut_off() -> None:
    row = {"id": 1, "source": SOURCE, "doc": {"source": SOURCE}}
    fields = columns(id="INT", source="STRING", doc="STRING")
    found = decode_debezium(texts(event(None, row, "c")), fields, primary_key=("id",), watch=WatchFor.ALL)
    assert json.loads(found.rows["source"][0].as_py()) == SOURCE
    without = decode_debezium(texts(event(None, row, "c")), fields[:1] + fields[2:], watch=WatchFor.ALL)
    assert json.loads(without.rows["doc"][0].as_py()) == {"source": SOURCE}


def connect(kind: str, name: str | None = None, **more: object) -> dict[str, object]:
    return {"type": kind, "optional": True, "name": name, **more}


DECLARED = {
    "day": (connect("int32", "io.debezium.time.Date"), "DATE"),
    "at": (connect("int64", "io.debezium.time.Timestamp"), "TIMESTAMP(3)"),
    "micro": (connect("int64", "io.debezium.time.MicroTimestamp"), "TIMESTAMP(6)"),
    "nano": (connect("int64", "io.debezium.time.NanoTimestamp"), "TIMESTAMP(6)"),
    "zoned": (connect("string", "io.debezium.time.ZonedTimestamp"), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    "tod": (connect("int64", "io.debezium.time.MicroTime"), "TIME(3)"),
    "price": (
        connect(
            "bytes",
            "org.apache.kafka.connect.data.Decimal",
            parameters={"scale": "2", "connect.decimal.precision": "10"},
        ),
        "DECIMAL(10, 2)",
    ),
    "vague": (connect("struct", "io.debezium.data.VariableScaleDecimal", fields=[]), "STRING"),
    "small": (connect("int16"), "SMALLINT"),
    "raw": (connect("bytes"), "BYTES"),
    "tags": (connect("array", items=connect("string")), "ARRAY"),
    "geo": (connect("struct", fields=[{"field": "srid", **connect("int32")}]), "ROW"),
    "labels": (connect("map", keys=connect("string"), values=connect("int64")), "MAP"),
    "empty": (connect("struct", fields=[]), None),
}


def enveloped(payload: object) -> dict[str, object]:
    row = [{"field": "id", **connect("int32")}, *({"field": n, **node} for n, (node, _) in DECLARED.items())]
    images = [{"field": image, "type": "struct", "fields": row} for image in ("before", "after")]
    return {"schema": {"type": "struct", "fields": images}, "payload": payload}


def test_with_debeziums_schema_the_declared_types_count_values_or_not() -> None:
    records = [enveloped(event(None, {"id": 1, "undeclared": 5}, "c"))] * 2
    swapped = [{"payload": r["payload"], "schema": r["schema"]} for r in records]
    for form in (records, swapped):
        found = decode_debezium(texts(*form), columns(id="INT"), primary_key=("id",), watch=WatchFor.ALL)
        assert len(found.rows) == 2
        got = {f.name: str(logical_type(f.type, True)) for f in found.need}
        assert got == {name: kind for name, (_, kind) in DECLARED.items() if kind is not None}
    wide = enveloped(event(None, {"id": 2**40}, "c"))
    need = decode_debezium(texts(wide), columns(id="INT"), watch=WatchFor.ALL).need
    assert shown(need)["id"] == "int64"


def test_a_decimal_with_its_own_scale_fits_the_text_column_it_gets() -> None:
    record = enveloped(event(None, {"id": 1, "vague": {"scale": 2, "value": "ANI="}}, "c"))
    found = decode_debezium(texts(record), columns(id="INT", vague="STRING"), primary_key=("id",))
    assert found.rows["vague"].to_pylist() == ["2.10"]


def test_steps_tell_of_what_the_table_can_be_given() -> None:
    step = DecodeStep(RecordFormat.JSON, FIELDS, watch=WatchFor.ALL, fixed=("id",))
    records = pa.table({"value": texts({"id": 2**40, "_kafka_offset": 5, "_row_kind": 1, "new": 1})})
    need = step(records).need
    assert need and decode_need(need.encode()) == need
    assert shown(joined_needs([need, need]).type) == {"new": "int64"}
    assert not step(pa.table({"value": texts({"id": 1, "_kafka_offset": 5})})).need
    many = [{f"c{i}": 1} for i in range(1100)]
    with pytest.raises(SchemaMismatchError, match="more than 1000 fields"):
        step(pa.table({"value": texts(*many)}))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
ROW = {"id": st.integers(-5, 5), "name": st.text(max_size=2), "x": VALUES, "y": VALUES}
ROWS = st.lists(st.fixed_dictionaries({}, optional=ROW), max_size=12)
BASE = columns(id="INT", name="STRING")


@settings(max_examples=150)
@given(ROWS, st.integers(0, 100))
def test_what_is_found_does_not_depend_on_the_way_and_is_enough(rows: list[dict[str, object]], pad: int) -> None:
    data = texts(*[{"id": 0}] * pad, *rows)
    need = pruned(read_objects(data, row_shape(BASE), WatchFor.ALL).need)
    assert need.equals(pruned(read_exact(data, row_shape(BASE), 0, WatchFor.ALL).need))
    added = [] if pa.types.is_null(need) else list(need)
    grown = [DataField(5 + i, f.name, logical_type(f.type, True)) for i, f in enumerate(added)]
    again = decode_json(data, (*BASE, *grown), WatchFor.ALL)
    assert pa.types.is_null(again.need)
    assert len(again.bad) == 0


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int8(), pa.int16(), pa.int16()),
        (pa.int64(), pa.decimal128(20, 0), pa.decimal128(20, 0)),
        (pa.int64(), pa.decimal128(38, 0), pa.decimal128(38, 0)),
        (pa.int32(), pa.decimal128(5, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(10, 2), pa.string()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.float64(), pa.string()),
        (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("ms"), pa.timestamp("ms", "UTC"), pa.string()),
        (pa.date32(), pa.timestamp("ms"), pa.string()),
        (pa.bool_(), pa.int32(), pa.string()),
    ],
)
def test_types_of_a_column_that_changed_within_a_batch_become_the_one_that_holds_both(
    one: pa.DataType, other: pa.DataType, both: pa.DataType
) -> None:
    assert joined(one, other) == both and joined(other, one) == both


def test_joining_does_not_depend_on_the_order() -> None:
    kinds = [pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.struct([("a", pa.int64())])]
    for one in kinds:
        for other in kinds:
            assert joined(one, other).equals(joined(other, one))
    assert np.all([joined(k, k).equals(k) for k in kinds])
