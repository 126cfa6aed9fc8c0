"""Merge engine partial-update: whole columns at once against one row at a time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.logical import parse_type_text
from tests.support.models.folding import Case, fold_rows, keyed_rows
from tests.support.models.merge_functions import RefusedError, plain
from tests.support.models.merge_reference import partial_update
from tests.support.models.sweeps import draws

_SMALL = st.none() | st.integers(0, 3)
_FUNCTIONS = ["sum", "last_value", "last_non_null_value", "product"]
_ADD_ONLY = ["first_value", "first_non_null_value", "max", "min"]


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    options = {"merge-engine": "partial-update"}
    mode = draw(st.sampled_from(["plain", "ignore", "remove", "groups", "groups", "groups", "ignoring groups"]))
    kinds = [0, 0, 2, 1, 3]
    if mode == "plain":
        kinds = [0, 2] if draw(st.integers(0, 5)) else kinds
    if mode.startswith("ignor"):
        options["ignore-delete"] = "true"
    if mode == "remove":
        options["partial-update.remove-record-on-delete"] = "true"
    names = ["a", "b", "c", "d", "g", "h", "i"]
    types = {n: parse_type_text("STRING" if n in "cd" else "INT") for n in draw(st.permutations(names))}
    types = {"k": parse_type_text("INT NOT NULL"), **types}
    if "groups" in mode:
        options["fields.g.sequence-group"] = "a,c"
        if draw(st.booleans()):
            options["fields.h,i.sequence-group"] = "b"
        removing = draw(st.lists(st.sampled_from([g for g in "ghi" if g == "g" or len(options) > 2]), unique=True))
        if removing and mode == "groups":
            known = [g for g in removing if g == "g" or "fields.h,i.sequence-group" in options]
            if known:
                options["partial-update.remove-record-on-sequence-group"] = ",".join(known)
        for name in "acb":
            if draw(st.booleans()) and (name != "b" or "fields.h,i.sequence-group" in options):
                choices = [f for f in _FUNCTIONS + _ADD_ONLY if (f == "listagg") <= (name == "c")]
                function = draw(st.sampled_from([f for f in choices if name != "c" or f not in ("sum", "product")]))
                options[f"fields.{name}.aggregate-function"] = function
                if function in _ADD_ONLY and draw(st.integers(0, 9)):
                    options[f"fields.{name}.ignore-retract"] = "true"
    values: dict[str, st.SearchStrategy[Any]] = {n: _SMALL for n in "abghi"}
    values |= {n: st.none() | st.sampled_from(["x", "y", " "]) for n in "cd"}
    return Case(types, options, keyed_rows(draw, values, st.sampled_from(kinds)))


@draws(1000)
@given(_cases())
def test_rows_of_a_key_become_what_one_row_after_the_other_makes(case: Case) -> None:
    try:
        expected = [
            rows[0] if len(rows) == 1 else partial_update(rows, case.types, ("k",), case.options) for rows in case.keys
        ]
    except RefusedError:
        with pytest.raises(SchemaMismatchError):
            fold_rows(case)
        return
    assert plain(fold_rows(case)) == plain(expected)
