"""Shapes of rows: large rows, many columns, many buckets, one bucket with most of the rows.

The rows are drawn beforehand into files of Arrow, which the step that writes reads record batch by record batch. So
neither drawing the rows nor holding them is part of what is measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.state.store.table.table import create_table, open_table

Ids = NDArray[np.int64]
Draw = Callable[[np.random.Generator, Ids], list[pa.Array]]
"""Draws the columns of rows whose ids are given, all but `id`."""

WRITES = 2
TABLE = "w.db/t"


@dataclass(frozen=True, slots=True)
class RowShape:
    """A table that gets `rows` rows in each of two batches. No id occurs twice; the ids of both batches interleave."""

    columns: pa.Schema
    rows: int
    units: float
    draw: Draw
    chunk_rows: int = 8192
    partition: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        create_table(
            str(folder / TABLE),
            self.columns,
            ("id", *self.partition),
            self.partition,
            options={"bucket": "1", "write-only": "true", **self.options},
        )
        for number in range(WRITES):
            draw = np.random.default_rng((7, number))
            ids = draw.permutation(self.rows).astype(np.int64) * WRITES + number
            with pa.OSFile(_source(folder, number), "wb") as out, pa.ipc.new_stream(out, self.columns) as stream:
                for at in range(0, self.rows, self.chunk_rows):
                    chunk = ids[at : at + self.chunk_rows]
                    arrays = [pa.array(chunk), *self.draw(draw, chunk)]
                    stream.write_batch(pa.record_batch(arrays, schema=self.columns))


def write(shape: RowShape, folder: Path) -> None:
    """Writes both batches, each as one commit. Nothing is compacted."""
    table = open_table(str(folder / TABLE))
    for number in range(WRITES):
        with pa.OSFile(_source(folder, number)) as source, pa.ipc.open_stream(source) as batches:
            table.write(batches)
    assert sum(table.files()["record_count"].to_pylist()) == WRITES * shape.rows


def compact(shape: RowShape, folder: Path) -> None:
    """Compacts all buckets to the last level."""
    table = open_table(str(folder / TABLE))
    assert table.compact("full") is not None
    files = table.files()
    assert set(files["level"].to_pylist()) == {5}
    assert sum(files["record_count"].to_pylist()) == WRITES * shape.rows


def read(shape: RowShape, folder: Path) -> None:
    """Reads all rows of all columns, batch by batch."""
    found = sum(batch.num_rows for batch in open_table(str(folder / TABLE)).to_batches())
    assert found == WRITES * shape.rows


def read_one_partition(shape: RowShape, folder: Path) -> None:
    """Opens the table anew and reads one partition."""
    found = open_table(str(folder / TABLE)).to_arrow(filter="part = 7")
    assert set(found["part"].to_pylist()) == {7}


def list_partitions(shape: RowShape, folder: Path) -> None:
    """Lists all partitions with their sizes."""
    listed = open_table(str(folder / TABLE)).system("partitions")
    assert sum(listed["record_count"].to_pylist()) == WRITES * shape.rows


def large_rows(rows: int, row_bytes: int) -> RowShape:
    """Rows whose one value does not compress."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("body", pa.binary())])

    def draw(random: np.random.Generator, ids: Ids) -> list[pa.Array]:
        return [pa.array([random.bytes(row_bytes) for _ in ids], pa.binary())]

    chunk = max(1, (2 << 20) // row_bytes)
    return RowShape(columns, rows, rows * row_bytes, draw, chunk_rows=chunk)


_TEXT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.int32(), nullable=False),
        ("number", pa.int64()),
        ("text", pa.string()),
    ]
)
_TEXT_BYTES = 280


def text_rows(rows: int, parts: int, buckets: int = 1, *, first_share: float | None = None, units: float) -> RowShape:
    """Rows of 300 bytes in partitions of as many buckets; `first_share` of the rows are in partition 0 if it is given,
    otherwise all partitions have as many."""

    def draw(random: np.random.Generator, ids: Ids) -> list[pa.Array]:
        part = (ids // WRITES) % parts
        if first_share is not None:
            part = np.where(random.random(len(ids)) < first_share, 0, 1 + part % (parts - 1))
        letters = random.integers(97, 113, len(ids) * _TEXT_BYTES, np.uint8)
        offsets = pa.py_buffer(np.arange(len(ids) + 1, dtype=np.int32) * _TEXT_BYTES)
        texts = pa.Array.from_buffers(pa.string(), len(ids), [None, offsets, pa.py_buffer(letters.tobytes())])
        return [pa.array(part.astype(np.int32)), pa.array(random.integers(0, 1 << 40, len(ids))), texts]

    return RowShape(_TEXT, rows, units, draw, partition=("part",), options={"bucket": str(buckets)})


_KINDS = (pa.int64(), pa.float64(), pa.string(), pa.int32())


def wide_rows(rows: int, columns: int) -> RowShape:
    """Rows of so many columns beside the id: whole numbers, floats and short texts in turn."""
    kinds = [_KINDS[n % len(_KINDS)] for n in range(columns)]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *((f"c{n}", k) for n, k in enumerate(kinds))])

    def draw(random: np.random.Generator, ids: Ids) -> list[pa.Array]:
        return [pa.array(random.integers(0, 10_000, len(ids))).cast(kind) for kind in kinds]

    return RowShape(schema, rows, rows * columns, draw, chunk_rows=max(64, 80_000 // columns))


def _source(folder: Path, number: int) -> str:
    return str(folder / f"source-{number}.arrow")
