"""Dynamic tables whose HASH index is larger than the memory for it: looked up by shares, with the same outcome."""

import json
import random
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.bucket.allocation import Ownership, hash_share
from bucketline.state.bucket.dynamic import KnownHashes
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS
from bucketline.state.store.index.hash_index_store import HashCache, HashIndexStore, hash_entries
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write import dynamic as dynamic_mode
from bucketline.state.store.write import indexed_keys
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_plan import Workers, WriteScope
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
SMALL = {"key-index-memory": "1 mb"}


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def dynamic(path: Path, target: int) -> Table:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": str(target), "dynamic-bucket.initial-buckets": "3"}
    return create_table(str(path / "shop.db" / "t"), COLUMNS, ("id",), options=options)


def rows(ids: np.ndarray, value: int) -> pa.Table:
    return pa.table({"id": ids, "v": np.full(len(ids), value)}, schema=COLUMNS)


def identity(number: int) -> BatchIdentity:
    return BatchIdentity("query", number, json.dumps([number - 1]), json.dumps([number]), f"digest {number}")


def hashes_by_bucket(table: Table) -> dict[int, np.ndarray]:
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    store = HashIndexStore(handle_of(table).io, table.path, cached=HashCache(0), storage={})
    entries = hash_entries(handle_of(table).manifests.read_index(newest.index_manifest))
    return {e.bucket: store.hashes(e) for found in entries.values() for e in found}


def test_a_stream_that_goes_from_one_way_to_the_other_and_back(tmp_path: Path) -> None:
    table, cluster = dynamic(tmp_path, 40), Cluster(random.Random(7), 4, unrest=0.2)
    draw, expected = np.random.default_rng(5), dict[int, int]()
    ways = []
    for number in range(8):
        ids = draw.integers(0, 600, 120)
        sink = TableSink(table.path, {**SMALL, "write-parallelism": str(number % 3 + 2)}, decode=as_is)
        with patch.object(dynamic_mode, "BYTES_PER_KEY", 6 if number in (0, 1, 4) else 1 << 16):
            session = table_at(open_handle(table.path), sink.options).refreshed()
            ways.append(has_a_stage_of_its_own(session, Workers(4, 1 << 31)))
            sink.write(cluster.frame(rows(ids, number), 3), identity(number))
        expected |= dict.fromkeys(ids.tolist(), number)
        found = [(r["id"], r["v"]) for r in open_table(table.path).to_arrow().to_pylist()]
        assert len(found) == len(expected) and dict(found) == expected
        index = hashes_by_bucket(table)
        every = np.concatenate(list(index.values()))
        assert len(np.unique(every)) == len(every) == len(expected)
        assert max(map(len, index.values())) <= 40
    assert ways == [False, False, True, True, False, True, True, True]


def test_partitions_that_batches_leave_alone_cost_no_second_shuffle(tmp_path: Path) -> None:
    """The index of all days together is too large for memory, that of a day is not."""
    schema = pa.schema([pa.field("day", pa.int32(), nullable=False), *COLUMNS])
    table = create_table(str(tmp_path / "shop.db" / "t"), schema, ("day", "id"), ("day",), {"bucket": "-1"})
    shares: list[bool] = []
    whole = HashIndexStore.known

    def watched(self, entries, *, share=None, hashes_of=None):
        shares.append(hashes_of is not None)
        return whole(self, entries, share=share, hashes_of=hashes_of)

    ways = []
    # 300 keys a day of 4 KiB: a day has 1.2 MiB, beyond the 2 MiB there are with the second one.
    for number, days in enumerate([[0], [1], [2], [2], [3], [0, 1, 2], [0, 1, 2], [3]]):
        parts = [rows(np.arange(300), number).add_column(0, schema.field(0), pa.array([d] * 300, pa.int32()))
                 for d in days]  # fmt: skip
        sink = TableSink(table.path, {**SMALL, "key-index-memory": "2 mb"}, decode=as_is)
        shares.clear()
        with patch.object(dynamic_mode, "BYTES_PER_KEY", 4096), patch.object(HashIndexStore, "known", watched):
            frame = Cluster(random.Random(number), 4).frame(pa.concat_tables(parts).combine_chunks(), 2)
            sink.write(frame, identity(number))
        ways.append(any(shares))
    # Three days in a batch are known to be too many from the batch after.
    assert ways == [False, False, False, False, False, False, True, True]
    forget_table(table.path, "query")
    assert table.to_arrow().num_rows == 1200


