"""Placing rows as columns against placing them one at a time, for each rule."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.bucket.allocation import Allocation, AllocationRule, Ownership
from bucketline.state.bucket.cross_partition import (
    NOWHERE,
    KeyedRows,
    KeyPlaces,
    OldPlaceRule,
    old_place_rule,
    place_rows,
    placed_rows,
)
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.binary_row import encode_row
from bucketline.state.types.logical import DataField, parse_type
from tests.support.models.sweeps import draws

INSERT, DELETE = 0, 3
EMPTY = Allocation({}, Ownership(), AllocationRule(2))

rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 3)), max_size=20)
places = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 1)), min_size=6, max_size=6)


def as_columns(batch: list[tuple[int, int, int]]) -> KeyedRows:
    columns = np.array(batch, np.int64).reshape(-1, 3)
    hashes = np.array([5, -7, 11, 0, 2**31 - 1, -(2**31)], np.int32)
    return KeyedRows(columns[:, 0], hashes, columns[:, 1].astype(np.int32), columns[:, 2].astype(np.int8))


def as_places(found: list[tuple[int, int]]) -> KeyPlaces:
    columns = np.array(found, np.int32)
    return KeyPlaces(columns[:, 0].copy(), columns[:, 1].copy())


class RowAtATime:
    """Semantics 8.3 and 8.4, with room that is freed counting from the next batch on."""

    def __init__(self, found: list[tuple[int, int]], rule: OldPlaceRule, rows_per_bucket: dict[int, dict[int, int]]):
        self.places = list(found)
        self.rule = rule
        self.counts = {p: dict(c) for p, c in rows_per_bucket.items()}
        self.freed: list[tuple[int, int]] = []
        self.written: list[tuple[int, int, int, int]] = []

    def assign(self, partition: int) -> int:
        counts = self.counts.setdefault(partition, {})
        bucket = next((b for b in sorted(counts) if counts[b] < 2), None)
        if bucket is None:
            bucket = next(b for b in range(100) if b not in counts)
        counts[bucket] = counts.get(bucket, 0) + 1
        return bucket

    def row(self, number: int, key: int, partition: int, kind: int) -> None:
        old, bucket = self.places[key]
        if old == NOWHERE:
            bucket = self.assign(partition)
            self.places[key] = (partition, bucket)
            self.written.append((number, kind, partition, bucket))
        elif old == partition or self.rule is OldPlaceRule.USE_OLD:
            self.written.append((number, kind, old, bucket))
        elif self.rule is OldPlaceRule.DELETE_OLD:
            self.written.append((number, DELETE, old, bucket))
            self.freed.append((old, bucket))
            new = self.assign(partition)
            self.places[key] = (partition, new)
            self.written.append((number, kind, partition, new))

    def finish(self) -> None:
        for partition, bucket in self.freed:
            counts = self.counts.setdefault(partition, {})
            counts[bucket] = max(0, counts.get(bucket, 0) - 1)


@given(batches=st.lists(rows, min_size=1, max_size=3), found=places, rule=st.sampled_from(OldPlaceRule))
@draws(400)
def test_placing_columns_equals_placing_rows(batches, found, rule) -> None:
    counts: dict[int, dict[int, int]] = {}
    for partition, bucket in found:
        if partition != NOWHERE:
            counts.setdefault(partition, {}).setdefault(bucket, 0)
            counts[partition][bucket] += 1
    allocations = {p: Allocation(c, Ownership(), AllocationRule(2)) for p, c in counts.items()}
    reference = RowAtATime(found, rule, counts)
    old = as_places(found)
    for batch in batches:
        placement = place_rows(as_columns(batch), old, rule, allocations=allocations, empty=EMPTY)
        reference.written, reference.freed = [], []
        for number, row in enumerate(batch):
            reference.row(number, *row)
        reference.finish()
        columns = (placement.rows, placement.kinds, placement.partitions, placement.buckets)
        assert list(zip(*(c.tolist() for c in columns), strict=True)) == reference.written
        old, allocations = placement.places, dict(placement.allocations)
        for key, place in enumerate(reference.places):
            assert old.partitions[key] == place[0]
            assert place[0] == NOWHERE or old.buckets[key] == place[1]
        assert {p: dict(f.rows) for p, f in allocations.items()} == reference.counts


def schema(engine: str) -> TableSchema:
    names = {"id": "INT NOT NULL", "pt": "STRING", "v": "INT"}
    fields = tuple(DataField(i, n, parse_type(t)) for i, (n, t) in enumerate(names.items()))
    return TableSchema(0, fields, 2, ("pt",), ("id",), {"merge-engine": engine})


def test_the_delete_carries_the_new_values_and_the_old_partition() -> None:
    """The row (1, 11, 2) replaces (1, 10, 1)."""
    found = schema("deduplicate")
    assert old_place_rule(found) is OldPlaceRule.DELETE_OLD
    partitions = [encode_row([value], [found.field("pt").type]) for value in ("one", None)]
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "pt": [None, "one"], "v": pa.array([11, 12], pa.int32())})
    batch = KeyedRows(
        np.array([0, 1]), np.array([8, 9], np.int32), np.array([1, 0], np.int32), np.array([INSERT] * 2, np.int8)
    )
    old = as_places([(0, 4), (NOWHERE, 0)])
    placement = place_rows(batch, old, old_place_rule(found), allocations={}, empty=EMPTY)
    rows, kinds = placed_rows(table, placement, partitions, found)
    assert rows.to_pylist() == [
        {"id": 1, "pt": "one", "v": 11},
        {"id": 1, "pt": None, "v": 11},
        {"id": 2, "pt": "one", "v": 12},
    ]
    assert rows.schema == table.schema
    assert kinds.to_pylist() == [DELETE, INSERT, INSERT]
    assert placement.buckets.tolist() == [4, 0, 0]


def test_merging_engines_write_into_the_old_partition_and_keep_the_kind() -> None:
    for engine in ("partial-update", "aggregation"):
        found = schema(engine)
        partitions = [encode_row([value], [found.field("pt").type]) for value in ("one", "two")]
        table = pa.table({"id": pa.array([1], pa.int32()), "pt": ["two"], "v": pa.array([11], pa.int32())})
        batch = KeyedRows(np.array([0]), np.array([8], np.int32), np.array([1], np.int32), np.array([DELETE], np.int8))
        placement = place_rows(batch, as_places([(0, 4)]), old_place_rule(found), allocations={}, empty=EMPTY)
        rows, kinds = placed_rows(table, placement, partitions, found)
        assert rows.to_pylist() == [{"id": 1, "pt": "one", "v": 11}]
        assert kinds.to_pylist() == [DELETE] and placement.buckets.tolist() == [4]


def test_first_row_drops_what_comes_from_another_partition() -> None:
    assert old_place_rule(schema("first-row")) is OldPlaceRule.SKIP_NEW
    batch = as_columns([(0, 1, INSERT), (1, 2, INSERT), (1, 0, INSERT)])
    old = as_places([(0, 4), (NOWHERE, 0)])
    assert place_rows(batch, old, OldPlaceRule.SKIP_NEW, allocations={}, empty=EMPTY).rows.tolist() == [1]
