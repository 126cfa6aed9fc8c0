"""Cross-partition upserts: decides what happens to a row whose key is already in another partition.

The merge engine decides. With deduplicate, the key is deleted in its old partition and inserted in the new one. With
partial-update and aggregation, the row goes to the partition that has the key, and keeps its row kind. With first-row,
the row is dropped. Several rows of one key in a batch are treated in order, and each row sees the result of the rows
before it.

Source: Paimon 2.0 GlobalIndexAssigner, ExistingProcessor (DeleteExistingProcessor, UseOldExistingProcessor,
SkipNewExistingProcessor). Different here, on purpose: UseOldExistingProcessor changes every row kind to +I; this module
keeps the row kind.
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
"""The partition code of a key that is not in the index."""


class OldPlaceRule(Enum):
    """What happens to a row whose key is already in another partition."""

    DELETE_OLD = "deduplicate"
    USE_OLD = "partial-update, aggregation"
    SKIP_NEW = "first-row"


def old_place_rule(schema: TableSchema) -> OldPlaceRule:
    """Returns what the table's merge engine does with a row whose key is already in another partition."""
    engine = schema.settings.merge.engine
    if engine.keeps_first:
        return OldPlaceRule.SKIP_NEW
    return OldPlaceRule.DELETE_OLD if engine.keeps_newest else OldPlaceRule.USE_OLD


@dataclass(frozen=True, slots=True, eq=False)
class KeyPlaces:
    """The partition and bucket of each key. Each partition has a code, a small integer. `partitions` has the code of
    each key's partition; NOWHERE means that the key is unknown.
    """

    partitions: Int32s
    buckets: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRows:
    """Rows in the order of arrival, with only the values that are needed to choose their buckets.

    The rows have k different keys, numbered from 0 to k - 1. `keys` has for each row the number of its key, and
    `key_hashes` has the hash of each of the k keys.
    `partitions` has for each row the code of the partition in its columns; `KeyPlaces` uses the same codes. `kinds` has
    the kind of each row.
    """

    keys: Int64s
    key_hashes: Int32s
    partitions: Int32s
    kinds: Int8s


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The rows to write, in order. For each row, `rows` has its position in the input, `kinds` its row kind,
    `partitions` the code of its partition (a number that stands for the partition), and `buckets` its bucket.

    `places` are the partition and bucket of each key afterwards. `allocations` has the row counts of each partition
    in which the number of keys has changed, by partition code.

    A row can go to another partition than the one in its columns. Then `placed_rows` replaces the partition columns.
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
    """Chooses partition and bucket of each row of a batch, and returns the rows to write.

    `old` has the partition and bucket of each key before the batch. `allocations` has the row counts of partitions by
    partition code; a partition that is not in it starts with `empty`.
    If a key moves to another partition, its old bucket has space for one more key. Rows of this batch do not use the
    space yet; rows of the next batch can.
    """
    # In this order, the rows of one key follow each other, in the order of their arrival.
    order = np.argsort(rows.keys, kind="stable")
    keys = rows.keys[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    if rule is OldPlaceRule.DELETE_OLD:
        return _follow_rows(rows, old, order, first, _Allocator(allocations, empty))
    return _stay(rows, old, order, first, _Allocator(allocations, empty), skip_new=rule is OldPlaceRule.SKIP_NEW)


@dataclass(frozen=True, slots=True, eq=False)
class KeyEffect:
    """The changes to the key index when a batch is committed. Keys are given by their numbers in
    `KeyedRows`. `puts` are the keys whose entries are written, and `places` are the new partitions and buckets of these
    keys. `removes` are the keys whose entries are removed. `gains` says for each (partition code, bucket) by how much
    its number of keys grows.
    """

    puts: Int64s
    removes: Int64s
    places: KeyPlaces
    gains: Mapping[tuple[int, int], int]

    @property
    def growth(self) -> int:
        """Returns by how many keys the index grows: new keys minus removed keys, but at least 0."""
        return max(0, sum(self.gains.values()))

    def with_codes(self, codes: Int32s) -> "KeyEffect":
        """Returns the same changes of keys with other partition codes: code c becomes `codes[c]`."""
        partitions = np.where(self.places.partitions == NOWHERE, NOWHERE, codes[self.places.partitions])
        gains = {(int(codes[code]), bucket): gain for (code, bucket), gain in self.gains.items()}
        return KeyEffect(self.puts, self.removes, KeyPlaces(partitions.astype(np.int32), self.places.buckets), gains)


def key_effect(
    rows: KeyedRows, old: KeyPlaces, placement: Placement, rule: OldPlaceRule, *, expires: bool
) -> KeyEffect:
    """Returns how the key index changes if the rows are written as `placement` says: it has the partition and bucket of
    each row. The changes are the same as if the index were built again from the files to which the rows are written.

    If `expires` is true (entries of the index have a lifetime), every key that is written gets a new entry, even if its
    partition and bucket stay.
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
    """Returns the rows to write and their row kinds (int8). The partition columns have the values of the partition to
    which each row goes.

    `table` holds the input rows with the table's columns. The result has the same columns, and may have more or fewer
    rows. `partitions[code]` is the partition of a partition code, as the bytes of a BinaryRow.
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
    """Chooses buckets for new keys in several partitions, and counts the keys in each bucket, so that a full bucket
    gets no further keys.
    """

    def __init__(self, allocations: Mapping[int, Allocation], empty: Allocation) -> None:
        self.allocations = dict(allocations)
        self._empty = empty

    def allocate(self, partitions: Int32s, hashes: Int32s) -> Int32s:
        """Chooses buckets for new keys. `partitions` has the code of each key's partition (a number that stands for the
        partition), and `hashes` has the hash of each key. Returns the bucket of each key, in the same order.
        """
        buckets = np.empty(len(partitions), np.int32)
        for code in distinct(partitions).tolist():
            members = np.flatnonzero(partitions == code)
            buckets[members], self.allocations[code] = self.allocations.get(code, self._empty).allocate(hashes[members])
        return buckets

    def release(self, partitions: Int32s, buckets: Int32s) -> None:
        """Reduces the number of keys that is known for some buckets, because keys leave these buckets. For each key
        that leaves, `partitions` has the code of its partition, and `buckets` has its bucket.
        """
        places, counts = np.unique((partitions.astype(np.int64) << 32) | buckets, return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            code, bucket = divmod(place, 1 << 32)
            before = self.allocations.get(code, self._empty)
            rows = {**before.rows, bucket: max(0, before.rows.get(bucket, 0) - count)}
            self.allocations[code] = replace(before, rows=rows)


def _follow_rows(
    rows: KeyedRows, old: KeyPlaces, order: Int64s, first: NDArray[np.bool_], allocator: _Allocator
) -> Placement:
    """Returns the placement of rows for the merge engine deduplicate: a key moves to the partition of its newest row,
    and is deleted in the old partition. `order` has the rows sorted by key, and `first` is true for the first row of
    each key in this order.
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
    """Decides to which partition and bucket each row goes, for merge engines with which a key stays in its partition. A
    new key gets the partition of its first row. A row with another partition goes to the partition of its key; if
    `skip_new` is true, the row is dropped instead. `order` has the rows sorted by key, and `first` is true for the
    first row of each key in this order.
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
