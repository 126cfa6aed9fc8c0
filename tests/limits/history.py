"""Shapes of a table's past: many snapshots."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bucketline.state.store.table.table import create_table, open_table
from tests.limits.rows import TABLE

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
KEEP_ALL = {
    "bucket": "1",
    "snapshot.num-retained.max": "1000000",
    "snapshot.num-retained.min": "1000000",
    "snapshot.time-retained": "9999 d",
}
LEFT = 3


@dataclass(frozen=True, slots=True)
class HistoryShape:
    """A table of one bucket with at least so many snapshots. Each batch has one row; the bucket is compacted if due."""

    snapshots: int

    @property
    def units(self) -> float:
        return self.snapshots

    def prepare(self, folder: Path) -> None:
        table = create_table(str(folder / TABLE), COLUMNS, ("id",), options=KEEP_ALL)
        newest, number = 0, 0
        while newest < self.snapshots:
            newest = int(table.write(_row(number)))
            number += 1


def write_once_more(shape: HistoryShape, folder: Path) -> None:
    """Opens the table and writes three batches of one row."""
    table = open_table(str(folder / TABLE))
    for number in range(3):
        assert table.write(_row(number)) > shape.snapshots


def open_and_read(shape: HistoryShape, folder: Path) -> None:
    """Opens the table and reads all rows of the newest snapshot."""
    assert open_table(str(folder / TABLE)).to_arrow().num_rows > 0


def list_snapshots(shape: HistoryShape, folder: Path) -> None:
    """Lists all snapshots."""
    assert open_table(str(folder / TABLE)).snapshots().num_rows >= shape.snapshots


def expire(shape: HistoryShape, folder: Path) -> None:
    """Expires all snapshots but three."""
    table = open_table(str(folder / TABLE))
    table.expire_snapshots(retain_min=LEFT, retain_max=LEFT, limit=10 * shape.snapshots)
    assert table.snapshots().num_rows == LEFT


def _row(number: int) -> pa.Table:
    return pa.table({"id": [number % 500], "v": [number]}, schema=COLUMNS)
