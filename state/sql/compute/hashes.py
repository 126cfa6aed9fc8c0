"""Hash functions: md5, sha1, sha2 and crc32 of strings and byte strings, and xxhash64 of any values, with the same
results as in Spark.

Source: Spark 4.0 hash.scala (XxHash64, Crc32), XXH64.java, with its seed 42.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.calls import Evaluate, Function, FunctionCall, literal
from bucketline.state.sql.compute.moments import by_array
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.compute.time_patterns import distinct_places
from bucketline.state.sql.dialect import DIALECT

_Hashes = npt.NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_SEED = 42


def _bytes_of(call: FunctionCall, value: Evaluate) -> Value:
    data = value(call.arguments[0])
    if pa.types.is_null(data.type):
        return data.cast(pa.binary())
    if not (pa.types.is_string(data.type) or pa.types.is_binary(data.type)):
        raise pa.ArrowTypeError(f"{call.text!r} needs a string or bytes, not {data.type}; use CAST")
    return data.cast(pa.binary())


def _digest(make: Callable[[bytes], object], kind: pa.DataType) -> Callable[[FunctionCall, Evaluate], Value]:
    def compute(call: FunctionCall, value: Evaluate) -> Value:
        def digests(data: pa.Array) -> pa.Array:
            # No library computes these hashes for whole columns. So each distinct value is hashed once.
            coded = data.dictionary_encode()
            made = pa.array([make(item.as_buffer()) for item in coded.dictionary], kind)
            return made.take(coded.indices)

        return by_array(_bytes_of(call, value), digests)

    return compute


def _sha2(call: FunctionCall, value: Evaluate) -> Value:
    bits = literal(call.arguments[1], int)
    make = {0: hashlib.sha256, 224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384, 512: hashlib.sha512}
    if bits not in make:
        raise OptionError(f"{call.text!r}: the number of bits must be 224, 256, 384 or 512", key="expression")
    return _digest(lambda data: make[bits](data).hexdigest(), pa.string())(call, value)


def _xxhash64(call: FunctionCall, value: Evaluate) -> Value:
    values = [value(node) for node in call.arguments]
    count = max((len(v) for v in values if isinstance(v, pa.Array)), default=1)
    hashes: _Hashes = np.full(count, _SEED, np.uint64)
    with np.errstate(over="ignore"):
        for node, given in zip(call.arguments, values, strict=True):
            column = pa.repeat(given, count) if isinstance(given, pa.Scalar) else given
            valid = np.asarray(column.is_valid())
            hashes = np.where(valid, _hashed(column, hashes, node.sql(DIALECT)), hashes)
    made = pa.array(hashes.view(np.int64))
    return made if any(isinstance(v, pa.Array) for v in values) else made[0]


def _hashed(column: pa.Array, seeds: _Hashes, text: str) -> _Hashes:
    kind = column.type
    if pa.types.is_null(kind):
        return seeds
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(column.cast(pa.binary()), seeds)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_floating(kind):
        whole = np.asarray(column.fill_null(0)) + 0.0  # -0.0 is hashed as 0.0.
        bits = whole.view(np.int32 if kind.bit_width == 32 else np.int64)
        column = pa.array(bits)
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_decimal(kind) and kind.precision <= 18:
        column = pc.multiply(column.cast(pa.decimal256(60, kind.scale)), pa.scalar(10**kind.scale)).cast(pa.int64())
    elif not pa.types.is_integer(kind):
        raise pa.ArrowTypeError(f"xxhash64 of {text}, which is {kind}, is not supported")
    if column.type.bit_width < 64:
        return _hash_int(np.asarray(column.fill_null(0).cast(pa.int32())), seeds)
    return _hash_long(np.asarray(column.fill_null(0)), seeds)


def _rotated(x: _Hashes, bits: int) -> _Hashes:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _final(h: _Hashes) -> _Hashes:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


def _hash_int(values: npt.NDArray[np.int32], seeds: _Hashes) -> _Hashes:
    h = seeds + _P5 + np.uint64(4)
    h = h ^ (values.view(np.uint32).astype(np.uint64) * _P1)
    return _final(_rotated(h, 23) * _P2 + _P3)


def _hash_long(values: npt.NDArray[np.int64], seeds: _Hashes) -> _Hashes:
    return _final(_with_long(seeds + _P5 + np.uint64(8), values.view(np.uint64)))


def _with_long(h: _Hashes, words: _Hashes) -> _Hashes:
    return _rotated(h ^ (_rotated(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _hash_bytes(data: pa.Array, seeds: _Hashes) -> _Hashes:
    """Returns the hash of each string or byte string. Values of the same length are hashed together."""
    lengths = np.asarray(pc.binary_length(data).fill_null(0), np.int64)
    hashes = np.empty(len(data), np.uint64)
    distinct, places = distinct_places(lengths)
    for at, length in enumerate(distinct.tolist()):
        rows = np.flatnonzero(places == at)
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(rows)], data.take(pa.array(rows)).fill_null(b"")), b"")
        signs = np.frombuffer(joined[0].as_buffer(), np.uint8).reshape(len(rows), length)
        hashes[rows] = _hash_matrix(signs, seeds[rows])
    return hashes


def _hash_matrix(signs: npt.NDArray[np.uint8], seeds: _Hashes) -> _Hashes:
    length, at = signs.shape[1], 0
    words: _Hashes = np.ascontiguousarray(signs[:, : length // 8 * 8]).view(np.uint64)
    if length >= 32:
        v: list[_Hashes] = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
        while at + 32 <= length:
            for lane in range(4):
                v[lane] = _rotated(v[lane] + words[:, at // 8 + lane] * _P2, 31) * _P1
            at += 32
        h = _rotated(v[0], 1) + _rotated(v[1], 7) + _rotated(v[2], 12) + _rotated(v[3], 18)
        for lane in range(4):
            h = (h ^ (_rotated(v[lane] * _P2, 31) * _P1)) * _P1 + _P4
    else:
        h = seeds + _P5
    h = h + np.uint64(length)
    while at + 8 <= length:
        h = _with_long(h, words[:, at // 8])
        at += 8
    if at + 4 <= length:
        word = np.ascontiguousarray(signs[:, at : at + 4]).view(np.uint32)[:, 0].astype(np.uint64)
        h = _rotated(h ^ (word * _P1), 23) * _P2 + _P3
        at += 4
    for i in range(at, length):
        h = _rotated(h ^ (signs[:, i].astype(np.uint64) * _P5), 11) * _P1
    return _final(h)


_MD5 = _digest(lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(), pa.string())
_SHA1 = _digest(lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest(), pa.string())
HASH_FUNCTIONS: Mapping[str, Function] = {
    "md5": Function(1, 1, _MD5),
    "sha": Function(1, 1, _SHA1),
    "sha1": Function(1, 1, _SHA1),
    "sha2": Function(2, 2, _sha2),
    "crc32": Function(1, 1, _digest(zlib.crc32, pa.int64())),
    "xxhash64": Function(1, 255, _xxhash64),
}
