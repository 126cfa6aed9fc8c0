"""Removes expired keys from an index, a few with each batch.

Lookups ignore expired keys anyway; removing them frees disk space. Each batch scans the index from where the last batch
stopped, over twice as many keys as the batch adds. So at most half of the entries are expired.

Source: Paimon 2.0 `cross-partition-upsert.index-ttl`, by which its store removes keys when it compacts.
"""

from pathlib import Path

import numpy as np

from bucketline.state.bucket.key_entries import KEY_PREFIX, read_places
from bucketline.state.store.key_index.key_index import CHUNK_ROWS, KeyIndex
from bucketline.state.store.storage.errors import local_disk

LEAST_KEYS = 4096
"""The smallest number of keys that a batch scans."""

_STOPPED_AT = "expired-to"


def forget_expired(index: KeyIndex, *, alive_since: int, grown_by: int) -> int:
    """Removes keys from an open index that were last written before `alive_since` (in seconds), and returns the number
    of removed keys. Each call looks at one part of the index, and the next call goes on after this part.

    `grown_by` is the number of keys that the batch adds; the size of the part depends on this number. A key is removed
    in the same step in which the key count of its bucket is reduced. The label and the notes of the index stay valid,
    because a batch treats expired keys as unknown anyway.
    """
    place = Path(f"{index.directory}/{_STOPPED_AT}")
    with local_disk(index.directory):
        start = place.read_bytes() if place.is_file() else KEY_PREFIX
    left = max(LEAST_KEYS, 2 * grown_by)
    forgotten = 0
    while left > 0:
        entries = index.items(max(start, KEY_PREFIX), min(left, CHUNK_ROWS))
        forgotten += _forget(index, entries, alive_since)
        left -= len(entries)
        if len(entries) < CHUNK_ROWS and left > 0:
            # This is the end of the index; the next batch starts again at the beginning.
            start = KEY_PREFIX
            break
        start = entries[-1][0] + b"\x00"
    with local_disk(index.directory):
        place.write_bytes(start)
    return forgotten


def _forget(index: KeyIndex, entries: list[tuple[bytes, bytes]], alive_since: int) -> int:
    values = [value for _, value in entries]
    everywhere, living = read_places(values), read_places(values, alive_since=alive_since)
    gone = np.flatnonzero(everywhere.partitions != living.partitions)
    if not len(gone):
        return 0
    packed = (everywhere.partitions[gone].astype(np.int64) << 32) | everywhere.buckets[gone]
    places, counts = np.unique(packed, return_counts=True)
    before = {code: index.rows(code) for code in {place >> 32 for place in places.tolist()}}
    rows = {}
    for place, count in zip(places.tolist(), counts.tolist(), strict=True):
        code, bucket = divmod(place, 1 << 32)
        rows[code, bucket] = max(0, before[code].get(bucket, 0) - count)
    index.forget([entries[row][0] for row in gone.tolist()], rows)
    return len(gone)
