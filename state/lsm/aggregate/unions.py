"""The aggregate functions rbm32, rbm64 and those of sketches: unions of sets that are stored as bytes.

Source: Paimon 2.0 FieldRoaringBitmap32Agg, FieldRoaringBitmap64Agg; `sketches` has the others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from bucketline.state.errors import CorruptFileError, SchemaMismatchError
from bucketline.state.format.index.art_bitmap64 import decode_bitmap64, encode_bitmap64
from bucketline.state.lsm.aggregate.events import Events, Mask, Op, take_or_null, validity


class Unite(Protocol):
    """Two values or more, in order of arrival, → their union. Raises CorruptFileError for bytes it cannot read.

    To a `late` value the earlier ones are added, instead of the other way round.
    """

    def __call__(self, values: Sequence[bytes], late: Sequence[bool]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class SetKind:
    """One way to store a set as bytes. `check` raises CorruptFileError for bytes that `unite` could not read."""

    unite: Unite
    check: Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Union:
    """The union of the values of each key; a single value is kept unread."""

    column: str
    kind: SetKind
    is_strict: bool = False
    retracts: bool = False

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """A value that is not a set of this kind counts as null; if strict, it raises SchemaMismatchError."""
        live = validity(values) & events.live
        sets = take_or_null(values, events.first(live))
        several = np.add.reduceat(live, events.starts, dtype=np.int64) > 1
        if not several.any():
            return sets
        rows = np.flatnonzero(live & several[events.key_of_row])
        late = events.ops[rows] == Op.ADD_BEFORE
        borders = np.flatnonzero(np.diff(events.key_of_row[rows], prepend=-1, append=events.key_count))
        united = []
        for start, end in pairwise(borders.tolist()):
            parts = values.take(pa.array(rows[start:end])).to_pylist()
            united.append(self._united(parts, late[start:end].tolist()))
        return pc.replace_with_mask(sets, pa.array(several), pa.array(united, values.type))

    def _united(self, parts: Sequence[bytes], late: Sequence[bool]) -> bytes | None:
        try:
            return self.kind.unite(parts, late)
        except CorruptFileError as e:
            if self.is_strict:
                raise SchemaMismatchError(self._cannot_unite(e), column=self.column) from e
        sets = [(part, is_late) for part, is_late in zip(parts, late, strict=True) if self._is_set(part)]
        return self.kind.unite(*map(list, zip(*sets, strict=True))) if len(sets) > 1 else sets[0][0] if sets else None

    def _is_set(self, value: bytes) -> bool:
        try:
            self.kind.check(value)
        except CorruptFileError:
            return False
        return True

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Values that are not a set of this kind, one at a time."""
        rows_of_reason: dict[str, list[int]] = {}
        for row in np.flatnonzero(validity(values)).tolist():
            try:
                self.kind.check(values[row].as_py())
            except CorruptFileError as e:
                rows_of_reason.setdefault(self._cannot_unite(e), []).append(row)
        for reason, rows in rows_of_reason.items():
            yield np.isin(np.arange(len(values)), rows), reason

    def _cannot_unite(self, error: CorruptFileError) -> str:
        return f"column {self.column}: a value cannot be united with others: {error.message}"


def unite_bitmaps32(values: Sequence[bytes], late: Sequence[bool]) -> bytes:
    """The union of 32-bit Roaring bitmaps in their portable form."""
    merged = BitMap.union(*map(_bitmap32, values))
    merged.run_optimize()
    serialized: bytes = merged.serialize()
    return serialized


def unite_bitmaps64(values: Sequence[bytes], late: Sequence[bool]) -> bytes:
    """The union of 64-bit Roaring bitmaps in the form of Java."""
    return encode_bitmap64(BitMap64.union(*map(decode_bitmap64, values)))


def _bitmap32(data: bytes) -> BitMap:
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as e:
        raise CorruptFileError(f"no 32-bit Roaring bitmap in its portable form ({e})") from e


BITMAP32 = SetKind(unite_bitmaps32, _bitmap32)
BITMAP64 = SetKind(unite_bitmaps64, decode_bitmap64)
