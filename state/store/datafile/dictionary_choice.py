"""Chooses the columns of a Parquet file that get a dictionary, by the first rows that are written.

A dictionary for values that hardly repeat takes more bytes than the values: it holds all of them, and each row has a
number in addition. And every value is hashed: a third of the time for a file of such columns.
"""

import math
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS = 4096
"""The most rows of a sample. It takes at most an eighth of the rows, so that sampling costs less than it saves."""

_LIMIT_BYTES = 1 << 20
"""The size in bytes at which pyarrow drops a dictionary."""

_DECIDING_ROWS = 8192
"""A file with so many first rows decides for all files after it."""

_DECIDING_FILES = 8
"""So many smaller files decide for the later files that have about as many rows. Examining all columns of a file of a
thousand rows takes half as long as writing the file.
"""

_SPARED = 0.75
"""The largest size of a dictionary with its numbers, as a part of the size of the plain values; less than 1, because
plain values compress better.
"""

_FEW_ROWS = 1024
"""The least number of rows in a sample: a column with fewer rows is examined as a whole. If a sample has fewer values
than this, and is mostly null, the column gets a dictionary.
"""


class DictionaryChoice:
    """Chooses the columns that get a dictionary, for files of one table that are written one after the other. The first
    file with enough rows decides for the files after it. Files with fewer rows decide together, by majority, for the
    files after them whose number of rows has the same power of two.
    """

    def __init__(self) -> None:
        self._chosen: list[str] | None = None
        self._votes: dict[int, list[list[str]]] = {}
        self._chosen_for_small: dict[int, list[str]] = {}

    def of(self, names: Sequence[str], first: pa.Table) -> list[str]:
        """Returns the columns that get a dictionary in a file with these first rows."""
        if self._chosen is not None:
            return self._chosen
        if first.num_rows >= _DECIDING_ROWS:
            self._chosen = _worth(names, first)
            return self._chosen
        size = first.num_rows.bit_length()
        if size in self._chosen_for_small:
            return self._chosen_for_small[size]
        votes = self._votes.setdefault(size, [])
        votes.append(_worth(names, first))
        if len(votes) == _DECIDING_FILES:
            count = Counter(name for vote in votes for name in vote)
            self._chosen_for_small[size] = [name for name in names if 2 * count[name] > _DECIDING_FILES]
        return votes[-1]


def _worth(names: Sequence[str], first: pa.Table) -> list[str]:
    return [name for name in names if is_worth_dictionary(first[name])]


def is_worth_dictionary(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a row group with this column is clearly smaller with a dictionary, and the dictionary fits its limit.

    The number of distinct values in all rows is estimated from how many sampled pairs are equal.
    Nested values cannot be counted.
    Source: parquet-java DictionaryValuesWriter.isCompressionSatisfying, which looks at the first page.
    """
    sample = column.slice(0, max(_FEW_ROWS, min(SAMPLE_ROWS, len(column) // 8)))
    count = len(sample) - sample.null_count
    if not count or pa.types.is_nested(sample.type):
        return True
    is_whole = len(sample) == len(column)
    if not is_whole and count < _FEW_ROWS and 2 * count < len(sample):
        return True
    found = pc.count_distinct(sample).as_py()
    rows = count if is_whole else count * len(column) // len(sample)
    distinct = float(found) if is_whole else _distinct_in(rows, count, found)
    value_bytes = max(1, sample.nbytes // len(sample))
    index_bytes = rows * max(1, math.ceil(math.log2(max(2.0, distinct)))) / 8
    return bool(distinct * value_bytes <= min(_LIMIT_BYTES, _SPARED * rows * value_bytes - index_bytes))


def _distinct_in(rows: int, count: int, found: int) -> float:
    """Returns an estimate of the number of distinct values in so many rows, if `count` of the rows have `found`
    distinct values.
    """
    if found == count:
        return float(rows)
    if 2 * found <= count:
        return float(found)
    among = count * count / (2 * (count - found))
    return among * -math.expm1(-rows / among)
