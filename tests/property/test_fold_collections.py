"""Aggregate functions over texts, arrays and maps: whole columns at once against one row at a time."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.aggregate.entries_of_rows import value_codes
from bucketline.state.types.logical import DataType, parse_type
from tests.support.models.folding import Case, fold_rows, keyed_rows
from tests.support.models.merge_functions import RefusedError, plain
from tests.support.models.merge_reference import aggregate, partial_update
from tests.support.models.sweeps import draws

_ROW = {"type": "ROW", "fields": [{"id": 7, "name": "x", "type": "INT"}, {"id": 8, "name": "y", "type": "STRING"}]}
_TIMED = {"type": "ROW", "fields": [{"id": 7, "name": "x", "type": "INT"}, {"id": 8, "name": "t", "type": "STRING"}]}


def _array(element: Any) -> Any:
    return {"type": "ARRAY", "element": element}


_SMALL = st.none() | st.integers(0, 2)
_ROWS = st.none() | st.fixed_dictionaries({"x": _SMALL, "y": st.none() | st.sampled_from(["", "a"])})
_TEXTS = st.sampled_from(["a", "b", "a,b", "a;b;a", ",", "", " ", "a, ,a", "\u00a0", "\u3000"])
_ELEMENTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("INT", _SMALL),
    ("DOUBLE", st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    ("STRING", st.none() | st.sampled_from(["", "a", "b"])),
    (_ROW, _ROWS),
    (_array("INT"), st.none() | st.lists(_SMALL, max_size=2)),
]


def _maps(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.integers(0, 3), items, max_size=3).map(lambda d: list(d.items()))


_ITEM_TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [("STRING", st.none() | st.sampled_from("ab")), (_ROW, _ROWS)]


_FUNCTIONS = [
    "listagg",
    "collect",
    "merge_map",
    "merge_map_with_keytime",
    "nested_update",
    "nested_update",
    "nested_partial_update",
]


@st.composite
def _columns(draw: st.DrawFn) -> tuple[str, DataType, dict[str, str], st.SearchStrategy[Any]]:
    function = draw(st.sampled_from(_FUNCTIONS))
    own: dict[str, str] = {}
    if function == "listagg":
        if draw(st.booleans()):
            own["list-agg-delimiter"] = draw(st.sampled_from([";", ", ", " "]))
        if draw(st.booleans()):
            own["distinct"] = "true"
        return function, parse_type("STRING"), own, _TEXTS
    if function == "collect":
        element, strategy = draw(st.sampled_from(_ELEMENTS))
        if draw(st.booleans()):
            own["distinct"] = "true"
        return function, parse_type(_array(element)), own, st.lists(strategy, max_size=3)
    if function.startswith("nested"):
        if function == "nested_partial_update" or draw(st.booleans()):
            own["nested-key"] = draw(st.sampled_from(["x", "y", "x,y"]))
            if function == "nested_update":
                own["nested-key-null-strategy"] = draw(st.sampled_from(["merge", "ignore", "error"]))
                if draw(st.booleans()):
                    own["nested-sequence-field"] = draw(st.sampled_from(["x", "y"]))
        if function == "nested_update" and draw(st.integers(0, 2)) == 0:
            own["count-limit"] = "3"
        return function, parse_type(_array(_ROW)), own, st.lists(_ROWS, max_size=3)
    if function == "merge_map_with_keytime":
        timed = st.none() | st.fixed_dictionaries({"x": _SMALL, "t": st.none() | st.sampled_from(["1", "10", "2"])})
        return function, parse_type({"type": "MAP", "key": "INT NOT NULL", "value": _TIMED}), own, _maps(timed)
    item, strategy = draw(st.sampled_from(_ITEM_TYPES))
    return function, parse_type({"type": "MAP", "key": "INT NOT NULL", "value": item}), own, _maps(strategy)


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    engine = draw(st.sampled_from(["aggregation", "partial-update"]))
    function, data_type, own, strategy = draw(_columns())
    retracting = function in ("collect", "merge_map") or (function == "nested_update" and "count-limit" not in own)
    kinds = [0, 0, 2]
    options = {"merge-engine": engine, "fields.v.aggregate-function": function}
    if retracting:
        kinds = [0, 0, 2, 1, 3]
        if draw(st.integers(0, 3)) == 0:
            options["fields.v.ignore-retract"] = "true"
    elif engine == "aggregation" and draw(st.booleans()):
        options["aggregation.remove-record-on-delete"] = "true"
        kinds = [0, 0, 2, 3]
    options |= {f"fields.v.{k}": v for k, v in own.items()}
    values = {"g": st.integers(0, 9), "v": st.none() | strategy}
    if engine == "partial-update":
        options["fields.g.sequence-group"] = "v"
        # What late rows do to removed entries depends on every step; only in-order retracts are compared.
        if (
            "count-limit" in own
            or function == "merge_map_with_keytime"
            or (retracting and "fields.v.ignore-retract" not in options)
        ):
            values["g"] = st.just(1)
        if own.get("distinct") == "true" and function == "collect":
            kinds = [0, 2]
    types = {"k": parse_type("INT NOT NULL"), "g": parse_type("INT"), "v": data_type}
    return Case(types, options, keyed_rows(draw, values, st.sampled_from(kinds)))


def _comparable(case: Case, row: dict[str, Any]) -> Any:
    function = case.options["fields.v.aggregate-function"]
    unordered = "map" in function or "nested" in function or "fields.v.distinct" in case.options
    found = plain(row)
    if unordered and isinstance(row["v"], list):
        found["v"] = sorted(found["v"], key=repr)
    return found


@draws(800)
@given(_cases())
def test_rows_of_a_key_become_what_one_row_after_the_other_makes(case: Case) -> None:
    _check(case)


@pytest.mark.parametrize(
    ("own", "arrays"),
    [
        ({"nested-key": "x", "nested-sequence-field": "y"}, [[(1, "b")], [(1, "a"), (2, "a")]]),
        ({"nested-key": "x", "nested-sequence-field": "y"}, [[(1, "b")], [(1, "b")], [(1, None)]]),
        ({"nested-key": "x", "nested-key-null-strategy": "ignore"}, [[(None, "a")], [(1, "a"), (None, "b")]]),
        ({"nested-key": "x", "nested-key-null-strategy": "error"}, [[(1, "a")], [(None, "b")]]),
        ({"nested-key": "x", "nested-key-null-strategy": "merge"}, [[(None, "a")], [(None, "b")]]),
        ({"count-limit": "3"}, [[(1, "a"), (1, "a")], [(1, "b"), (1, "c")], [(1, "d")]]),
        ({"count-limit": "3", "nested-key": "x"}, [[(1, "a")], [(2, "b"), (3, "c"), (4, "d")], [(1, "e")]]),
    ],
    ids=str,
)
def test_nested_rows_that_are_seldom_drawn(own: dict[str, str], arrays: list[list[tuple[Any, Any]]]) -> None:
    rows = [
        {"k": 1, "v": [{"x": x, "y": y} for x, y in array], "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0}
        for i, array in enumerate(arrays)
    ]
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "nested_update"}
    options |= {f"fields.v.{key}": text for key, text in own.items()}
    _check(Case({"k": parse_type("INT NOT NULL"), "v": parse_type(_array(_ROW))}, options, [rows]))


def _check(case: Case) -> None:
    merge = aggregate if case.options["merge-engine"] == "aggregation" else partial_update
    try:
        expected = [rows[0] if len(rows) == 1 else merge(rows, case.types, ("k",), case.options) for rows in case.keys]
    except RefusedError:
        with pytest.raises(SchemaMismatchError):
            fold_rows(case)
        return
    assert [_comparable(case, r) for r in fold_rows(case)] == [_comparable(case, r) for r in expected]


def test_codes_tell_values_apart_as_java_does() -> None:
    codes = value_codes(pa.array([0.0, -0.0, float("nan"), float("nan"), None, None]))
    assert codes[0] != codes[1] and codes[2] == codes[3] and codes[4] == codes[5] == -1
    maps = pa.array([[(1, 2), (3, 4)], [(3, 4), (1, 2)], [(1, 4)], None], pa.map_(pa.int32(), pa.int32()))
    codes = value_codes(maps)
    assert codes[0] == codes[1] != codes[2] and codes[3] == -1
    lists = pa.array([[1, 2], [1], [2], [1, 2], [], None], pa.list_(pa.int32()))
    assert len(np.unique(value_codes(lists))) == 5
    assert value_codes(lists.slice(3, 2))[0] != value_codes(lists.slice(3, 2))[1]
