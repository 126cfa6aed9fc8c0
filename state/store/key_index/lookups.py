"""Two ways to read the values of many keys: each key by itself, or all entries between the first and the last.

An entry that a scan passes takes a third of the time that a key takes that is looked up. So a batch that has many of
the keys of an index is read faster by a scan. rocksdict ends a scan at a damaged block as at the last entry.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from rocksdict import Rdict

DENSE_ENTRIES = 3
"""Entries of the index for each key that is looked up, up to which a scan is used."""

STEP_ENTRIES = 1 << 14
"""Entries that a scan holds at a time."""


def is_dense(database: Rdict, key_count: int) -> bool:
    """Whether a scan finds so many keys faster. It also passes removed entries, and old values of keys that RocksDB has
    not dropped yet."""
    entries: int = sum(file["num_entries"] for file in database.live_files())
    return entries <= DENSE_ENTRIES * key_count


def values_by_key(database: Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
    """The value of each stored key, None where there is none. Ascending keys are found fastest."""
    values: list[bytes | None] = database.get(keys)
    return values


def values_by_scan(database: Rdict, keys: Sequence[bytes], step: int = STEP_ENTRIES) -> list[bytes | None]:
    """As `values_by_key`, for ascending keys, by reading all entries between them.

    Where the scan ends the rest is looked up, which raises for a damaged block.
    """
    values: list[bytes | None] = []
    if not keys:
        return values
    entries = database.items(from_key=keys[0])
    while len(values) < len(keys):
        passed = dict(islice(entries, step))
        if not passed:
            # An error would keep a scan that it has seen, and so the database open, after it is closed.
            del entries
            values += values_by_key(database, keys[len(values) :])
            break
        reached = bisect_right(keys, next(reversed(passed)), lo=len(values))
        values += map(passed.get, keys[len(values) : reached])
    return values


def entries_from(database: Rdict, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Stored keys and values from `start` on. Raises what rocksdict raises where the last entry cannot be reached."""
    last = None
    for entry in database.items(from_key=start):
        last = entry
        yield entry
    _check_end(database, start if last is None else last[0])


def _check_end(database: Rdict, key: bytes) -> None:
    """Raises when there is an entry behind that key, or a damaged block."""
    place = database.iter()
    place.seek(key)
    if place.valid() and place.key() == key:
        place.next()
    try:
        place.status()
        if place.valid():
            raise OSError("a scan ended before the last entry")
    finally:
        # As above: an error keeps what it has seen.
        del place
