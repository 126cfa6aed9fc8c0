"""The aggregate functions that unite sets stored as bytes: the Roaring bitmaps rbm32 and rbm64, and the base class of
sketches.

Source: Paimon 2.0 FieldRoaringBitmap32Agg, FieldRoaringBitmap64Agg.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.errors import CorruptFileError, SchemaMismatchError
from bucketline.state.format.index.art_bitmap64 import decode_bitmap64, encode_bitmap64
from bucketline.state.lsm.aggregate.events import Events, Mask, Op, take_or_null, validity
from bucketline.state.lsm.aggregate.function import AggregateFunction
from bucketline.state.types.logical import DataField, TypeRoot


@dataclass(frozen=True, slots=True)
class Union(AggregateFunction):
    """Computes the union of the sets of each key. If a key has a single value, the bytes of this value stay unchanged
    and are not decoded.
    """

    column: str
    is_strict: bool = False

    takes = frozenset({TypeRoot.VARBINARY})
    commutes = True

    @classmethod
    def of(cls, field: DataField, options: FieldOptions) -> Self:
        return cls(field.name)

    def strict(self) -> Self:
        return replace(self, is_strict=True)

    @abstractmethod
    def unite(self, values: Sequence[bytes], late: Sequence[bool]) -> bytes:
        """Returns the union of two or more values, which are in order of arrival. Raises CorruptFileError for bytes
        that cannot be decoded.

        `late` marks the values of late rows, which count as older than all other rows. The result may depend on what is
        added to what. Normally a value is added to the union of the values before it. For a late value, the union of
        the values before it is added to the late value.
        """

    @abstractmethod
    def check(self, value: bytes) -> object:
        """Raises CorruptFileError if `unite` cannot read the value."""

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Returns the union of each key. A value that cannot be decoded counts as null; if the function is strict, such
        a value raises SchemaMismatchError.
        """
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
            return self.unite(parts, late)
        except CorruptFileError as e:
            if self.is_strict:
                raise SchemaMismatchError(self._cannot_unite(e), column=self.column) from e
        sets = [(part, is_late) for part, is_late in zip(parts, late, strict=True) if self._is_set(part)]
        return self.unite(*map(list, zip(*sets, strict=True))) if len(sets) > 1 else sets[0][0] if sets else None

    def _is_set(self, value: bytes) -> bool:
        try:
            self.check(value)
        except CorruptFileError:
            return False
        return True

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Yields the rows whose value cannot be decoded: for each reason, a mask of the rows and the text of the
        reason.
        """
        rows_of_reason: dict[str, list[int]] = {}
        for row in np.flatnonzero(validity(values)).tolist():
            try:
                self.check(values[row].as_py())
            except CorruptFileError as e:
                rows_of_reason.setdefault(self._cannot_unite(e), []).append(row)
        for reason, rows in rows_of_reason.items():
            yield np.isin(np.arange(len(values)), rows), reason

    def _cannot_unite(self, error: CorruptFileError) -> str:
        return f"column {self.column}: a value cannot be united with others: {error.message}"


@dataclass(frozen=True, slots=True)
class RoaringBitmap32(Union):
    """Unites 32-bit Roaring bitmaps in the portable format."""

    names = ("rbm32",)

    def unite(self, values: Sequence[bytes], late: Sequence[bool]) -> bytes:
        merged = BitMap.union(*map(_bitmap32, values))
        merged.run_optimize()
        serialized: bytes = merged.serialize()
        return serialized

    def check(self, value: bytes) -> object:
        return _bitmap32(value)


@dataclass(frozen=True, slots=True)
class RoaringBitmap64(Union):
    """Unites 64-bit Roaring bitmaps in the format of RoaringBitmap's Java library."""

    names = ("rbm64",)

    def unite(self, values: Sequence[bytes], late: Sequence[bool]) -> bytes:
        return encode_bitmap64(BitMap64.union(*map(decode_bitmap64, values)))

    def check(self, value: bytes) -> object:
        return decode_bitmap64(value)


def _bitmap32(data: bytes) -> BitMap:
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as e:
        raise CorruptFileError(f"the bytes are no 32-bit Roaring bitmap in the portable format ({e})") from e
