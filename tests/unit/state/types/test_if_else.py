"""`if_else` over slices of every layout, with nulls on either side; and that nothing uses Arrow's own."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.types.if_else import if_else

ROOT = Path(__file__).parents[4]
CONDITION = pa.array([True, False, None, True, False, True, False])


def _values(arrow: pa.DataType) -> pa.Array:
    return pa.array([None if i == 5 else "v" * i for i in range(10)]).cast(arrow)


def _each(choice: object) -> list[object]:
    if isinstance(choice, pa.Array | pa.ChunkedArray):
        return list(choice.to_pylist())
    return [choice.as_py() if isinstance(choice, pa.Scalar) else choice] * len(CONDITION)


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("layout", ["whole", "slice", "offsets", "chunks"])
def test_a_slice_of_texts_keeps_all_its_values_beside_a_null(arrow: pa.DataType, layout: str) -> None:
    whole = _values(arrow)
    buffers, width = whole.buffers(), 8 if "large" in str(arrow) else 4
    values: dict[str, object] = {
        "whole": whole.slice(3).take(pa.array(range(7))),
        "slice": whole.slice(3),
        "offsets": pa.Array.from_buffers(arrow, 7, [None, buffers[1].slice(3 * width), buffers[2]]),
        "chunks": pa.chunked_array([whole.slice(3, 4), whole.slice(7)]),
    }
    value = values[layout]
    for left, right in (
        (value, pa.scalar(None, arrow)),
        (pa.scalar(None, arrow), value),
        (None, value),
        (value, value),
    ):
        found = if_else(CONDITION, left, right)
        found.validate(full=True)
        both = zip(CONDITION.to_pylist(), _each(left), _each(right), strict=True)
        assert found.to_pylist() == [None if c is None else one if c else other for c, one, other in both]


def test_other_values_are_chosen_as_arrow_does() -> None:
    assert if_else(CONDITION, 1, None).to_pylist() == [1, None, None, 1, None, 1, None]
    assert if_else(CONDITION, "a", "b").to_pylist() == ["a", "b", None, "a", "b", "a", "b"]
    assert if_else(pa.array([], pa.bool_()), pa.array([], pa.string()), None).to_pylist() == []


def test_nothing_uses_the_function_of_arrow() -> None:
    own = ROOT / "state/types/if_else.py"
    modules = [p for folder in ("state", "streaming") for p in (ROOT / folder).rglob("*.py") if p != own]
    assert [str(p) for p in modules if re.search(r"\bpc\.if_else\b", p.read_text())] == []
