"""The key index as a store: what is put is found, changes are whole or not at all, builds are bounded."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.bucket.cross_partition import NOWHERE
from bucketline.state.bucket.key_entries import (
    KeyEntries,
    hashed_keys,
    key_borders,
    key_order,
    number_keys,
    stored_keys,
)
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.errors import CorruptFileError, IndexFault, IndexStateError
from bucketline.state.store.key_index.build import KeyBlock, KeyIndexBuild
from bucketline.state.store.key_index.index_scope import IndexLabel, IndexScope
from bucketline.state.store.key_index.key_index import IndexChange, KeyIndex
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.types.logical import parse_type_text

SCOPE = IndexScope("file:/t", "id INT NOT NULL|pt STRING", 0, 2)
SETTINGS = RocksSettings(8 << 20)
NO_KEYS = pa.array([], pa.int64())


def entries(keys: list[int], partitions: list[int], buckets: list[int]) -> KeyEntries:
    where = (np.array(partitions, np.int32), np.array(buckets, np.int32))
    return KeyEntries(pa.array(keys, pa.int64()), *where, np.full(len(keys), 50, np.uint32))


def built(tmp_path: Path, *blocks: KeyBlock, **how: bool) -> str:
    directory = SCOPE.directory(str(tmp_path))
    with KeyIndexBuild(directory, SCOPE, SETTINGS, world=SYSTEM_WORLD, **how) as build:
        for block in blocks:
            build.add(block)
        build.finish(IndexLabel(1, "d1"))
    return directory


def block(keys: list[int], partition: bytes = b"p", bucket: int = 0, seconds: int = 10) -> KeyBlock:
    return KeyBlock(pa.array(keys, pa.int64()), partition, bucket, seconds)


def places(index: KeyIndex, *keys: int, alive_since: int = 0) -> list[tuple[bytes, int] | None]:
    ascending = sorted(keys)
    found = index.lookup(pa.array(ascending, pa.int64()), alive_since=alive_since)
    codes = [c for c in found.partitions.tolist() if c != NOWHERE]
    names = index.partitions(codes)
    all_of_them = zip(ascending, found.partitions.tolist(), found.buckets.tolist(), strict=True)
    place_of = {key: None if c == NOWHERE else (names[c], b) for key, c, b in all_of_them}
    return [place_of[key] for key in keys]


def test_a_built_index_finds_every_key_and_counts_its_buckets(tmp_path: Path) -> None:
    directory = built(tmp_path, block([3, -1]), block([7], b"q", 2), block([2**63 - 1, -(2**63)], b"p", 1))
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        assert index.label == IndexLabel(1, "d1")
        assert places(index, -1, 3, 4, 7, 2**63 - 1, -(2**63)) == [
            (b"p", 0), (b"p", 0), None, (b"q", 2), (b"p", 1), (b"p", 1),
        ]  # fmt: skip
        p, q, new = index.codes([b"p", b"q", b"r"]).tolist()
        assert index.rows(p) == {0: 2, 1: 2} and index.rows(q) == {2: 1} and index.rows(new) == {}


def test_a_change_and_its_label_outlive_the_process_together(tmp_path: Path) -> None:
    directory = built(tmp_path, block([1, 2, 3]))
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        code, new = index.codes([b"p", b"new"]).tolist()
        change = IndexChange(
            entries([5, 1], [new, new], [0, 4]), pa.array([2], pa.int64()), {(code, 0): 1, (new, 0): 1, (new, 4): 1}
        )
        index.apply(change, IndexLabel(2, "d2"))
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        assert index.label == IndexLabel(2, "d2")
        assert places(index, 1, 2, 3, 5) == [(b"new", 4), None, (b"p", 0), (b"new", 0)]
        assert index.rows(code) == {0: 1} and index.rows(new) == {0: 1, 4: 1}
        assert index.codes([b"more"]).tolist() == [new + 1]
        index.apply(IndexChange(entries([], [], []), NO_KEYS, {(code, 0): 0}), IndexLabel(3, "d3"))
        assert index.rows(code) == {}


def test_keys_written_too_long_ago_live_nowhere(tmp_path: Path) -> None:
    directory = built(tmp_path, block([1], seconds=10), block([2], seconds=20))
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        assert places(index, 1, 2, alive_since=20) == [None, (b"p", 0)]


def test_many_small_changes_are_merged_and_stay_found(tmp_path: Path) -> None:
    directory = built(tmp_path, block(list(range(100))))
    for number in range(40):
        with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
            code = int(index.codes([b"p"])[0])
            change = IndexChange(entries([number, 1000 + number], [code] * 2, [9, 9]), NO_KEYS)
            index.apply(change, IndexLabel(2 + number, f"d{number}"))
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        assert places(index, *range(40), *range(1000, 1040)) == [(b"p", 9)] * 80
        assert places(index, 40, 99) == [(b"p", 0)] * 2
        assert len(index.database.live_files()) < 30


@pytest.mark.parametrize("text", [False, True])
def test_a_build_beyond_its_memory_spills_and_holds_the_same(tmp_path: Path, text: bool) -> None:
    """A budget of 1 MB takes 120,000 keys that need several."""
    numbers = np.random.default_rng(3).permutation(120_000)
    keys = pa.array([f"key-{n}".encode() for n in numbers], pa.large_binary()) if text else pa.array(numbers)
    directory = SCOPE.directory(str(tmp_path))
    with KeyIndexBuild(directory, SCOPE, RocksSettings(2 << 20), world=SYSTEM_WORLD) as build:
        for start in range(0, len(keys), 8192):
            build.add(KeyBlock(keys.slice(start, 8192), b"p%d" % (start % 3), start % 5, 10))
        build.add(KeyBlock(keys.slice(0, 8192), b"p0", 0, 12))
        report = build.finish(IndexLabel(1, "d1"))
    assert report.keys == len(keys) and report.spilled_bytes > 1 << 20
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        order = key_order(keys)
        found = index.lookup(keys.take(order))
        starts = order // 8192 * 8192
        assert (found.buckets == starts % 5).all()
        names = index.partitions(set(found.partitions.tolist()))
        assert {names[c] for c in found.partitions[starts % 3 == 1].tolist()} <= {b"p1"}
        rows = sum(n for code in names for n in index.rows(code).values())
        assert rows == len(keys)


def test_a_key_in_two_places_stops_the_build_unless_keys_expire(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="in two buckets"):
        built(tmp_path, block([1, 2]), block([2], b"q"))
    assert not any(p.is_file() for p in tmp_path.rglob("*"))
    directory = built(tmp_path, block([1, 2], seconds=30), block([2], b"q", seconds=20), keep_latest=True)
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        assert places(index, 1, 2) == [(b"p", 0)] * 2


def test_an_index_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    with pytest.raises(IndexStateError) as error:
        KeyIndex.open(f"{tmp_path}/none", SCOPE, SETTINGS)
    assert error.value.fault is IndexFault.MISSING
    directory = built(tmp_path, block([1]))
    with pytest.raises(IndexStateError) as error:
        KeyIndex.open(directory, IndexScope("file:/other", SCOPE.columns, 0, 2), SETTINGS)
    assert error.value.fault is IndexFault.FOREIGN
    Path(f"{directory}/db/CURRENT").write_text("half")
    with pytest.raises(IndexStateError) as error:
        KeyIndex.open(directory, SCOPE, SETTINGS)
    assert error.value.fault is IndexFault.DAMAGED
    Path(f"{directory}/db/CURRENT").unlink()
    with pytest.raises(IndexStateError) as error:
        KeyIndex.open(directory, SCOPE, SETTINGS)
    assert error.value.fault is IndexFault.DAMAGED


def test_a_cut_short_sst_is_noticed(tmp_path: Path) -> None:
    directory = built(tmp_path, block(list(range(50_000))))
    largest = max(Path(f"{directory}/db").glob("*.sst"), key=lambda p: p.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-5000])
    with pytest.raises(IndexStateError) as error, KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        index.lookup(pa.array(range(50_000)))
    assert error.value.fault is IndexFault.DAMAGED


def test_entries_behind_a_damaged_block_are_not_taken_for_the_end(tmp_path: Path) -> None:
    directory = built(tmp_path, block(list(range(50_000))))
    file = max(Path(directory).glob("db/*.sst"), key=lambda f: f.stat().st_size)
    octets = bytearray(file.read_bytes())
    octets[300_000] ^= 0xFF
    file.write_bytes(octets)
    with KeyIndex.open(directory, SCOPE, SETTINGS) as index:
        assert len(index.items(b"\x01", 1000)) == 1000
        with pytest.raises(IndexStateError, match="checksum"):
            index.items(b"\x01", 50_000)
    with pytest.raises(IndexStateError, match="found to be damaged"):
        KeyIndex.open(directory, SCOPE, SETTINGS)


def test_an_index_held_by_a_living_process_names_it(tmp_path: Path) -> None:
    directory = built(tmp_path, block([1]))
    program = (
        "import sys\n"
        "from bucketline.state.store.key_index.key_index import KeyIndex\n"
        "from bucketline.state.store.key_index.index_scope import IndexScope\n"
        "from bucketline.state.store.key_index.rocks import RocksSettings\n"
        f"index = KeyIndex.open({directory!r}, IndexScope(*{(SCOPE.table, SCOPE.columns, 0, 2)!r}), RocksSettings())\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        with pytest.raises(IndexStateError, match=rf"pid and host: {holder.pid} .*'local-directory'") as error:
            KeyIndex.open(directory, SCOPE, SETTINGS)
        assert error.value.fault is IndexFault.LOCKED
        holder.communicate()
    KeyIndex.open(directory, SCOPE, SETTINGS).close()


def test_keys_are_numbered_in_their_order_whatever_their_type() -> None:
    types = [parse_type_text("STRING NOT NULL"), parse_type_text("INT NOT NULL")]
    columns = [pa.array(["b", "a", "b", "a"]), pa.array([1, -2, 1, 3], pa.int32())]
    keys = hashed_keys(columns, types)
    distinct, numbers = number_keys(keys)
    assert numbers.tolist() == [2, 0, 2, 1]
    assert distinct.hashes.tolist() == keys.hashes[[1, 3, 0]].tolist()
    assert stored_keys(distinct.normalized) == sorted(stored_keys(keys.normalized.unique()))
    assert key_borders(distinct.normalized).all() and len(key_borders(NO_KEYS)) == 0
