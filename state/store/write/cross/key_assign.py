"""Prepares the rows of one share (the keys that one task owns) for writing: looks up their keys in the key index, and
finds the partition and bucket of each row.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.allocation import Allocation, AllocationRule, Int32s, Ownership
from bucketline.state.bucket.cross_partition import (
    NOWHERE,
    KeyedRows,
    KeyEffect,
    KeyPlaces,
    key_effect,
    old_place_rule,
    place_rows,
    placed_rows,
)
from bucketline.state.bucket.key_entries import number_keys
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.feeds import Feeds, MixedKey, mixed_key_of
from bucketline.state.store.key_index.key_index import KeyIndex
from bucketline.state.store.key_index.table_keys import KeyShare
from bucketline.state.store.write.sealed_runs import partition_codes
from bucketline.state.types.hashes.distinct import distinct


@dataclass(frozen=True, slots=True, eq=False)
class PlacedBatch:
    """The rows of a batch that are to be written, in order, with the place of each row.

    Row i has the row kind `kinds[i]` (as int8), the partition `partitions[codes[i]]` and the bucket `buckets[i]`.
    `keys` has each key of the batch once, and `effect` says for each of these keys how its entry in the key index
    changes. Both are arguments of `write_note`.
    `mixed` is a key whose rows came from several feeds (topic partitions); None if there is no such key.
    """

    rows: pa.Table
    kinds: pa.Array
    partitions: tuple[bytes, ...]
    codes: Int32s
    buckets: Int32s
    keys: pa.Array
    effect: KeyEffect
    mixed: MixedKey | None = None


def place_batch(
    index: KeyIndex,
    rows: pa.Table,
    kinds: pa.Array,
    share: KeyShare,
    *,
    rule: AllocationRule,
    own: Ownership,
    alive_since: int = 0,
    expires: bool = False,
    feeds: Feeds | None = None,
) -> PlacedBatch:
    """Returns partition and bucket for those rows of a batch that belong to one share of the keys (the keys that one
    task owns, by their hash). The index is not changed. One call must get all rows of the share in the batch, because a
    second call would not know the rows of the first call.

    - `rows` have the table's columns, and are in order of arrival.
    - `kinds` has the row kind of each row, as int8.
    - `rule` says how the buckets are filled, and `own` says which buckets may get new keys.
    - Keys that were last written before `alive_since` (in seconds) count as new keys.
    - `expires` says that entries of the index have a lifetime.
    - `feeds` holds the feed (topic partition) of each row.
    """
    schema = share.schema
    flat = rows.combine_chunks()
    keys, numbers = number_keys(share.keys(flat))
    old = index.lookup(keys.normalized, alive_since=alive_since)
    codes, old, stored = _row_and_old_codes(index, flat, old, schema)
    names = index.partitions(stored.tolist())
    allocations = {n: Allocation(index.rows(code), own, rule) for n, code in enumerate(stored.tolist())}
    batch = KeyedRows(numbers, keys.hashes, codes, np.asarray(kinds))
    engine = old_place_rule(schema)
    placement = place_rows(batch, old, engine, allocations=allocations, empty=Allocation({}, own, rule))
    partitions = tuple(names[code] for code in stored.tolist())
    placed, placed_kinds = placed_rows(flat, placement, partitions, schema)
    effect = key_effect(batch, old, placement, engine, expires=expires)
    return PlacedBatch(
        rows=placed,
        kinds=placed_kinds,
        partitions=partitions,
        codes=placement.partitions,
        buckets=placement.buckets,
        keys=keys.normalized,
        effect=effect.with_codes(stored.astype(np.int32)),
        mixed=None if feeds is None else mixed_key_of(flat, numbers, feeds, schema.primary_keys),
    )


def _row_and_old_codes(
    index: KeyIndex, rows: pa.Table, old: KeyPlaces, schema: TableSchema
) -> tuple[Int32s, KeyPlaces, Int32s]:
    """Returns the partition of each row, the old partition and bucket of each key, and a list of partitions.

    The list has the code of each of these partitions in the key index, in ascending order. In the first two results, a
    partition is given by its position in the list. A key that has no old partition has NOWHERE.
    """
    named, codes_here = partition_codes(rows, schema)
    own_codes = index.codes(named)
    stored = distinct(own_codes.astype(np.int32), old.partitions[old.partitions != NOWHERE].astype(np.int32))
    of_rows = np.searchsorted(stored, own_codes)[codes_here].astype(np.int32)
    known = old.partitions != NOWHERE
    numbers = np.full(len(old.partitions), NOWHERE, np.int32)
    numbers[known] = np.searchsorted(stored, old.partitions[known])
    return of_rows, KeyPlaces(numbers, old.buckets), stored
