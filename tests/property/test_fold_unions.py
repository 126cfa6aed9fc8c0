"""Aggregate functions over sets in bytes, bitmaps and sketches: whole columns at once against one row at a time."""

from collections.abc import Iterable
from typing import Any

import datasketches
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.index.art_bitmap64 import decode_bitmap64, encode_bitmap64
from bucketline.state.types.logical import parse_type
from tests.support.models.folding import Case, fold_rows, keyed_rows
from tests.support.models.merge_functions import RefusedError
from tests.support.models.merge_reference import aggregate, partial_update
from tests.support.models.sweeps import draws

_FUNCTIONS = ("rbm32", "rbm64", "theta_sketch", "hll_sketch")


def _theta(numbers: Iterable[int], lg_size: int) -> bytes:
    sketch = datasketches.update_theta_sketch(lg_size)
    for number in numbers:
        sketch.update(number)
    return bytes(sketch.compact().serialize())


def _hll(numbers: Iterable[int], lg_size: int) -> bytes:
    sketch = datasketches.hll_sketch(lg_size, datasketches.tgt_hll_type.HLL_4)
    for number in numbers:
        sketch.update(number)
    return bytes(sketch.serialize_compact())


_RANGES = [range(0), range(1), range(3, 9), range(5, 90), range(40, 2000), range(1000, 9000), range(7000, 20000)]
_VALUES: dict[str, list[bytes]] = {
    "rbm32": [BitMap(r).serialize() for r in _RANGES],
    # With 40 each number has a container of its own.
    "rbm64": [
        encode_bitmap64(BitMap64(n << s for n in (r[:500] if s == 40 else r))) for r in _RANGES for s in (0, 15, 40)
    ],
    "theta_sketch": [_theta(r, lg_size) for r in _RANGES for lg_size in (5, 12)],
    "hll_sketch": [_hll(r, lg_size) for r in _RANGES for lg_size in (8, 12)],
}


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    engine = draw(st.sampled_from(["aggregation", "partial-update"]))
    function = draw(st.sampled_from(_FUNCTIONS))
    options = {"merge-engine": engine, "fields.v.aggregate-function": function}
    kinds = [0, 0, 2]
    if engine == "partial-update":
        options["fields.g.sequence-group"] = "v"
    elif draw(st.booleans()):
        options["aggregation.remove-record-on-delete"] = "true"
        kinds.append(3)
    if "aggregation.remove-record-on-delete" not in options and draw(st.booleans()):
        kinds.append(1)
        if draw(st.booleans()):
            options["fields.v.ignore-retract"] = "true"
    values = {"g": st.none() | st.integers(0, 9), "v": st.none() | st.sampled_from(_VALUES[function])}
    types = {"k": parse_type("INT NOT NULL"), "g": parse_type("INT"), "v": parse_type("BYTES")}
    return Case(types, options, keyed_rows(draw, values, st.sampled_from(kinds)))


def _comparable(function: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row with what its set holds."""
    held: Any = row["v"]
    if held is None:
        return row
    if function == "hll_sketch":
        # Out of order, the running estimate that follows these bytes is of no use.
        held = held[:8] + held[16:] if held[5] & 16 else held
    elif function == "rbm32":
        held = BitMap.deserialize(held)
    elif function == "rbm64":
        held = decode_bitmap64(held)
    else:
        sketch = datasketches.compact_theta_sketch.deserialize(held)
        held = (sketch.theta64, sketch.is_empty(), list(sketch))
    return {**row, "v": held}


@draws(400)
@given(_cases())
def test_sets_of_a_key_become_what_one_row_after_the_other_makes(case: Case) -> None:
    function = case.options["fields.v.aggregate-function"]
    merge = aggregate if case.options["merge-engine"] == "aggregation" else partial_update
    try:
        expected = [rows[0] if len(rows) == 1 else merge(rows, case.types, ("k",), case.options) for rows in case.keys]
    except RefusedError:
        with pytest.raises(SchemaMismatchError, match=r"column v: .* cannot retract"):
            fold_rows(case)
        return
    found = fold_rows(case)
    assert [_comparable(function, r) for r in found] == [_comparable(function, r) for r in expected]


@pytest.mark.parametrize("function", _FUNCTIONS)
@pytest.mark.parametrize("bad", [b"", b"\x00" * 7, b"no set at all, but rather many bytes of text"])
def test_bytes_that_are_no_set_are_refused_by_column_once_they_meet_others(function: str, bad: bytes) -> None:
    types = {"k": parse_type("INT NOT NULL"), "v": parse_type("BYTES")}
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function}
    rows = [{"k": 1, "v": v, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0} for i, v in enumerate([bad, None])]
    assert fold_rows(Case(types, options, [rows]))[0]["v"] == bad
    rows[1]["v"] = _VALUES[function][-1]
    with pytest.raises(
        SchemaMismatchError, match="column v: a value cannot be united with others: the bytes are no "
    ) as caught:
        fold_rows(Case(types, options, [rows]))
    assert caught.value.fields["column"] == "v"
