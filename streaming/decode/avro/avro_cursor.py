"""The position in each of many records that are read in parallel, in one buffer that holds all records.

Each step reads one thing from all records: a number, a length, some bytes. Every read is checked against the end of the
record, so that a damaged record never reads bytes of another record. The first step that fails for some records raises
`DamagedRecords` with all of them; the caller leaves these records out and begins again.
Source: Avro 1.12 specification, binary encoding.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MOST_SHIFT = 63


class DamagedRecords(Exception):
    """Raised for records that cannot be read. `records` are the indices of these records, and `reason` says for people
    why they cannot be read.
    """

    def __init__(self, records: Longs, reason: str) -> None:
        super().__init__(reason)
        self.records = records
        self.reason = reason


class LongRecords(Exception):
    """Raised for a few records (`records`, by index) with much longer arrays than the other records. The caller then
    reads these records one by one, because this takes less time than reading them together with the others.
    """

    def __init__(self, records: Longs) -> None:
        super().__init__()
        self.records = records


@dataclass(slots=True)
class Cursor:
    """Reads many Avro records at the same time, value by value. `data` holds the bytes of all records. For each record,
    `at` is the position of the next byte to read, `end` is the position after the last byte, and `record` is the index
    of the record in the input. The records are in the order of their bytes in `data`.
    """

    data: npt.NDArray[np.uint8]
    at: Longs
    end: Longs
    record: Longs

    def __len__(self) -> int:
        return len(self.at)

    def some(self, rows: Longs) -> "Cursor":
        """Returns a new cursor that holds only these rows. The new cursor moves independently of this cursor.
        Afterwards `go_on` moves the same rows of this cursor to the positions of the new cursor.
        """
        return Cursor(self.data, self.at[rows], self.end[rows], self.record[rows])

    def go_on(self, rows: Longs, other: "Cursor") -> None:
        self.at[rows] = other.at

    def demand(self, holds: Flags, reason: str) -> None:
        """Raises DamagedRecords with `reason` for the rows where `holds` is false."""
        if not holds.all():
            raise DamagedRecords(np.unique(self.record[~holds]), reason)

    def skip(self, counts: Longs | int, path: str) -> Longs:
        """Skips `counts` bytes in each row. Returns the position of the first skipped byte of each row. The counts must
        not be negative.
        """
        self.demand(counts <= self.end - self.at, _ends_early(path))
        start = self.at
        self.at = start + counts
        return start

    def numbers(self, path: str) -> Longs:
        """Reads the next integer of each row: zigzag, seven bits in each byte, lowest bits first, at most ten bytes."""
        self.demand(self.at < self.end, _ends_early(path))
        first = self.data[self.at]
        self.at = self.at + 1
        value = (first & 0x7F).astype(np.uint64)
        rows = np.flatnonzero(first >= 0x80)
        shift = 7
        while len(rows):
            places = self.at[rows]
            inside = places < self.end[rows]
            if not inside.all():
                raise DamagedRecords(np.unique(self.record[rows[~inside]]), _ends_early(path))
            byte = self.data[places]
            too_large = byte > (1 if shift == _MOST_SHIFT else 0xFF)
            if too_large.any():
                raise DamagedRecords(np.unique(self.record[rows[too_large]]), f"{path}a number has more than 64 bits")
            value[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.at[rows] = places + 1
            rows = rows[byte >= 0x80]
            shift += 7
        return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)

    def lengths(self, path: str) -> Longs:
        """Reads the next integer of each row, which is a length. Raises DamagedRecords for negative lengths."""
        counts = self.numbers(path)
        self.demand(counts >= 0, f"{path}a length is negative")
        return counts

    def spans(self, counts: Longs | int, path: str) -> pa.Array:
        """Reads the next bytes of each row, as many as `counts` says, and returns them as binary values without
        nulls.
        """
        start = self.skip(counts, path)
        if len(start) == 0:
            return pa.array([], pa.binary())
        # In an array over the whole buffer, every second value is the gap between two wanted parts.
        offsets = np.empty(2 * len(start), dtype=np.int64)
        offsets[0::2], offsets[1::2] = start, self.at
        is_small = len(self.data) < 2**31
        of = pa.Array.from_buffers(
            pa.binary() if is_small else pa.large_binary(),
            len(offsets) - 1,
            [None, pa.py_buffer(offsets.astype(np.int32) if is_small else offsets), pa.py_buffer(self.data)],
        )
        return of.take(pa.array(np.arange(0, len(offsets) - 1, 2))).cast(pa.binary())

    def block(self, width: int, path: str) -> npt.NDArray[np.uint8]:
        """Reads the next `width` bytes of each record. Returns a matrix of bytes with one row for each record."""
        start = self.skip(width, path)
        places = start[:, None] + np.arange(width)
        return np.take(self.data, places)


def _ends_early(path: str) -> str:
    return f"{path}the record ends too early"
