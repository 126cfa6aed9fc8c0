"""Checks that bytes are an HLL sketch of Apache DataSketches, because its C++ library does not.

    0  1, words in front: 2 list, 3 set, 10 registers
    1  1, version 1
    2  1, family 7
    3  1, log2 of the count of registers, 4 to 21
    4  1, log2 of the count of places, where they are not compact
    5  1, flags: 8 compact
    6  1, count of the list, or the lowest register
    7  1, 0 list, 1 set, 2 registers; and 0, 4 or 8 for registers of 4, 6 or 8 bits
    then
    list:       coupons
    set:        4 LE count, coupons
    registers:  three doubles, 4 LE count of lowest registers, 4 LE count of exceptions, registers, exceptions

A coupon is 4 LE: 6 bits of value, never 0, above 26 bits of place. Registers of 4 bits count from the lowest one, and
15 means that an exception, which is a coupon, holds the value.

Source: Apache DataSketches 4.2 (Java, as in Paimon 1.4) PreambleUtil, CouponList, CouponHashSet, Hll4Array.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError

_VERSION, _FAMILY = 1, 7
_LG_REGISTERS = range(4, 22)
_PREAMBLE_WORDS = (2, 3, 10)
_LIST, _SET = 0, 1
_HLL_4, _HLL_6, _HLL_8 = 0, 1, 2
_COMPACT = 8
_LIST_PLACES = 8
_LG_SET_PLACES = 5
_REGISTERS_AT = 40
_EXCEPTION = 15
_MOST = 63


def check_hll_sketch(data: bytes) -> None:
    """Raises CorruptFileError if the sketch cannot be read, or its counts are wrong."""
    if len(data) < 8:
        raise _corrupt(f"{counted(len(data), 'byte')} are too few")
    words, version, family, lg_registers, lg_places, flags, low, form = data[:8]
    mode, width = form & 3, form >> 2
    if (
        (version, family) != (_VERSION, _FAMILY)
        or mode >= len(_PREAMBLE_WORDS)
        or words != _PREAMBLE_WORDS[mode]
        or width > _HLL_8
        or lg_registers not in _LG_REGISTERS
    ):
        raise _corrupt(f"it begins with {data[:8].hex()}")
    compact = bool(flags & _COMPACT)
    if mode == _LIST:
        if low >= _LIST_PLACES:
            raise _corrupt(f"a list of {low} coupons, {_LIST_PLACES - 1} are the most")
        _check_count(_coupons(data, 8, low if compact else _LIST_PLACES), low)
    elif mode == _SET:
        _check_set(data, lg_registers, None if compact else lg_places)
    else:
        _check_registers(data, lg_registers, width, low, None if compact else lg_places)


def _check_set(data: bytes, lg_registers: int, lg_places: int | None) -> None:
    (count,) = _unpacked("<I", data, 8)
    most = lg_registers - 3
    if lg_places is not None and not _LG_SET_PLACES <= lg_places <= most:
        raise _corrupt(f"a set of 2^{lg_places} places for 2^{lg_registers} registers")
    # A fuller set has more places, or is registers.
    if most < _LG_SET_PLACES or 4 * count > 3 << (most if lg_places is None else lg_places):
        raise _corrupt(f"a set of {count} coupons for 2^{lg_registers} registers")
    _check_count(_coupons(data, 12, count if lg_places is None else 1 << lg_places), count)


def _check_registers(data: bytes, lg_registers: int, width: int, lowest: int, lg_places: int | None) -> None:
    lowest_count, exception_count = _unpacked("<II", data, 32)
    size = 1 << lg_registers
    stored_bytes = {_HLL_4: size // 2, _HLL_6: size * 3 // 4 + 1, _HLL_8: size}[width]
    stored = np.frombuffer(data[_REGISTERS_AT : _REGISTERS_AT + stored_bytes], np.uint8)
    if len(stored) != stored_bytes:
        raise _corrupt(f"{counted(len(stored), 'byte')} of registers are left of {stored_bytes}")
    if width == _HLL_4:
        values = np.stack([stored & 15, stored >> 4], axis=1).reshape(size)
        exceptions = np.flatnonzero(values == _EXCEPTION)
        if len(exceptions) != exception_count:
            raise _corrupt(f"{len(exceptions)} registers of {exception_count} have exceptions")
        if exception_count:
            places = exception_count if lg_places is None else 1 << lg_places
            coupons = _coupons(data, _REGISTERS_AT + stored_bytes, places)
            _check_count(coupons, exception_count)
            coupons = coupons[coupons != 0]
            if not np.array_equal(np.sort(coupons & (size - 1)), exceptions):
                raise _corrupt("exceptions are of other registers")
            if (coupons >> 26 < lowest + _EXCEPTION).any():
                raise _corrupt("an exception has a value that needs none")
        if lowest + int(values.max(initial=0, where=values != _EXCEPTION)) > _MOST:
            raise _corrupt(f"registers above {_MOST}")
    else:
        bits = np.unpackbits(stored, bitorder="little")[: size * 6].reshape(size, 6) if width == _HLL_6 else None
        values = stored if bits is None else np.packbits(bits, axis=1, bitorder="little")[:, 0]
        if lowest or exception_count or values.max() > _MOST:
            raise _corrupt(f"lowest {lowest}, {exception_count} exceptions, registers up to {values.max()}")
    if int(np.count_nonzero(values == 0)) != lowest_count:
        raise _corrupt(f"{np.count_nonzero(values == 0)} registers are the lowest, not {lowest_count}")


def _coupons(data: bytes, at: int, places: int) -> NDArray[np.uint32]:
    if len(data) < at + 4 * places:
        raise _corrupt(f"{counted(len(data) - at, 'byte')} are left for {places} coupons")
    return np.frombuffer(data, "<u4", places, at)


def _check_count(coupons: NDArray[np.uint32], count: int) -> None:
    filled = coupons[coupons != 0]
    if len(filled) != count or (filled >> 26 == 0).any():
        raise _corrupt(f"{len(filled)} places hold {count} coupons, or one has no value")


def _unpacked(form: str, data: bytes, at: int) -> tuple[int, ...]:
    if len(data) < at + struct.calcsize(form):
        raise _corrupt(f"{counted(len(data), 'byte')} are too few")
    return struct.unpack_from(form, data, at)


def _corrupt(reason: str) -> CorruptFileError:
    return CorruptFileError(f"no HLL sketch: {reason}")
