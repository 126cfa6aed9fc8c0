"""Aggregate functions one value at a time, in plain Python: what the reference of the merge engines folds with.

Written from the specification of Paimon 2.0, not from the folds. Values are Python values: decimals, arrays lists, maps
lists of pairs, nested rows dicts.
"""

import struct
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from math import gcd
from typing import Any

import datasketches
from pyroaring import BitMap

from bucketline.state.format.index.art_bitmap64 import decode_bitmap64, encode_bitmap64
from bucketline.state.types.logical import DataType, TypeRoot

Row = dict[str, Any]

SEQ, KIND = "_SEQUENCE_NUMBER", "_VALUE_KIND"
UPDATE_BEFORE, DELETE = 1, 3
_INT_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_EXACT = Context(prec=200)
_NO_JAVA_WHITE_SPACE = "\x85\u00a0\u2007\u202f"


class RefusedError(Exception):
    """Paimon fails on this input."""


class NoResultError(Exception):
    """A result that does not exist. Paimon fails at once; we fail unless a later -D replaces the value."""


def float32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def rank(value: Any) -> Any:
    """A value that Python compares in Paimon's order; nulls first."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        bits = 0x7FF8 << 48 if value != value else struct.unpack("<q", struct.pack("<d", value))[0]
        return (1, bits ^ (2**63 - 1) if bits < 0 else bits)
    return (1, value.encode() if isinstance(value, str) else value)


class Function:
    """One aggregate function. `add_reversed` is for a row that comes late."""

    def __init__(self, data_type: DataType, options: Mapping[str, str]) -> None:
        self.type, self.options = data_type, options

    def reset(self) -> None: ...

    def add(self, held: Any, value: Any) -> Any:
        raise NotImplementedError

    def add_reversed(self, held: Any, value: Any) -> Any:
        return self.add(value, held)

    def retract(self, held: Any, value: Any) -> Any:
        raise RefusedError("no retract")

    def finished(self, held: Any) -> Any:
        """What becomes of the accumulator after the last row."""
        return held


class Sum(Function):
    def checked(self, value: Any) -> Any:
        if self.type.root is TypeRoot.DECIMAL:
            units = int(value.scaleb(self.type.scale, _EXACT))
            limit = 2**63 if self.type.precision <= 18 else 10**self.type.precision
            lowest = -(2**63) if self.type.precision <= 18 else 1 - limit
            return value if lowest <= units < limit else None
        if self.type.root in _INT_BITS:
            if not -(2 ** (_INT_BITS[self.type.root] - 1)) <= value < 2 ** (_INT_BITS[self.type.root] - 1):
                raise NoResultError("overflow")
            return value
        return float32(value) if self.type.root is TypeRoot.FLOAT else value

    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        return self.checked(_EXACT.add(held, value) if isinstance(held, Decimal) else held + value)

    def retract(self, held: Any, value: Any) -> Any:
        if value is None:
            return held
        if held is None:
            return self.checked(_EXACT.minus(value) if isinstance(value, Decimal) else -value)
        return self.checked(_EXACT.subtract(held, value) if isinstance(held, Decimal) else held - value)

    def finished(self, held: Any) -> Any:
        if held is None or self.type.root is not TypeRoot.DECIMAL:
            return held
        return held if abs(int(held.scaleb(self.type.scale, _EXACT))) < 10**self.type.precision else None


class Product(Function):
    def fitted(self, value: Any) -> Any:
        if self.type.root is TypeRoot.DECIMAL:
            found = value.quantize(Decimal(1).scaleb(-self.type.scale), rounding=ROUND_HALF_UP, context=_EXACT)
            return found if abs(int(found.scaleb(self.type.scale, _EXACT))) < 10**self.type.precision else None
        if self.type.root in _INT_BITS:
            if not -(2 ** (_INT_BITS[self.type.root] - 1)) <= value < 2 ** (_INT_BITS[self.type.root] - 1):
                raise NoResultError("overflow")
            return value
        return float32(value) if self.type.root is TypeRoot.FLOAT else value

    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        return self.fitted(_EXACT.multiply(held, value) if isinstance(held, Decimal) else held * value)

    def retract(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return held
        if self.type.root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
            if value == 0:
                signs = struct.pack(">d", held)[0] ^ struct.pack(">d", value)[0]
                nan = held == 0 or held != held
                return float("nan") if nan else float("-inf") if signs & 0x80 else float("inf")
            return self.fitted(held / value)
        if value == 0:
            raise NoResultError("division by zero")
        if isinstance(held, Decimal):
            top, bottom = (int(v.scaleb(self.type.scale, _EXACT)) for v in (held, value))
            if 10**200 % (abs(bottom) // gcd(top, bottom)):
                raise NoResultError("no end")
            return self.fitted(_EXACT.divide(held, value))
        return self.fitted(abs(held) // abs(value) * (1 if (held < 0) == (value < 0) else -1))


class Extreme(Function):
    greatest = True

    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        if self.greatest:
            return held if rank(held) >= rank(value) else value
        return value if rank(value) <= rank(held) else held


class Least(Extreme):
    greatest = False


class LastValue(Function):
    def add(self, held: Any, value: Any) -> Any:
        return value

    def retract(self, held: Any, value: Any) -> Any:
        return None


class LastNonNullValue(Function):
    def add(self, held: Any, value: Any) -> Any:
        return held if value is None else value

    def retract(self, held: Any, value: Any) -> Any:
        return held if value is None else None


class FirstValue(Function):
    seen = False

    def reset(self) -> None:
        self.seen = False

    def add(self, held: Any, value: Any) -> Any:
        if self.seen:
            return held
        self.seen = True
        return value


class FirstNonNullValue(FirstValue):
    def add(self, held: Any, value: Any) -> Any:
        return held if value is None else super().add(held, value)


class BoolAnd(Function):
    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        return held and value


class BoolOr(BoolAnd):
    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        return held or value


def _blank(text: str) -> bool:
    return all(c.isspace() and c not in _NO_JAVA_WHITE_SPACE for c in text)


class ListAgg(Function):
    def add(self, held: Any, value: Any) -> Any:
        if value is None or _blank(value):
            return held
        if held is None or _blank(held):
            return value
        separator = self.options.get("list-agg-delimiter", ",")
        if self.options.get("distinct") != "true":
            return held + separator + value
        known, new = set(held.split(separator)), []
        for token in value.split(separator):
            if not _blank(token) and token not in known:
                known.add(token)
                new.append(token)
        return separator.join([held, *new])


class Collect(Function):
    def add(self, held: Any, value: Any) -> Any:
        if held is None and value is None:
            return None
        if self.options.get("distinct") != "true":
            return value if held is None else held if value is None else held + value
        found: list[Any] = []
        for element in (held or []) + (value or []):
            if not any(same(element, e) for e in found):
                found.append(element)
        return found

    def add_reversed(self, held: Any, value: Any) -> Any:
        # Paimon's own wrapper for ignored retracts forgets that late rows count as if they came last.
        return self.add(value, held) if self.options.get("ignore-retract") == "true" else self.add(held, value)

    def retract(self, held: Any, value: Any) -> Any:
        if held is None or not value:
            return held
        left, found = list(value), []
        for element in held:
            match = next((i for i, e in enumerate(left) if same(e, element)), None)
            if match is None:
                found.append(element)
            else:
                del left[match]
        return found


class MergeMap(Function):
    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        return [p for p in held if not any(same(p[0], q[0]) for q in value)] + list(value)

    def retract(self, held: Any, value: Any) -> Any:
        if held is None or not value:
            return held
        return [p for p in held if not any(same(p[0], q[0]) for q in value)]


class MergeMapWithTime(Function):
    """The time is the field `t`, the last one."""

    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        found = dict(held)
        for key, item in value:
            if item is None:
                found.pop(key, None)
            elif item["t"] is not None:
                old = found.get(key)
                if old is None or old["t"] is None or item["t"] > old["t"]:
                    found[key] = item
        return list(found.items())


class NestedUpdate(Function):
    def names(self, suffix: str) -> list[str]:
        return [n for n in self.options.get(suffix, "").split(",") if n]

    def key_of(self, row: Any) -> Any:
        key = [plain(row[n]) for n in self.names("nested-key")]
        if None in key and self.options.get("nested-key-null-strategy") == "error":
            raise NoResultError("null key")
        return key

    def usable(self, rows: Any) -> list[Any]:
        found = [r for r in rows if r is not None]
        if self.names("nested-key"):
            ignores = self.options.get("nested-key-null-strategy") == "ignore"
            found = [r for r in found if not (None in self.key_of(r) and ignores)]
        return found

    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        limit = int(self.options.get("count-limit", 10**9))
        if not self.names("nested-key"):
            kept = self.usable(held)
            return kept + self.usable(value)[: max(0, limit - len(kept))]
        found: list[Any] = []
        base = len(self.usable(held))
        for number, row in enumerate(self.usable(held) + self.usable(value)):
            place = next((i for i, r in enumerate(found) if self.key_of(r) == self.key_of(row)), None)
            if place is None:
                if number < base or len(found) < limit:
                    found.append(row)
            elif [rank(row[n]) for n in self.names("nested-sequence-field")] >= [
                rank(found[place][n]) for n in self.names("nested-sequence-field")
            ]:
                found[place] = row
        return found

    def retract(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return held
        if not self.names("nested-key"):
            return [r for r in self.usable(held) if not any(same(r, v) for v in self.usable(value))]
        found = self.add([], held)
        gone = [self.key_of(v) for v in self.usable(value)]
        return [r for r in found if self.key_of(r) not in gone]


class NestedPartialUpdate(NestedUpdate):
    def add(self, held: Any, value: Any) -> Any:
        if held is None or value is None:
            return value if held is None else held
        found: list[Any] = []
        for row in self.usable(held) + self.usable(value):
            old = next((r for r in found if self.key_of(r) == self.key_of(row)), None)
            if old is None:
                found.append(dict(row))
            else:
                old.update({k: v for k, v in row.items() if v is not None})
        return found

    def retract(self, held: Any, value: Any) -> Any:
        raise RefusedError("no retract")


class Union(Function):
    def add(self, held: Any, value: Any) -> Any:
        return self.united(held, value) if held is not None and value is not None else held or value

    def united(self, held: bytes, value: bytes) -> bytes:
        raise NotImplementedError


class Bitmap32(Union):
    def united(self, held: bytes, value: bytes) -> bytes:
        return bytes((BitMap.deserialize(held) | BitMap.deserialize(value)).serialize())


class Bitmap64(Union):
    def united(self, held: bytes, value: bytes) -> bytes:
        return encode_bitmap64(decode_bitmap64(held) | decode_bitmap64(value))


class ThetaSketch(Union):
    def united(self, held: bytes, value: bytes) -> bytes:
        union = datasketches.theta_union()
        for part in (held, value):
            union.update(datasketches.compact_theta_sketch.deserialize(part))
        return bytes(union.get_result().serialize())


class HllSketch(Union):
    def united(self, held: bytes, value: bytes) -> bytes:
        first, second = map(datasketches.hll_sketch.deserialize, (held, value))
        union = datasketches.hll_union(second.lg_config_k)
        union.update(second)
        union.update(first)
        return bytes(union.get_result(datasketches.tgt_hll_type.HLL_4).serialize_compact())


def same(a: Any, b: Any) -> bool:
    """Equal as Java's objects are: NaN equals NaN, -0.0 does not equal 0.0."""
    return bool(plain(a) == plain(b))


def plain(value: Any) -> Any:
    """A value in a form in which equal means the same."""
    if isinstance(value, float):
        return rank(value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in sorted(value.items())}
    return value


FUNCTIONS: dict[str, type[Function]] = {
    "sum": Sum,
    "product": Product,
    "max": Extreme,
    "min": Least,
    "last_value": LastValue,
    "last_non_null_value": LastNonNullValue,
    "first_value": FirstValue,
    "first_non_null_value": FirstNonNullValue,
    "bool_and": BoolAnd,
    "bool_or": BoolOr,
    "listagg": ListAgg,
    "collect": Collect,
    "merge_map": MergeMap,
    "nested_update": NestedUpdate,
    "nested_partial_update": NestedPartialUpdate,
    "merge_map_with_keytime": MergeMapWithTime,
    "rbm32": Bitmap32,
    "rbm64": Bitmap64,
    "theta_sketch": ThetaSketch,
    "hll_sketch": HllSketch,
}
