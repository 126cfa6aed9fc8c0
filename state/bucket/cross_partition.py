"""Cross-partition upserts: what happens to a row whose key lives in another partition.

By merge engine: deduplicate deletes the key in its old partition and inserts it in the new one; partial-update and
aggregation write into the partition the key is in, keeping the row kind; first-row drops the row. Several rows of one
key in a batch are handled in order; each sees the result of those before it.

Source: Paimon 2.0 GlobalIndexAssigner, ExistingProcessor (DeleteExistingProcessor, UseOldExistingProcessor,
SkipNewExistingProcessor). Different on purpose: UseOldExistingProcessor turns every row kind into +I; here it stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.state.bucket.allocation import Allocation, Int32s
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.hashes.distinct import distinct
from bucketline.state.types.row_kind import RowKind
from bucketline.state.types.values import to_scalar

Int64s = NDArray[np.int64]
Int8s = NDArray[np.int8]

NOWHERE = -1
"""The partition code of a key that the index does not have."""


class OldPlaceRule(Enum):
    """What happens to a row whose key lives in another partition."""

    DELETE_OLD = "deduplicate"
    USE_OLD = "partial-update, aggregation"
    SKIP_NEW = "first-row"


def old_place_rule(schema: TableSchema) -> OldPlaceRule:
    """Returns what the table's merge engine does with a row whose key lives in another partition."""
    engine = schema.settings.merge.engine
    if engine.keeps_first:
        return OldPlaceRule.SKIP_NEW
    return OldPlaceRule.DELETE_OLD if engine.keeps_newest else OldPlaceRule.USE_OLD


