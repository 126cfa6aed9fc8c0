"""Batches whose snapshot expires while their tasks run: they are planned again on the newest snapshot."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.store.index.hash_index_store import shared_hash_cache
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
KEPT = {"snapshot.num-retained.min": "1"}
HAS_VECTORS = {"deletion-vectors.enabled": "true"}
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "HASH index": ((), {"bucket": "-1"}),
    "data files": ((), {"bucket": "1", "full-compaction.delta-commits": "1"}),
    "deletion vectors": ((), {"bucket": "1", **HAS_VECTORS}),
    "older values": ((), {"bucket": "1", "changelog-producer": "lookup"}),
    "key index": (("pt",), {"bucket": "-1"}),
}
during: list[Callable[[], None]] = []
"""What happens while the tasks of a batch read its records."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Forgets what `during` has left to do, so that a test that fails does not disturb the next test."""
    yield
    during.clear()


def decode(records: pa.Table) -> DecodedRows:
    for act in list(during):
        # Others write in other processes, so they share no cache with tasks.
        shared_hash_cache.cache_clear()
        act()
    return DecodedRows(records)


def rows(ids: range, value: int) -> pa.Table:
    return pa.table({"id": ids, "v": [value] * len(ids), "pt": [1] * len(ids)}).cast(COLUMNS)


def write(table: Table, number: int, data: pa.Table, local: Path) -> None:
    identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
    shared_hash_cache.cache_clear()
    frame = Cluster(random.Random(number), 1).frame(data, 1)
    TableSink(table.path, {"local-directory": str(local)}, decode=decode).write(frame, identity)


def replaced(table: Table) -> None:
    """Others write the table and compact it, and everything older than the newest snapshot expires."""
    during.clear()
    other = open_table(table.path)
    other.write(rows(range(40, 80), 5))
    other.compact()
    other.expire_snapshots(retain_min=1, retain_max=1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_whose_snapshot_has_expired_meanwhile_is_planned_again(tmp_path: Path, kind: str) -> None:
    partitions, options = KINDS[kind]
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), partitions, {**KEPT, **options})
    table.write(rows(range(50), 0))
    table.write(rows(range(10), 1))
    during.append(partial(replaced, table))
    write(table, 0, rows(range(30, 50), 9), tmp_path / "local")
    assert not during
    found = {row["id"]: row["v"] for row in open_table(table.path).to_arrow().to_pylist()}
    assert found == {n: 1 if n < 10 else 0 if n < 30 else 9 if n < 50 else 5 for n in range(80)}
    assert not open_table(table.path).doctor(rows=True)


def test_an_index_file_that_every_snapshot_lacks_is_damage(tmp_path: Path) -> None:
    """Others commit all the time, but the error names the file, and not their commits."""
    options = {"bucket": "-1", "snapshot.ignore-empty-commit": "false"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    table.write(rows(range(50), 0))
    tries = list[int]()

    def damaged() -> None:
        for index in (Path(table.path) / "index").glob("index-*"):
            index.unlink()
        open_table(table.path).write(rows(range(0), 0))
        tries.append(len(tries))

    during.append(damaged)
    with pytest.raises(CorruptFileError, match="HASH index file of bucket 0 is missing"):
        write(table, 0, rows(range(30, 50), 9), tmp_path / "local")
    assert tries == [0, 1, 2]
