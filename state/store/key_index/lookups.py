"""Two ways to read the values of many keys: look up each key, or scan all entries between the first and the last key.

A scan takes a third of the time of a lookup for each entry. So if a batch has many of the keys of an index, a scan is
faster. At a damaged block, rocksdict ends a scan without an error, as if there were no more entries. Therefore the
functions here look for a damaged block where a scan has ended.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from rocksdict import Rdict

DENSE_ENTRIES = 3
"""A scan is used if the index has at most this many entries for each wanted key."""

STEP_ENTRIES = 1 << 14
"""How many entries a scan holds in memory at a time."""


def is_dense(database: Rdict, key_count: int) -> bool:
    """Returns True if a scan is faster than lookups for this number of keys. A scan also reads removed entries, and old
    values of keys that RocksDB has not dropped yet.
    """
    entries: int = sum(file["num_entries"] for file in database.live_files())
    return entries <= DENSE_ENTRIES * key_count


def values_by_key(database: Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
    """Returns the value of each stored key; None for a key without a value. Ascending keys are found fastest."""
    values: list[bytes | None] = database.get(keys)
    return values


def values_by_scan(database: Rdict, keys: Sequence[bytes], step: int = STEP_ENTRIES) -> list[bytes | None]:
    """Returns the value of each key, or None for a key that the database does not have. The keys must ascend. All
    entries from the first to the last key are read, `step` entries at a time.

    If the scan ends before the last key, the remaining keys are looked up one by one. This finds damaged blocks: a scan
    just ends at a damaged block, but a lookup raises an error.
    """
    values: list[bytes | None] = []
    if not keys:
        return values
    entries = database.items(from_key=keys[0])
    while len(values) < len(keys):
        passed = dict(islice(entries, step))
        if not passed:
            # An error would hold a reference to the scan, so that the database would stay open after it is closed.
            del entries
            values += values_by_key(database, keys[len(values) :])
            break
        reached = bisect_right(keys, next(reversed(passed)), lo=len(values))
        values += map(passed.get, keys[len(values) : reached])
    return values


def entries_from(database: Rdict, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields stored keys and values from the key `start` on. Raises an error of rocksdict if the scan ends before the
    last entry.
    """
    last = None
    for entry in database.items(from_key=start):
        last = entry
        yield entry
    _check_end(database, start if last is None else last[0])


def _check_end(database: Rdict, key: bytes) -> None:
    """Checks that a scan of the database has ended at the last entry. Raises an error if there is an entry after `key`,
    the last key that the scan returned, or if a damaged block has ended the scan.
    """
    place = database.iter()
    place.seek(key)
    if place.valid() and place.key() == key:
        place.next()
    try:
        place.status()
        if place.valid():
            raise OSError("a scan ended before the last entry")
    finally:
        # An error would hold a reference to `place`, so that the database would stay open after it is closed.
        del place
