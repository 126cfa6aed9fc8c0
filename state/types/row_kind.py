"""Row kinds: their codes on disk, their short names (`+I`, `-U`, `+U`, `-D`), and functions on columns of row kinds.

Source: Paimon 2.0 RowKind.
"""

from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc


class RowKind(IntEnum):
    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3


SHORT_NAMES = {
    "+I": RowKind.INSERT,
    "-U": RowKind.UPDATE_BEFORE,
    "+U": RowKind.UPDATE_AFTER,
    "-D": RowKind.DELETE,
}
"""The short names of the row kinds, in the order of their codes."""


def is_retract(kinds: pa.Array) -> pa.Array:
    """Takes row kinds as int8, and returns a mask of the kinds that take a row away (-U or -D)."""
    return pc.equal(pc.bit_wise_and(kinds, pa.scalar(1, pa.int8())), pa.scalar(1, pa.int8()))
