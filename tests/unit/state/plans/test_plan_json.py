"""Plans, leases and results survive their JSON; what cannot be read is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import CorruptFileError
from bucketline.state.plans.lease import Lease, Release
from bucketline.state.plans.plan import InputFile, Item, ItemResult, ItemState, Plan
from bucketline.state.plans.plan_json import (
    decode_lease,
    decode_plan,
    decode_release,
    decode_result,
    encode_lease,
    encode_plan,
    encode_release,
    encode_result,
)

NUMBERS = st.integers(0, 2**62)
TEXTS = st.text(max_size=8)
INPUTS = st.builds(InputFile, TEXTS, st.integers(0, 9), NUMBERS)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    items = tuple(
        Item(
            number,
            draw(st.binary(max_size=20)),
            draw(st.integers(0, 9)),
            draw(st.integers(-2, 9)),
            tuple(draw(st.lists(INPUTS, max_size=3))),
            draw(st.integers(0, 9)),
            draw(st.booleans()),
            tuple(draw(st.lists(TEXTS, max_size=2))),
        )
        for number in range(draw(st.integers(0, 3)))
    )
    return Plan(draw(TEXTS), draw(NUMBERS), draw(NUMBERS), draw(TEXTS), draw(NUMBERS), items)


@given(plans())
def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    assert decode_plan(encode_plan(plan), "p") == plan


@given(TEXTS, NUMBERS, st.sampled_from(ItemState), st.none() | NUMBERS, st.none() | TEXTS)
def test_a_lease_a_release_and_a_result_are_read_as_they_were_written(
    owner: str, period: int, state: ItemState, snapshot: int | None, reason: str | None
) -> None:
    assert decode_lease(encode_lease(Lease(owner, period)), "p") == Lease(owner, period)
    assert decode_release(encode_release(Release(reason)), "p") == Release(reason)
    assert decode_result(encode_result(ItemResult(state, snapshot, reason)), "p") == ItemResult(state, snapshot, reason)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b'{"version": 1}', b'{"version": 1, "items": 7}'])
def test_a_file_that_is_no_plan_is_named(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="compaction/plan-7"):
        decode_plan(data, "compaction/plan-7")


def test_another_layout_is_refused_and_not_guessed_at() -> None:
    with pytest.raises(CorruptFileError, match="version 2, but this release reads 1"):
        decode_lease(b'{"version": 2, "owner": "a", "periodMs": 5}', "compaction/lease")