@dataclass(frozen=True, slots=True, eq=False)
class KeyPlaces:
    """Where keys live: for each key the code of its partition (NOWHERE if the key is unknown), and its bucket."""

    partitions: Int32s
    buckets: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Rows in the order of arrival, with only those values that are needed to find their buckets.

    `keys` has for each row the number of its key, from 0 to k - 1; `key_hashes` has the hash of each of these k keys.
    `partitions` has the code of the partition that each row names; `KeyPlaces` has the same codes. `kinds` has the kind
    of each row.
    """

    keys: Int64s
    key_hashes: Int32s
    partitions: Int32s
    kinds: Int8s


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """m rows to write, in order: for each its input row, row kind, partition code and bucket. In addition the places of
    the k keys afterwards, and the allocation of each partition that got or lost keys.

    A row may go to another partition than it names; then it gets that partition's values: see `placed_rows`.
    """

    rows: Int64s
    kinds: Int8s
    partitions: Int32s
    buckets: Int32s
    places: KeyPlaces
    allocations: Mapping[int, Allocation]


def place_rows(
    rows: KeyedRows, old: KeyPlaces, rule: OldPlaceRule, *, allocations: Mapping[int, Allocation], empty: Allocation
) -> Placement:
    """Returns the rows to write for a batch. `allocations` are by partition code; a partition without one starts as
    `empty`.

    Room that a moved key leaves is used from the next batch on.
    """
    # Rows of one key next to each other, in arrival order.
    order = np.argsort(rows.keys, kind="stable")
    keys = rows.keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    if rule is OldPlaceRule.DELETE_OLD:
        return _follow_rows(rows, old, order, first, _Allocator(allocations, empty))
    return _stay(rows, old, order, first, _Allocator(allocations, empty), skip_new=rule is OldPlaceRule.SKIP_NEW)


@dataclass(frozen=True, slots=True, eq=False)
class KeyEffect:
    """The changes that a batch makes to the key index once it is committed. `puts` are the numbers of the keys to put
    at their `places`, `removes` those of the keys to remove. `gains` says for each (partition code, bucket) by how much
    its number of keys grows.
    """

    puts: Int64s
    removes: Int64s
    places: KeyPlaces
    gains: Mapping[tuple[int, int], int]

    @property
    def growth(self) -> int:
        """Returns by how many keys the index grows, removed keys subtracted; never below 0."""
        return max(0, sum(self.gains.values()))

    def with_codes(self, codes: Int32s) -> "KeyEffect":
        """Returns the effect with each partition code replaced by `codes[code]`."""
        partitions = np.where(self.places.partitions == NOWHERE, NOWHERE, codes[self.places.partitions])
        gains = {(int(codes[code]), bucket): gain for (code, bucket), gain in self.gains.items()}
        return KeyEffect(self.puts, self.removes, KeyPlaces(partitions.astype(np.int32), self.places.buckets), gains)


def key_effect(
    rows: KeyedRows, old: KeyPlaces, placement: Placement, rule: OldPlaceRule, *, expires: bool
) -> KeyEffect:
    """Returns the changes of a placement to the index: the same as from reading the files to which its rows are
    written.

    With `expires`, a key is put again whenever it is written.
    """
    new = placement.places
    written = np.zeros(len(old.partitions), np.bool_)
    written[rows.keys[placement.rows]] = True
    alive = written
    if rule is OldPlaceRule.DELETE_OLD:
        newest = np.zeros(len(old.partitions), np.int64)
        # Later rows of a key overwrite earlier ones.
        newest[rows.keys] = np.arange(len(rows.keys))
        alive = rows.kinds[newest] % 2 == 0
    was_known = old.partitions != NOWHERE
    came = alive & ((new.partitions != old.partitions) | (new.buckets != old.buckets))
    gone = was_known & ~alive if rule is OldPlaceRule.DELETE_OLD else np.zeros(len(alive), np.bool_)
    left = (came & was_known) | gone
    gains: dict[tuple[int, int], int] = {}
    for places, chosen, sign in ((new, came, 1), (old, left, -1)):
        packed = (places.partitions[chosen].astype(np.int64) << 32) | places.buckets[chosen]
        for place, count in zip(*np.unique(packed, return_counts=True), strict=True):
            code_and_bucket = divmod(int(place), 1 << 32)
            gains[code_and_bucket] = gains.get(code_and_bucket, 0) + sign * int(count)
    puts = np.flatnonzero(alive if expires else came)
    return KeyEffect(puts, np.flatnonzero(gone), new, {place: gain for place, gain in gains.items() if gain})


def placed_rows(
    table: pa.Table, placement: Placement, partitions: Sequence[bytes], schema: TableSchema
) -> tuple[pa.Table, pa.Array]:
    """Returns the rows of a placement and their kinds, with the values of the partitions they go to.

    `table` has the table's columns, and so have the returned rows, of which there may be more or fewer. The kinds are
    int8. `partitions` are the serialized partitions; a code of the placement is a position in them.
    """
    placed = table.take(pa.array(placement.rows))
    fields = schema.select(schema.partition_keys)
    decoded = [decode_row(p, [f.type for f in fields]) for p in partitions]
    codes = pa.array(placement.partitions)
    for number, field in enumerate(fields):
        position = placed.schema.get_field_index(field.name)
        column = placed.schema.field(position)
        values = pa.array([to_scalar(row[number], field.type) for row in decoded], column.type)
        placed = placed.set_column(position, column, values.take(codes))
    return placed, pa.array(placement.kinds)


class _Allocator:
    """Allocates buckets of several partitions and counts their keys."""

    def __init__(self, allocations: Mapping[int, Allocation], empty: Allocation) -> None:
        self.allocations = dict(allocations)
        self._empty = empty

    def allocate(self, partitions: Int32s, hashes: Int32s) -> Int32s:
        """Returns a bucket for each new key, in order; n codes and n hashes in, n buckets out."""
        buckets = np.empty(len(partitions), np.int32)
        for code in distinct(partitions).tolist():
            members = np.flatnonzero(partitions == code)
            buckets[members], self.allocations[code] = self.allocations.get(code, self._empty).allocate(hashes[members])
        return buckets

    def release(self, partitions: Int32s, buckets: Int32s) -> None:
        """Takes keys out of their buckets."""
        places, counts = np.unique((partitions.astype(np.int64) << 32) | buckets, return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            code, bucket = divmod(place, 1 << 32)
            before = self.allocations.get(code, self._empty)
            rows = {**before.rows, bucket: max(0, before.rows.get(bucket, 0) - count)}
            self.allocations[code] = replace(before, rows=rows)


def _follow_rows(
    rows: KeyedRows, old: KeyPlaces, order: Int64s, first: NDArray[np.bool_], allocator: _Allocator
) -> Placement:
    """Returns the placement of rows under deduplicate: a key moves to the partition of its newest row, and is deleted
    in the old partition.
    """
    keys, partitions = rows.keys[order], rows.partitions[order]
    came_from = np.empty(len(keys), np.int32)
    came_from[1:] = partitions[:-1]
    came_from[first] = old.partitions[keys[first]]
    moved = partitions != came_from
    buckets = np.where(first, old.buckets[keys], np.int32(0)).astype(np.int32)
    arrivals = np.flatnonzero(moved)
    arrivals = arrivals[np.argsort(order[arrivals])]
    buckets[arrivals] = allocator.allocate(partitions[arrivals], rows.key_hashes[keys[arrivals]])
    # A row that does not move goes to the partition of the last row of its key that moved, or of the key's first row.
    buckets = buckets[np.maximum.accumulate(np.where(moved | first, np.arange(len(keys)), 0))]
    left = np.flatnonzero(moved & (came_from != NOWHERE))
    bucket_before = np.empty(len(keys), np.int32)
    bucket_before[1:] = buckets[:-1]
    bucket_before[first] = old.buckets[keys[first]]
    allocator.release(came_from[left], bucket_before[left])
    last = np.roll(first, -1)
    places = KeyPlaces(old.partitions.copy(), old.buckets.copy())
    places.partitions[keys[last]], places.buckets[keys[last]] = partitions[last], buckets[last]
    # The delete in the old partition comes directly before the row that moves.
    source = np.concatenate([order[left], order])
    written = np.argsort(2 * source + np.repeat([0, 1], [len(left), len(order)]))
    kinds = np.concatenate([np.full(len(left), int(RowKind.DELETE), np.int8), rows.kinds[order]])
    return Placement(
        rows=source[written],
        kinds=kinds[written],
        partitions=np.concatenate([came_from[left], partitions])[written],
        buckets=np.concatenate([bucket_before[left], buckets])[written],
        places=places,
        allocations=allocator.allocations,
    )


def _stay(
    rows: KeyedRows, old: KeyPlaces, order: Int64s, first: NDArray[np.bool_], allocator: _Allocator, *, skip_new: bool
) -> Placement:
    """Returns the placement of rows under the other merge engines: a key stays in its partition; a new key gets the
    partition of its first row.
    """
    places = KeyPlaces(old.partitions.copy(), old.buckets.copy())
    beginnings = np.sort(order[first])
    beginnings = beginnings[old.partitions[rows.keys[beginnings]] == NOWHERE]
    new = rows.keys[beginnings]
    places.partitions[new] = rows.partitions[beginnings]
    places.buckets[new] = allocator.allocate(rows.partitions[beginnings], rows.key_hashes[new])
    targets = places.partitions[rows.keys]
    written = np.flatnonzero(targets == rows.partitions) if skip_new else np.arange(len(rows.keys))
    return Placement(
        rows=written,
        kinds=rows.kinds[written],
        partitions=targets[written],
        buckets=places.buckets[rows.keys[written]],
        places=places,
        allocations=allocator.allocations,
    )
