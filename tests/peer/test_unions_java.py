"""Bitmaps and sketches in tables: Java unites what we wrote, and we what Java wrote, to the same sets."""

import random
from collections.abc import Sequence
from pathlib import Path

import datasketches
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from bucketline.state.format.index.art_bitmap64 import decode_bitmap64, encode_bitmap64
from bucketline.state.lsm.aggregate.sketches import unite_hll_sketches, unite_theta_sketches
from bucketline.state.lsm.aggregate.unions import RoaringBitmap64
from bucketline.state.store.table.table import create_table, open_table
from tests.support.peers.peer import PaimonJava

pytestmark = pytest.mark.peer

_COUNTS = [0, 1, 2, 7, 8, 9, 24, 25, 200, 390, 1000, 5000, 12_000]


def _numbers(draw: random.Random) -> list[int]:
    start = draw.randrange(20_000)
    return list(range(start, start + draw.choice(_COUNTS)))


def _wide_numbers(draw: random.Random) -> list[int]:
    """Numbers of 64 bits that make every kind of node and container."""
    shape, count = draw.randrange(6), draw.choice([1, 5, 17, 49, 300, 2000])
    if shape == 0:
        return [draw.randrange(-(2**63), 2**63) for _ in range(count)]
    if shape == 1:
        start = draw.randrange(-(2**63), 2**62)
        return list(range(start, start + 3 * count))
    if shape == 2:
        return [(i << 16) - 5 for i in range(count)]
    if shape == 3:
        return [draw.randrange(60) << 40 | draw.randrange(10) for _ in range(count)]
    if shape == 4:
        return draw.sample(range(1 << 16), 10 * count)
    return [draw.randrange(-128, 128) << 56 | draw.randrange(3) << 24 for _ in range(count)]


def _bitmap(numbers: Sequence[int]) -> BitMap64:
    return BitMap64(number % (1 << 64) for number in numbers)


@pytest.mark.parametrize("seed", range(30))
def test_bitmaps_mean_the_same_there_and_here(paimon_java: PaimonJava, seed: int) -> None:
    draw = random.Random(f"rbm64 {seed}")
    first, second, third = (_wide_numbers(draw) for _ in range(3))
    theirs, count = paimon_java.unite("rbm64", [first])
    ours = encode_bitmap64(_bitmap(second))
    assert count == len(_bitmap(first)) and decode_bitmap64(theirs) == _bitmap(first)
    wanted = _bitmap(first) | _bitmap(second) | _bitmap(third)
    united, count = paimon_java.unite("rbm64", [ours, third, theirs])
    assert count == len(wanted) and decode_bitmap64(united) == wanted
    by_us = RoaringBitmap64("v").unite([theirs, ours, united], [False] * 3)
    assert by_us == encode_bitmap64(wanted)
    # That nothing is added by all of it says that Java sees the same values, not only as many.
    assert paimon_java.unite("rbm64", [by_us, united])[1] == len(wanted)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("function", ["theta_sketch", "hll_sketch"])
def test_sketches_become_the_bytes_of_java(paimon_java: PaimonJava, function: str, seed: int) -> None:
    draw = random.Random(f"{function} {seed}")
    unite = unite_theta_sketches if function == "theta_sketch" else unite_hll_sketches
    parts = [paimon_java.unite(function, [_numbers(draw)])[0] for _ in range(draw.randrange(2, 5))]
    theirs, _ = paimon_java.unite(function, parts)
    ours = unite(parts, [False] * len(parts))
    assert ours == theirs
    assert unite([ours, theirs], [False, False]) == paimon_java.unite(function, [ours, theirs])[0]


@pytest.mark.parametrize("seed", range(12))
def test_theta_sketches_of_any_size_and_form_become_the_bytes_of_java(paimon_java: PaimonJava, seed: int) -> None:
    draw = random.Random(f"sizes {seed}")
    parts = []
    for _ in range(draw.randrange(2, 5)):
        sketch = datasketches.update_theta_sketch(draw.choice([5, 9, 12, 14]))
        for number in _numbers(draw):
            sketch.update(number)
        parts.append(bytes(sketch.compact(draw.random() < 0.7).serialize(draw.random() < 0.3)))
    assert unite_theta_sketches(parts, [False] * len(parts)) == paimon_java.unite("theta_sketch", parts)[0]


