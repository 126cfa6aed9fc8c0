"""HLL sketches are checked before a C++ library reads them: what is one passes, what would crash it is refused."""

import datasketches
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.hll_sketch import check_hll_sketch
from bucketline.state.lsm.aggregate.sketches import unite_hll_sketches

_WIDTHS = [datasketches.tgt_hll_type.HLL_4, datasketches.tgt_hll_type.HLL_6, datasketches.tgt_hll_type.HLL_8]


def _sketch(count: int, lg_size: int, width: "datasketches.tgt_hll_type", *, compact: bool) -> bytes:
    sketch = datasketches.hll_sketch(lg_size, width)
    for number in range(count):
        sketch.update(number)
    return bytes(sketch.serialize_compact() if compact else sketch.serialize_updatable())


_SKETCHES = [
    _sketch(count, lg_size, width, compact=compact)
    for count in (0, 1, 7, 8, 24, 25, 600, 40_000)
    for lg_size in (4, 8, 12)
    for width in _WIDTHS
    for compact in (True, False)
]


def test_every_form_of_a_sketch_passes() -> None:
    for data in _SKETCHES:
        check_hll_sketch(data)


def test_what_crashes_the_library_is_refused() -> None:
    long_list = bytearray(_sketch(1, 12, _WIDTHS[0], compact=False))
    long_list[6] = 255
    with pytest.raises(CorruptFileError, match="a list of 255 coupons, but a list holds at most 7"):
        check_hll_sketch(bytes(long_list))
    exception = bytearray(_sketch(3000, 12, _WIDTHS[0], compact=True))
    exception[1000] = 255
    with pytest.raises(CorruptFileError, match="registers have exceptions, but the header says 0"):
        check_hll_sketch(bytes(exception))
    cast = bytearray(_sketch(3000, 12, _WIDTHS[2], compact=True))
    cast[36] = 1
    with pytest.raises(CorruptFileError, match="1 exceptions"):
        check_hll_sketch(bytes(cast))


def test_sketches_cut_short_are_refused() -> None:
    for data in _SKETCHES:
        # What is not compact may end with places that hold nothing.
        whole = len(data) if data[5] & 8 else 8
        for size in {*range(min(whole, 60)), whole - 1}:
            with pytest.raises(CorruptFileError, match="no valid HLL sketch: "):
                check_hll_sketch(data[:size])


@given(st.data())
def test_changed_bytes_are_told_or_give_a_sketch(data: st.DataObject) -> None:
    changed = bytearray(data.draw(st.sampled_from(_SKETCHES)))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, min(len(changed) - 1, 80)))] = data.draw(st.integers(0, 255))
    try:
        found = unite_hll_sketches([bytes(changed), _SKETCHES[-1]], [False, False])
    except CorruptFileError as e:
        assert e.message.startswith("the bytes are no valid HLL sketch: ")
    else:
        check_hll_sketch(found)
