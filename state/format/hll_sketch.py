"""Checks that bytes are a valid HLL sketch (for approximate distinct counts) of Apache DataSketches, because the C++
library of DataSketches does not check them. Offset, length in bytes (LE: little-endian) and content:

    0  1  length of the header in words of 4 bytes: 2 list, 3 set, 10 registers
    1  1  version, always 1
    2  1  family, always 7
    3  1  log2 of the number of registers, 4 to 21
    4  1  log2 of the number of slots for coupons, if the sketch is not compact
    5  1  flags; 8 means compact
    6  1  number of coupons of a list, or the value of the lowest register
    7  1  0 list, 1 set, 2 registers; and 0, 4 or 8 for registers of 4, 6 or 8 bits
    then
    list:       coupons
    set:        4 LE number of coupons, coupons
    registers:  three doubles, 4 LE number of registers with the lowest value, 4 LE number of exceptions,
                registers, exceptions

A coupon has 4 bytes (LE): the upper 6 bits are a value, never 0, and the lower 26 bits a position. A register of 4 bits
holds the difference to the lowest register; 15 means that the value is in an exception, which is a coupon.

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
        raise _corrupt(f"its header {data[:8].hex()} is not valid")
    compact = bool(flags & _COMPACT)
    if mode == _LIST:
        if low >= _LIST_PLACES:
            raise _corrupt(f"it has a list of {low} coupons, but a list holds at most {_LIST_PLACES - 1}")
        _check_count(_coupons(data, 8, low if compact else _LIST_PLACES), low)
    elif mode == _SET:
        _check_set(data, lg_registers, None if compact else lg_places)
    else:
        _check_registers(data, lg_registers, width, low, None if compact else lg_places)


def _check_set(data: bytes, lg_registers: int, lg_places: int | None) -> None:
    (count,) = _unpacked("<I", data, 8)
    most = lg_registers - 3
    if lg_places is not None and not _LG_SET_PLACES <= lg_places <= most:
        raise _corrupt(f"a set of 2^{lg_places} slots cannot belong to 2^{lg_registers} registers")
    # A set with more coupons than this has more slots, or is stored as registers.
    if most < _LG_SET_PLACES or 4 * count > 3 << (most if lg_places is None else lg_places):
        raise _corrupt(f"a set of {count} coupons cannot belong to 2^{lg_registers} registers")
    _check_count(_coupons(data, 12, count if lg_places is None else 1 << lg_places), count)


def _check_registers(data: bytes, lg_registers: int, width: int, lowest: int, lg_places: int | None) -> None:
    lowest_count, exception_count = _unpacked("<II", data, 32)
    size = 1 << lg_registers
    stored_bytes = {_HLL_4: size // 2, _HLL_6: size * 3 // 4 + 1, _HLL_8: size}[width]
    stored = np.frombuffer(data[_REGISTERS_AT : _REGISTERS_AT + stored_bytes], np.uint8)
    if len(stored) != stored_bytes:
        raise _corrupt(f"{counted(len(stored), 'byte')} are left for its registers, which take {stored_bytes:,}")
    if width == _HLL_4:
        values = np.stack([stored & 15, stored >> 4], axis=1).reshape(size)
        exceptions = np.flatnonzero(values == _EXCEPTION)
        if len(exceptions) != exception_count:
            raise _corrupt(f"{len(exceptions)} registers have exceptions, but the header says {exception_count}")
        if exception_count:
            places = exception_count if lg_places is None else 1 << lg_places
            coupons = _coupons(data, _REGISTERS_AT + stored_bytes, places)
            _check_count(coupons, exception_count)
            coupons = coupons[coupons != 0]
            if not np.array_equal(np.sort(coupons & (size - 1)), exceptions):
                raise _corrupt("its exceptions are not those of the registers with the value 15")
            if (coupons >> 26 < lowest + _EXCEPTION).any():
                raise _corrupt("it has an exception for a value that fits into a register")
        if lowest + int(values.max(initial=0, where=values != _EXCEPTION)) > _MOST:
            raise _corrupt(f"registers above {_MOST}")
    else:
        bits = np.unpackbits(stored, bitorder="little")[: size * 6].reshape(size, 6) if width == _HLL_6 else None
        values = stored if bits is None else np.packbits(bits, axis=1, bitorder="little")[:, 0]
        if lowest or exception_count or values.max() > _MOST:
            raise _corrupt(
                f"the lowest register {lowest} does not match {exception_count} exceptions and registers up to "
                f"{values.max()}"
            )
    if int(np.count_nonzero(values == 0)) != lowest_count:
        raise _corrupt(
            f"{np.count_nonzero(values == 0)} registers have the lowest value, but the header says {lowest_count}"
        )


def _coupons(data: bytes, at: int, places: int) -> NDArray[np.uint32]:
    if len(data) < at + 4 * places:
        raise _corrupt(f"{counted(len(data) - at, 'byte')} are left, too few for {places} coupons")
    return np.frombuffer(data, "<u4", places, at)


def _check_count(coupons: NDArray[np.uint32], count: int) -> None:
    filled = coupons[coupons != 0]
    if len(filled) != count or (filled >> 26 == 0).any():
        raise _corrupt(f"{len(filled)} slots are filled, but the header says {count}, or a coupon has no value")


def _unpacked(form: str, data: bytes, at: int) -> tuple[int, ...]:
    if len(data) < at + struct.calcsize(form):
        raise _corrupt(f"{counted(len(data), 'byte')} are too few")
    return struct.unpack_from(form, data, at)


def _corrupt(reason: str) -> CorruptFileError:
    return CorruptFileError(f"the bytes are no valid HLL sketch: {reason}")
