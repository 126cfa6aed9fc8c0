"""Merge engine aggregation: whole columns at once against one row at a time."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.logical import DataType, parse_type, parse_type_text
from tests.support.models.folding import Case, fold_rows, keyed_rows, schema_of
from tests.support.models.merge_functions import RefusedError, plain
from tests.support.models.merge_reference import aggregate
from tests.support.models.sweeps import draws

_NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "TINYINT": st.integers(-9, 9) | st.sampled_from([-128, 127]),
    "SMALLINT": st.integers(-9, 9) | st.sampled_from([-(2**15), 2**15 - 1]),
    "INT": st.integers(-9, 9) | st.sampled_from([-(2**31), 2**31 - 1]),
    "BIGINT": st.integers(-9, 9) | st.sampled_from([-(2**63), 2**63 - 1, 2**62, 3_037_000_500]),
    "FLOAT": st.floats(width=32) | st.sampled_from([-0.0, 0.0, 0.5]),
    "DOUBLE": st.floats() | st.sampled_from([-0.0, 0.0, 0.1, 1e300]),
    "DECIMAL(4, 2)": st.decimals(-99, 99, places=2) | st.just(Decimal("0.50")),
    "DECIMAL(18, 0)": st.integers(-4, 4).map(lambda n: Decimal(n * 10**17 * 2)),
    "DECIMAL(30, 4)": st.sampled_from(["0.0001", "-1.5", "3.0000", "9" * 26 + ".9999", "-" + "8" * 26]).map(Decimal),
    "DECIMAL(38, 0)": st.integers(-9, 9).map(lambda n: Decimal(n * 10**37)),
}
_ORDERED: dict[str, st.SearchStrategy[Any]] = {
    **_NUMBERS,
    "STRING": st.sampled_from(["", "a", "a\0", "b", "é", "\U0001f600", "\ue000"]),
    "BYTES": st.binary(max_size=2),
    "DATE": st.dates(),
    "TIME(3)": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "TIMESTAMP(3)": st.datetimes().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "TIMESTAMP(6)": st.datetimes(),
}
_ANY: dict[str, st.SearchStrategy[Any]] = {
    **_ORDERED,
    "BOOLEAN": st.booleans(),
    "ARRAY<INT>": st.lists(st.none() | st.integers(0, 2), max_size=3),
}
_FUNCTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "sum": _NUMBERS,
    "product": _NUMBERS,
    "max": _ORDERED,
    "min": _ORDERED,
    "last_value": _ANY,
    "last_non_null_value": _ANY,
    "first_value": _ANY,
    "first_non_null_value": _ANY,
    "bool_and": {"BOOLEAN": st.booleans()},
    "bool_or": {"BOOLEAN": st.booleans()},
}
_RETRACTING = ("sum", "product", "last_value", "last_non_null_value")


def _type(text: str) -> DataType:
    if text == "ARRAY<INT>":
        return parse_type({"type": "ARRAY", "element": "INT"})
    return parse_type_text(text)


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    options = {"merge-engine": "aggregation"}
    function = draw(st.sampled_from(sorted(_FUNCTIONS)))
    text = draw(st.sampled_from(sorted(_FUNCTIONS[function])))
    options["fields.v.aggregate-function"] = function
    remove = draw(st.booleans())
    if remove:
        options["aggregation.remove-record-on-delete"] = "true"
    elif draw(st.booleans()):
        options["fields.v.ignore-retract"] = "true"
    sequenced = draw(st.booleans())
    if sequenced:
        options["sequence.field"] = "s"
    types = {"k": _type("INT NOT NULL"), "s": _type("INT"), "v": _type(text), "w": _type("STRING")}
    values = {
        "s": st.none() | st.integers(0, 3),
        "v": st.none() | _FUNCTIONS[function][text],
        "w": st.none() | st.sampled_from(["x", "y"]),
    }
    calm = function in _RETRACTING or "fields.v.ignore-retract" in options
    kinds = st.sampled_from([0, 0, 0, 2, 1, 3] if calm or draw(st.integers(0, 9)) == 0 else [0, 2, 3 if remove else 0])
    return Case(types, options, keyed_rows(draw, values, kinds))


# There are 126 pairs of a function and a type: fewer examples leave many of them out.
@draws(2400)
@given(_cases())
def test_rows_of_a_key_become_what_one_row_after_the_other_makes(case: Case) -> None:
    _check(case)


@pytest.mark.parametrize(
    ("function", "text", "changes"),
    [
        ("sum", "BIGINT", [(0, -5), (3, 2**63 - 1)]),
        ("sum", "BIGINT", [(0, 5), (3, -(2**63) + 1)]),
        ("sum", "BIGINT", [(0, 2**62), (0, 2**62)]),
        ("sum", "TINYINT", [(0, 127), (3, -1)]),
        ("product", "DECIMAL(4, 2)", [(0, "0.05"), (0, "0.50")]),
        ("product", "DECIMAL(4, 2)", [(0, "0.01"), (3, "0.08")]),
        ("product", "DECIMAL(4, 2)", [(0, "10.00"), (0, "10.00")]),
        ("product", "DECIMAL(4, 2)", [(0, "10.00"), (0, "10.00"), (0, "3.00")]),
        ("product", "INT", [(0, -7), (3, 2)]),
        ("bool_and", "BOOLEAN", [(0, True), (0, None)]),
        ("bool_or", "BOOLEAN", [(0, None), (0, False)]),
    ],
)
def test_edges_that_are_seldom_drawn(function: str, text: str, changes: list[tuple[int, Any]]) -> None:
    decimal = text.startswith("DECIMAL")
    rows = [
        {"k": 1, "v": Decimal(v) if decimal else v, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": kind}
        for i, (kind, v) in enumerate(changes)
    ]
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function}
    _check(Case({"k": _type("INT NOT NULL"), "v": _type(text)}, options, [rows]))


def _check(case: Case) -> None:
    try:
        expected = [
            rows[0] if len(rows) == 1 else aggregate(rows, case.types, ("k",), case.options) for rows in case.keys
        ]
    except RefusedError:
        with pytest.raises(SchemaMismatchError):
            fold_rows(case)
        return
    assert plain(fold_rows(case)) == plain(expected)


def test_long_keys_add_floats_in_order_of_arrival() -> None:
    values = [0.1, 1e16, -1e16, 0.3] * 80
    rows = [{"k": 1, "s": None, "v": v, "w": None} for v in values]
    case = Case(
        {"k": _type("INT NOT NULL"), "s": _type("INT"), "v": _type("DOUBLE"), "w": _type("STRING")},
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
        [[{**r, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0} for i, r in enumerate(rows)]],
    )
    expected = 0.1
    for value in values[1:]:
        expected += value
    assert fold_rows(case)[0]["v"] == expected


def test_the_schema_stays() -> None:
    schema = schema_of({"k": _type("INT NOT NULL"), "v": _type("DECIMAL(4, 2)")}, {"merge-engine": "aggregation"})
    assert pa.types.is_decimal(schema.field("v").type)
