"""Packs the values that tell a task how to read or write one table.

A Spark task unpacks only the values of the tables that it reads or writes. If the values were sent unpacked, every task
would load the values of all tables.
"""

import pickle
from typing import TypeVar

import pyarrow as pa
from pyspark import cloudpickle

T = TypeVar("T")


def packed(value: object) -> bytes:
    """Returns the value, pickled and compressed. The first eight bytes are the size of the pickle in bytes,
    little-endian.
    """
    try:
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        data = cloudpickle.dumps(value)  # cloudpickle is much slower, but can pickle functions that no module holds
    return len(data).to_bytes(8, "little") + bytes(pa.Codec("zstd", compression_level=1).compress(data, asbytes=True))


def unpacked(data: bytes, kind: type[T]) -> T:
    """Returns the value that `packed` has packed; it must be of the class `kind`."""
    value = pickle.loads(pa.Codec("zstd").decompress(data[8:], int.from_bytes(data[:8], "little"), asbytes=True))
    assert isinstance(value, kind)
    return value