@pytest.mark.parametrize("seed", range(12))
def test_hll_sketches_of_any_size_and_form_have_the_registers_of_java(paimon_java: PaimonJava, seed: int) -> None:
    draw = random.Random(f"sizes {seed}")
    parts = []
    for _ in range(draw.randrange(2, 5)):
        width = draw.choice(["HLL_4", "HLL_6", "HLL_8"])
        sketch = datasketches.hll_sketch(draw.choice([4, 8, 12, 14]), getattr(datasketches.tgt_hll_type, width))
        for number in _numbers(draw):
            sketch.update(number)
        parts.append(bytes(draw.choice([sketch.serialize_compact, sketch.serialize_updatable])()))
    theirs, estimate = paimon_java.unite("hll_sketch", parts)
    ours = unite_hll_sketches(parts, [False] * len(parts))
    # The running estimate alone depends on the order in which registers of other sizes were added.
    estimate_at = slice(8, 16) if theirs[0] == 10 else slice(0)
    assert ours[: estimate_at.start] + ours[estimate_at.stop or 0 :] == (
        theirs[: estimate_at.start] + theirs[estimate_at.stop or 0 :]
    )
    assert paimon_java.unite("hll_sketch", [ours])[1] == pytest.approx(estimate, rel=0.05)


@pytest.mark.parametrize("function", ["rbm64", "theta_sketch", "hll_sketch"])
def test_java_and_we_write_and_compact_one_table_in_turns(
    paimon_java: PaimonJava, function: str, tmp_path: Path
) -> None:
    schema = pa.schema({"k": pa.int32(), "v": pa.binary()})
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": function}
    path = tmp_path / "db.db" / "t"
    table = create_table(str(path), schema, ["k"], options={**options, "write-only": "true"})
    numbers: dict[int, set[int]] = {0: set(), 1: set(), 2: set(), 3: set()}

    def values(low: int, high: int, *keys: int) -> dict[int, bytes | None]:
        """Stored numbers by key; key 3 gets null, then what the others get."""
        found: dict[int, bytes | None] = {}
        for key in keys:
            added = range(low + 7000 * key, high + 7000 * key)
            found[key] = None if key == 3 and not low else paimon_java.unite(function, [list(added)])[0]
            numbers[key] |= set(added) if found[key] is not None else set()
        return found

    def ours(written: dict[int, bytes | None]) -> None:
        table.write(pa.table([list(written), list(written.values())], schema=schema))

    def theirs(written: dict[int, bytes | None]) -> None:
        rows = [{"k": key, "v": None if value is None else value.hex()} for key, value in written.items()]
        paimon_java.write(path, rows, write_only=True)

    def check() -> None:
        found = {row["k"]: bytes.fromhex(row["v"]) for row in paimon_java.read(path)}
        rows = open_table(str(path)).to_arrow().to_pylist()
        assert sorted(found) == sorted(row["k"] for row in rows)
        for row in rows:
            if function == "rbm64":
                assert decode_bitmap64(row["v"]) == decode_bitmap64(found[row["k"]]) == BitMap64(numbers[row["k"]])
            else:
                assert row["v"] == found[row["k"]]
            count = paimon_java.unite(function, [row["v"]])[1]
            assert count == pytest.approx(len(numbers[row["k"]]), rel=0 if function == "rbm64" else 0.05)

    ours(values(0, 40, 0, 1, 3))
    theirs(values(20, 900, 0, 1, 2, 3))
    check()
    table.compact()
    check()
    theirs(values(800, 6000, 1, 2))
    ours(values(5000, 9000, 0, 1, 3))
    paimon_java.compact(path)
    check()
    ours(values(100, 101, 0))
    table.compact()
    theirs(values(12_000, 12_003, 0, 2))
    check()
    assert any(row["level"] > 0 for row in paimon_java.files(path))
