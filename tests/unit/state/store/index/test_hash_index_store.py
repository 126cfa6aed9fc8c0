from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bucketline.state.bucket.allocation import Ownership
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import IndexManifestEntry
from bucketline.state.store.index.hash_index_store import HashCache, HashIndexStore, hash_entries, rows_by_bucket
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import handle_of, open_table
from bucketline.state.types.binary_row import hash_rows
from tests.support.peers.golden import golden_table
from tests.support.storage.faulty_io import FaultyIO


def int32s(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def store(path: Path, *, budget: int = 1 << 20) -> tuple[HashIndexStore, FaultyIO]:
    io = FaultyIO(LocalIO())
    return HashIndexStore(io, str(path), cached=HashCache(budget), storage={}), io


def written(found: HashIndexStore, bucket: int, *hashes: int) -> IndexManifestEntry:
    change = found.grow(EMPTY_ROW, bucket, None, int32s(*hashes), SYSTEM_WORLD)
    assert change is not None
    return change.new


def reads(io: FaultyIO) -> int:
    return sum(name == "read" for name, _ in io.calls)


def test_a_grown_bucket_gets_a_new_file_with_all_hashes_and_names_the_old_one(tmp_path: Path) -> None:
    found, _ = store(tmp_path)
    first = written(found, 3, 7, -1)
    change = found.grow(EMPTY_ROW, 3, first, int32s(9, 7), SYSTEM_WORLD)
    assert change is not None and change.replaced == first
    assert (change.new.row_count, change.new.file_size, change.new.bucket) == (3, 12, 3)
    assert sorted(found.hashes(change.new).tolist()) == [-1, 7, 9]
    assert sorted(found.hashes(first).tolist()) == [-1, 7]
    assert found.grow(EMPTY_ROW, 3, change.new, int32s(7, 9), SYSTEM_WORLD) is None
    found.delete_own([change])
    assert [p.name for p in (tmp_path / "index").iterdir()] == [first.file_name]


def test_only_files_with_new_names_are_read_again(tmp_path: Path) -> None:
    found, io = store(tmp_path)
    entries = [written(found, b, b, 10 + b) for b in range(4)]
    assert found.known(entries).lookup(int32s(0, 12, 5)).tolist() == [0, 2, -1]
    assert reads(io) == 4
    assert found.known(list(reversed(entries))).rows() == {b: 2 for b in range(4)}
    assert reads(io) == 4
    change = found.grow(EMPTY_ROW, 1, entries[1], int32s(99), SYSTEM_WORLD)
    assert change is not None
    before = reads(io)
    entries[1] = change.new
    del entries[3]
    known = found.known(entries)
    assert reads(io) == before + 1
    assert known.lookup(int32s(99, 11, 3, 13)).tolist() == [1, 1, -1, -1]
    assert known.rows() == {0: 2, 1: 3, 2: 2} == rows_by_bucket(entries)


def test_a_hash_in_two_buckets_stays_known_when_one_of_them_loses_it(tmp_path: Path) -> None:
    """Two writers at once have done this; a rollback takes the file of one bucket back."""
    found, _ = store(tmp_path)
    with_it, other = written(found, 0, 5, 6), written(found, 1, 5, 7)
    assert found.known([with_it, other]).lookup(int32s(5, 6, 7)).tolist() == [0, 0, 1]
    without = written(found, 0, 6)
    assert found.known([without, other]).lookup(int32s(5, 6, 7)).tolist() == [1, 0, 1]
    assert found.known([other]).lookup(int32s(5, 6, 7)).tolist() == [1, -1, 1]


def test_an_owner_reads_its_own_buckets_only(tmp_path: Path) -> None:
    found, io = store(tmp_path)
    entries = [written(found, b, b) for b in range(4)]
    assert found.known(entries, share=Ownership(1, 2)).rows() == {1: 1, 3: 1}
    assert reads(io) == 2


def test_the_cache_forgets_the_partition_used_least_recently(tmp_path: Path) -> None:
    io, cached = FaultyIO(LocalIO()), HashCache(6 * 5)
    found = HashIndexStore(io, str(tmp_path), cached=cached, storage={})
    entries = {p: replace(written(found, 0, *range(i, i + 2)), partition=p) for i, p in enumerate([b"a", b"b", b"c"])}
    for p in (b"a", b"b", b"a", b"c", b"a"):
        found.known([entries[p]])
    assert reads(io) == 3 and cached.size_bytes == 24
    found.known([entries[b"b"]])
    assert reads(io) == 4


def test_a_partition_above_the_budget_is_read_each_time(tmp_path: Path) -> None:
    found, io = store(tmp_path, budget=5)
    entry = written(found, 0, 1)
    assert found.known([entry]).rows() == found.known([entry]).rows() == {0: 1}
    assert reads(io) == 2


def test_a_missing_short_or_doubled_file_stops_with_the_remedy(tmp_path: Path) -> None:
    found, _ = store(tmp_path)
    entry = written(found, 0, 1, 2)
    with pytest.raises(CorruptFileError, match="two HASH index files"):
        found.known([entry, written(found, 0, 3)])
    with pytest.raises(CorruptFileError, match="holds 2 hashes, but 3 are recorded"):
        found.known([replace(entry, row_count=3)])
    (tmp_path / "index" / entry.file_name).write_bytes(b"12345")
    with pytest.raises(CorruptFileError, match="ends inside a hash"):
        found.known([entry])
    (tmp_path / "index" / entry.file_name).unlink()
    with pytest.raises(CorruptFileError, match=r"is missing.*roll back"):
        found.known([entry])


def test_the_index_that_paimon_wrote_knows_every_row_of_its_table() -> None:
    path = golden_table("pk_dynamic")
    table = open_table(str(path))
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    found = HashIndexStore(LocalIO(), str(path), cached=HashCache(1 << 20), storage={})
    by_partition = hash_entries(handle_of(table).manifests.read_index(newest.index_manifest))
    keys = handle_of(table).table_schema.trimmed_primary_key
    rows = table.to_arrow(columns=keys)
    types = [f.type for f in handle_of(table).table_schema.select(keys)]
    hashes = np.asarray(hash_rows([rows[k].combine_chunks() for k in keys], types))
    known = {h for entries in by_partition.values() for h in found.known(entries).hashes.tolist()}
    assert len(hashes) and set(hashes.tolist()) <= known
