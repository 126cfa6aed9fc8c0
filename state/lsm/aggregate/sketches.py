"""The aggregate functions theta_sketch and hll_sketch: unions of sketches that estimate distinct counts.

Both Paimon and this module compute the unions with Apache DataSketches. The Python package is optional, because few
tables have sketches. The bytes are the same as those of Paimon's Java code, with one exception: the estimate that is
stored in a union of HLL sketches of different sizes.

Source: Paimon 1.4 and 2.0 FieldThetaSketchAgg, ThetaSketch, FieldHllSketchAgg, HllSketchUtil (DataSketches 4.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.hll_sketch import check_hll_sketch
from bucketline.state.lsm.aggregate.unions import Union

try:
    import datasketches
except ImportError:
    datasketches = None

_LACKS = (
    None
    if datasketches is not None
    else "Apache DataSketches wherever the table is written or read: pip install datasketches (the extra 'sketches')"
)

_EMPTY, _SINGLE = 4, 32
_OUT_OF_ORDER = 16
_CERTAIN = np.float32(1).tobytes()


def unite_theta_sketches(values: Sequence[bytes], late: Sequence[bool]) -> bytes:
    """Returns the union of compact theta sketches as a compact theta sketch. The union has at most 4096 entries, in
    ascending order.

    The order of the sketches does not matter, so `late` is ignored. Raises CorruptFileError for bytes that are not a
    compact theta sketch.
    """
    union = datasketches.theta_union()
    for value in values:
        union.update(_theta_sketch(value))
    return _as_java_writes(union.get_result().serialize())


def unite_hll_sketches(values: Sequence[bytes], late: Sequence[bool]) -> bytes:
    """Returns the union of HLL sketches as a compact sketch with 4 bits for each register.

    If the sketches have different sizes, the union is at most as large as the sketch that was added last. For a late
    sketch (marked in `late`) the order is reversed: the union of the earlier sketches is added to the late sketch.
    Raises CorruptFileError for bytes that are not an HLL sketch.
    """
    held = values[0]
    for value, came_late in zip(values[1:], late[1:], strict=True):
        held = _hll_of_two(value, held) if came_late else _hll_of_two(held, value)
    return held


def _theta_sketch(data: bytes) -> "datasketches.compact_theta_sketch":
    try:
        sketch = datasketches.compact_theta_sketch.deserialize(data)
    except (ValueError, IndexError, RuntimeError, MemoryError) as e:
        raise CorruptFileError(f"the bytes are no compact theta sketch: {e}") from e
    _check_entries(sketch)
    return sketch


def _hll_of_two(held: bytes, added: bytes) -> bytes:
    first, second = _hll_sketch(held), _hll_sketch(added)
    union = datasketches.hll_union(second.lg_config_k)
    union.update(second)
    union.update(first)
    united = bytearray(union.get_result(datasketches.tgt_hll_type.HLL_4).serialize_compact())
    united[5] |= (held[5] | added[5]) & _OUT_OF_ORDER
    return bytes(united)


def _hll_sketch(data: bytes) -> "datasketches.hll_sketch":
    """Decodes an HLL sketch. Clears the mark that the sketch is out of order, because the C++ library would ignore the
    stored estimate of such a sketch, and Java uses the estimate.
    """
    check_hll_sketch(data)
    try:
        return datasketches.hll_sketch.deserialize(data[:5] + bytes([data[5] & ~_OUT_OF_ORDER]) + data[6:])
    except (ValueError, IndexError, RuntimeError, MemoryError) as e:
        raise CorruptFileError(f"the bytes are no HLL sketch: {e}") from e


def _check_entries(sketch: "datasketches.compact_theta_sketch") -> None:
    """Raises CorruptFileError if an entry is 0 or not below theta, or if the entries do not ascend. The C++ library
    does not check this: its union takes 0 for a free slot, and stops at the first entry that is too large.
    """
    data = sketch.serialize()
    entries = np.frombuffer(data, "<u8", sketch.num_retained, len(data) - 8 * sketch.num_retained)
    if len(entries) and (entries.min() == 0 or entries.max() >= sketch.theta64):
        raise CorruptFileError("the bytes are no compact theta sketch: an entry is 0, or not below theta")
    if sketch.is_ordered() and (entries[1:] <= entries[:-1]).any():
        raise CorruptFileError("the bytes are no compact theta sketch: the entries do not ascend")


def _as_java_writes(data: bytes) -> bytes:
    """Returns a compact theta sketch with the header fields that Java writes but the C++ library leaves out."""
    sketch = bytearray(data)
    if sketch[0] > 1:
        sketch[12:16] = _CERTAIN
    elif sketch[5] & _EMPTY:
        sketch[6:8] = bytes(2)
    else:
        sketch[5] |= _SINGLE
    return bytes(sketch)


@dataclass(frozen=True, slots=True)
class ThetaSketch(Union):
    """Unions of theta sketches."""

    names = ("theta_sketch",)
    lacks = _LACKS

    def unite(self, values: Sequence[bytes], late: Sequence[bool]) -> bytes:
        return unite_theta_sketches(values, late)

    def check(self, value: bytes) -> object:
        return _theta_sketch(value)


@dataclass(frozen=True, slots=True)
class HllSketch(Union):
    """Unions of HLL sketches."""

    names = ("hll_sketch",)
    lacks = _LACKS

    def unite(self, values: Sequence[bytes], late: Sequence[bool]) -> bytes:
        return unite_hll_sketches(values, late)

    def check(self, value: bytes) -> object:
        return _hll_sketch(value)
