"""The aggregate functions rbm32, rbm64 and of sketches: values that are sets, stored as bytes, united.

Source: Paimon 2.0 FieldRoaringBitmap32Agg, FieldRoaringBitmap64Agg; `aggregate_sketches` names the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from bucketline.state.errors import CorruptFileError, SchemaMismatchError
from bucketline.state.format.art_bitmap64 import decode_bitmap64, encode_bitmap64
from bucketline.state.lsm.events import Events, Op, take_or_null, validity


class Unite(Protocol):
    """Two values or more, in order of arrival, → their union. Raises CorruptFileError for bytes it cannot read.

    A `late` value has what came before added to it, instead of the other way round.
    """

    def __call__(self, values: Sequence[bytes], late: Sequence[bool]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Union:
    """The union of the values of each key; a single one stays as it is, unread."""

    column: str
    unite: Unite
    retracts: bool = False

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Raises SchemaMismatchError for a value that is no set of this kind."""
        live = validity(values) & events.live
        found = take_or_null(values, events.first(live))
        several = np.add.reduceat(live, events.starts, dtype=np.int64) > 1
        if not several.any():
            return found
        rows = np.flatnonzero(live & several[events.key_of_row])
        late = events.ops[rows] == Op.ADD_BEFORE
        borders = np.flatnonzero(np.diff(events.key_of_row[rows], prepend=-1, append=events.key_count))
        united = []
        for start, end in pairwise(borders.tolist()):
            parts = values.take(pa.array(rows[start:end])).to_pylist()
            united.append(self._united(parts, late[start:end].tolist()))
        return pc.replace_with_mask(found, pa.array(several), pa.array(united, values.type))

    def _united(self, parts: Sequence[bytes], late: Sequence[bool]) -> bytes:
        try:
            return self.unite(parts, late)
        except CorruptFileError as e:
            raise SchemaMismatchError(
                f"column {self.column}: a value cannot be united with others: {e.message}", column=self.column
            ) from e


def unite_bitmaps32(values: Sequence[bytes], late: Sequence[bool]) -> bytes:
    """The union of 32-bit Roaring bitmaps in their portable form."""
    try:
        merged = BitMap.union(*map(BitMap.deserialize, values))
    except (ValueError, IndexError, MemoryError) as e:
        raise CorruptFileError(f"no 32-bit Roaring bitmap in its portable form ({e})") from e
    merged.run_optimize()
    found: bytes = merged.serialize()
    return found


def unite_bitmaps64(values: Sequence[bytes], late: Sequence[bool]) -> bytes:
    """The union of 64-bit Roaring bitmaps in the form of Java."""
    return encode_bitmap64(BitMap64.union(*map(decode_bitmap64, values)))
