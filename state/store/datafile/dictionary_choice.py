"""Chooses the columns of a Parquet file that get a dictionary, by the first rows that are written.

If values hardly repeat, a dictionary takes more bytes than plain values: it holds almost all values, and each row also
stores a number that refers to the dictionary. Also, every value is hashed, which takes a third of the time for writing
a file of columns whose values hardly repeat.
"""

import math
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS = 4096
"""The largest number of rows in a sample. A sample has at most an eighth of the rows, so that sampling costs less than
it saves.
"""

_LIMIT_BYTES = 1 << 20
"""The size of a dictionary, in bytes, at which pyarrow drops it."""

_DECIDING_ROWS = 8192
"""If the first batch of a file has at least this many rows, the file decides for all later files."""

_DECIDING_FILES = 8
"""This many smaller files decide for the later files that have about as many rows. Examining all columns of a file of a
thousand rows takes half as long as writing the file.
"""

_SPARED = 0.75
"""The largest size of a dictionary with its numbers, as a fraction of the size of the plain values. It is less than 1,
because plain values compress better.
"""

_FEW_ROWS = 1024
"""The smallest number of rows in a sample; a column with fewer rows is examined as a whole. If a sample is mostly null
and has fewer values than this, the column gets a dictionary.
"""


class DictionaryChoice:
    """Chooses the columns that get a dictionary, for files of one table that are written one after the other. The first
    file with enough rows decides for all later files. Files with fewer rows decide only for later files of about the
    same size (the number of rows is between the same two powers of two), by a majority of several files.
    """

    def __init__(self) -> None:
        self._chosen: list[str] | None = None
        self._votes: dict[int, list[list[str]]] = {}
        self._chosen_for_small: dict[int, list[str]] = {}

    def of(self, names: Sequence[str], first: pa.Table) -> list[str]:
        """Returns the columns, among `names`, that get a dictionary in a file that begins with the rows `first`."""
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
    """Returns True if a row group with this column is clearly smaller with a dictionary, and the dictionary fits its
    size limit.

    The number of distinct values in all rows is estimated from the number of equal pairs in a sample. Nested values
    cannot be counted, so nested columns get a dictionary.

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
    """Returns an estimate of the number of distinct values in `rows` rows, if `count` of these rows have `found`
    distinct values.
    """
    if found == count:
        return float(rows)
    if 2 * found <= count:
        return float(found)
    among = count * count / (2 * (count - found))
    return among * -math.expm1(-rows / among)
