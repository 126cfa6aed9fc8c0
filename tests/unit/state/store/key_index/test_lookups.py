"""Lookups of many keys: a scan finds what key after key finds."""

import random
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import Rdict

from bucketline.state.bucket.key_entries import stored_keys
from bucketline.state.store.key_index.lookups import (
    STEP_ENTRIES,
    entries_from,
    is_dense,
    values_by_key,
    values_by_scan,
)
from bucketline.state.store.key_index.rocks import RocksSettings, ingest, rocks_options, write_sst


@pytest.fixture
def database(tmp_path: Path) -> Rdict:
    """Every third number from 0 to 2,997, of which every ninth was removed again, and later entries after them."""
    options = rocks_options(RocksSettings(8 << 20))
    options.create_if_missing(True)
    found = Rdict(str(tmp_path / "db"), options)
    for number, (keys, removes) in enumerate([(range(0, 3000, 3), False), (range(0, 3000, 9), True)]):
        path = str(tmp_path / f"{number}.sst")
        entries = stored(*keys)
        write_sst(path, options, [(entries, None if removes else [key[-2:] for key in entries])])
        ingest(found, [path])
    yield found
    found.close()


def stored(*keys: int) -> list[bytes]:
    return stored_keys(pa.array(keys, pa.int64()))


@pytest.mark.parametrize("step", [1, 7, 333, STEP_ENTRIES])
@pytest.mark.parametrize("count", [0, 1, 5, 400, 3000])
def test_a_scan_finds_what_each_key_finds(database: Rdict, count: int, step: int) -> None:
    chosen = random.Random(count).sample(range(-100, 3200), count)
    keys = stored(*sorted(chosen))
    assert values_by_scan(database, keys, step) == values_by_key(database, keys)


def test_a_scan_finds_nothing_beyond_the_last_entry_and_equal_keys_each(database: Rdict) -> None:
    assert values_by_scan(database, stored(5000, 6000)) == [None, None]
    assert values_by_scan(database, stored(3, 3, 4, 6, 6), 1) == [b"\0\x03", b"\0\x03", None, b"\0\x06", b"\0\x06"]


def test_a_scan_is_used_where_the_index_has_few_entries_for_each_key(database: Rdict) -> None:
    assert is_dense(database, 1000) and not is_dense(database, 100)


def test_removed_entries_count_where_a_scan_would_pass_them(tmp_path: Path) -> None:
    """As many removals as entries: RocksDB guesses that nothing is left, but a scan passes all of them."""
    options = rocks_options(RocksSettings(8 << 20))
    options.create_if_missing(True)
    found = Rdict(str(tmp_path / "db"), options)
    keys = stored(*range(50_000))
    for number, values in enumerate([keys, None]):
        path = str(tmp_path / f"{number}.sst")
        write_sst(path, options, [(keys[: 50_000 - number], values)])
        ingest(found, [path])
    assert not is_dense(found, 100)
    found.close()


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """A database of 50,000 numbers in which a block is damaged."""
    options = rocks_options(RocksSettings(8 << 20))
    options.create_if_missing(True)
    place = str(tmp_path / "damaged")
    found = Rdict(place, options)
    keys = stored(*range(50_000))
    write_sst(str(tmp_path / "1.sst"), options, [(keys, keys)])
    ingest(found, [str(tmp_path / "1.sst")])
    found.close()
    file = next(Path(place).glob("*.sst"))
    octets = bytearray(file.read_bytes())
    octets[300_000] ^= 0xFF
    file.write_bytes(octets)
    return place


def test_a_scan_that_meets_a_damaged_block_says_so(damaged: str) -> None:
    options = rocks_options(RocksSettings(8 << 20))
    found = Rdict(damaged, options)
    with pytest.raises(Exception, match="checksum") as met:
        values_by_scan(found, stored(*range(50_000)))
    found.close()
    assert met.value
    Rdict(damaged, options).close()  # The error does not keep the first one open.


@pytest.mark.parametrize("start", [0, 13_000, 14_000])
def test_entries_end_at_the_last_one_or_with_an_error(damaged: str, database: Rdict, start: int) -> None:
    assert len(list(entries_from(database, stored(start)[0]))) == len(range(start, 3000, 3)) * 2 // 3
    options = rocks_options(RocksSettings(8 << 20))
    found = Rdict(damaged, options)
    with pytest.raises(Exception, match="checksum") if start < 14_000 else nullcontext():
        list(entries_from(found, stored(start)[0]))
    found.close()
    Rdict(damaged, options).close()