def test_a_batch_write_goes_through_the_index_share_by_share(tmp_path: Path) -> None:
    table, expected = dynamic(tmp_path, 50), dict[int, int]()
    draw = np.random.default_rng(9)
    held: list[int] = []
    whole = HashIndexStore.known

    def watched(self, entries, *, share=None, hashes_of=None):
        found = whole(self, entries, share=share, hashes_of=hashes_of)
        held.append(len(found.hashes))
        return found

    for number in range(4):
        ids = draw.integers(0, 900, 300)
        with (
            patch.object(dynamic_mode, "BYTES_PER_KEY", 1 << 14),
            patch.object(HashIndexStore, "known", watched),
        ):
            write_table(handle_of(table), rows(ids, number), options=SMALL)
        expected |= dict.fromkeys(ids.tolist(), number)
        assert {r["id"]: r["v"] for r in table.to_arrow().to_pylist()} == expected
    index = hashes_by_bucket(table)
    assert sum(map(len, index.values())) == len(expected)
    # Three shares at the most, as 'dynamic-bucket.initial-buckets' says.
    assert len(held) > 4 and max(held) < len(expected) * 0.6


def test_one_assigner_holds_no_more_of_a_large_index_than_its_batch_asks_for(tmp_path: Path) -> None:
    """'dynamic-bucket.initial-buckets' = 1 leaves a partition in one share, however large it grows."""
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "50", "dynamic-bucket.initial-buckets": "1"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    expected: dict[int, int] = {}
    draw = np.random.default_rng(9)
    whole, held = KnownHashes.joined, list[int]()

    def watched(self, hashes, buckets):
        found = whole(self, hashes, buckets)
        held.append(len(found.hashes))
        return found

    table.write(rows(np.arange(5000), -1))
    expected |= dict.fromkeys(range(5000), -1)
    small = {**SMALL, "merge-memory": "1 mb", "local-directory": str(tmp_path)}
    for number in range(4):
        ids = draw.integers(4000, 6000, 300)
        large = patch.multiple(dynamic_mode, BYTES_PER_KEY=1 << 14), patch.multiple(indexed_keys, BYTES_PER_KEY=1 << 14)
        with large[0], large[1], patch.object(KnownHashes, "joined", watched):
            if number % 2:
                write_table(handle_of(table), rows(ids, number), options=small)
            else:
                sink = TableSink(table.path, small, decode=as_is)
                sink.write(
                    Cluster(random.Random(number), 4, unrest=0.3).frame(rows(ids, number), 3), identity(number // 2)
                )
                forget_table(table.path, "query")
        expected |= dict.fromkeys(ids.tolist(), number)
        found = [(r["id"], r["v"]) for r in open_table(table.path).to_arrow().to_pylist()]
        assert len(found) == len(expected) and dict(found) == expected
    assert held and max(held) <= 300
    index = hashes_by_bucket(table)
    assert sum(map(len, index.values())) == len(expected) and max(map(len, index.values())) <= 50


def test_a_share_of_the_index_holds_its_hashes_from_every_bucket(tmp_path: Path) -> None:
    table = dynamic(tmp_path, 40)
    table.write(rows(np.arange(300), 0))
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    (entries,) = hash_entries(handle_of(table).manifests.read_index(newest.index_manifest)).values()
    store = HashIndexStore(handle_of(table).io, table.path, cached=HashCache(1 << 20), storage={})
    parts = [store.known(entries, hashes_of=Ownership(share, 3)) for share in range(3)]
    assert sum(len(p.hashes) for p in parts) == 300
    for share, part in enumerate(parts):
        assert (hash_share(part.hashes, 3) == share).all() and len(np.unique(part.buckets)) == len(entries)
    with patch.object(HashIndexStore, "hashes", side_effect=AssertionError("read again")):
        store.known(entries, hashes_of=Ownership(1, 3))


@pytest.mark.parametrize(("keys", "shares"), [(0, 1), (1 << 17, 1), (1 << 20, 6)])
def test_the_index_is_shared_only_where_it_is_too_large(tmp_path: Path, keys: int, shares: int) -> None:
    table = dynamic(tmp_path, 1 << 21)
    if keys:
        table.write(rows(np.arange(keys), 0))
    session = table_at(open_handle(table.path), SMALL).refreshed()
    assert dynamic_mode.index_shares(session.plan, session.hash_entries(), None) == shares
    assert has_a_stage_of_its_own(session, Workers()) == (shares > 1)


def has_a_stage_of_its_own(session: TableAt, workers: Workers) -> bool:
    """Whether all keys are looked up between reading and writing."""
    scope = WriteScope(CompactTrigger.NONE, "query", workers)
    return session.plan.mode.stages(session.plan, session, scope, NO_ROWS).place is not None
