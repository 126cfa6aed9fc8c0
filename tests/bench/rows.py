"""Rows to measure with: nine columns, about 150 bytes a row in Arrow, half of it text that compresses as prose does.

Everything is drawn from seeds, so that each repetition and each contender gets the same rows.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("quantity", pa.int32()),
        ("price", pa.decimal128(12, 2)),
        ("weight", pa.float64()),
        ("at", pa.timestamp("us")),
        ("status", pa.string()),
        ("city", pa.string()),
        ("note", pa.string()),
    ]
)
DDL = (
    "id long, customer long, quantity int, price decimal(12,2), weight double, at timestamp_ntz, "
    "status string, city string, note string"
)

CHUNK_ROWS = 250_000
STATUS = ("open", "paid", "packed", "shipped", "returned")
_WORD_COUNT = 2000
_NOTE_WORDS = 9


def batches(row_count: int, *, seed: int, key_range: int | None = None) -> Iterator[pa.Table]:
    """Tables of at most CHUNK_ROWS rows, `row_count` in all; ids are random, below `key_range` where it is given."""
    random = np.random.default_rng(seed)
    words = _words()
    for start in range(0, row_count, CHUNK_ROWS):
        count = min(CHUNK_ROWS, row_count - start)
        ids = random.integers(0, key_range or 2**63 - 1, count)
        yield rows_of(ids, random, words)


def upserts(batch_count: int, batch_rows: int, *, key_range: int, seed: int) -> Iterator[pa.Table]:
    """Batches of rows with random ids below `key_range`, no id twice in one batch."""
    words = _words()
    for number in range(batch_count):
        random = np.random.default_rng((seed, number))
        yield rows_of(random.permutation(key_range)[:batch_rows], random, words)


def rows_of(ids: NDArray[np.int64], random: np.random.Generator, words: pa.Array | None = None) -> pa.Table:
    """One row for each id. Nine in ten rows of an id have the same status."""
    words = _words() if words is None else words
    count = len(ids)
    cents = pa.array(random.integers(100, 1_000_000, count)).cast(pa.decimal128(19, 0))
    moved = (random.random(count) < 0.1) * random.integers(1, len(STATUS), count)
    cities = words.slice(0, 300)
    note = [_chosen(words, random, count) for _ in range(_NOTE_WORDS)]
    return pa.table(
        [
            pa.array(ids),
            pa.array(random.integers(0, 10_000_000, count)),
            pa.array(random.integers(1, 100, count).astype(np.int32)),
            pc.multiply(cents, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(pa.decimal128(12, 2)),
            pa.array(random.random(count) * 100),
            pa.array(1_700_000_000_000_000 + random.integers(0, 10**13, count)).cast(pa.timestamp("us")),
            pa.array(STATUS).take(pa.array((ids + moved) % len(STATUS))),
            _chosen(cities, random, count),
            pc.binary_join_element_wise(*note, " "),
        ],
        schema=COLUMNS,
    )


def _chosen(values: pa.Array, random: np.random.Generator, count: int) -> pa.Array:
    return values.take(pa.array(random.integers(0, len(values), count)))


def _words() -> pa.Array:
    """The words of all notes: 4 to 12 letters each."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    lengths = random.integers(4, 12, _WORD_COUNT)
    return pa.array(["".join(letters[(26 * random.random(n) ** 2).astype(int)]) for n in lengths.tolist()])
