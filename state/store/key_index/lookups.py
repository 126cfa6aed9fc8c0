"""Two ways to read the values of many keys: each key by itself, or all entries between the first and the last.

An entry that a scan passes takes a third of the time that a key takes that is looked up. So a batch that has many of
the keys of an index is read faster by a scan.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice

from rocksdict import Rdict

DENSE_ENTRIES = 3
"""Entries of the index for each key that is looked up, up to which a scan is used."""

STEP_ENTRIES = 1 << 14
"""Entries that a scan holds at a time."""


def is_dense(database: Rdict, key_count: int) -> bool:
    """Whether a scan finds so many keys faster. Entries that wait for a merge count as often as they are there."""
    entries = database.property_int_value("rocksdb.estimate-num-keys")
    return entries is not None and entries <= DENSE_ENTRIES * key_count


def values_by_key(database: Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
    """The value of each stored key, None where there is none. Ascending keys are found fastest."""
    found: list[bytes | None] = database.get(keys)
    return found


def values_by_scan(database: Rdict, keys: Sequence[bytes], step: int = STEP_ENTRIES) -> list[bytes | None]:
    """As `values_by_key`, for ascending keys, by reading all entries between them.

    A scan that ends has met the last entry, or a damaged one, of which rocksdict says nothing: keys that it has not
    passed are looked up, which raises for the damage.
    """
    values: list[bytes | None] = []
    if not keys:
        return values
    entries = database.items(from_key=keys[0])
    while len(values) < len(keys):
        found = dict(islice(entries, step))
        if not found:
            values += values_by_key(database, keys[len(values) :])
            break
        reached = bisect_right(keys, next(reversed(found)), lo=len(values))
        values += map(found.get, keys[len(values) : reached])
    return values
