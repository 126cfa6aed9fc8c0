"""Which columns of a Parquet file get a dictionary, by the first rows that are written.

A dictionary for values that hardly repeat hashes every value until it exceeds its limit and is dropped. That is a third
of the time for a file of such columns.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS = 4096
"""Rows that are looked at, but no more than an eighth: looking shall not cost what it saves."""

_LIMIT_BYTES = 1 << 20
"""Bytes at which pyarrow drops a dictionary."""

_DECIDING_ROWS = 8192

_FEW_ROWS = 1024
"""Columns that are shorter than this get a dictionary, and so do those that are mostly null: it costs nothing."""


class DictionaryChoice:
    """Chooses for files of one table that are written one after the other. The first that has enough rows to judge by
    decides for those after it.
    """

    def __init__(self) -> None:
        self._chosen: list[str] | None = None

    def of(self, names: Sequence[str], first: pa.Table) -> list[str]:
        """Those of the columns that get a dictionary in a file with these first rows."""
        if self._chosen is not None:
            return self._chosen
        chosen = [name for name in names if is_worth_dictionary(first[name])]
        if first.num_rows >= _DECIDING_ROWS:
            self._chosen = chosen
        return chosen


def is_worth_dictionary(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether the distinct values of a column will probably fit into a dictionary, judged by its first rows. The number
    of distinct values is estimated from how many sampled pairs are equal. Nested values cannot be counted.
    """
    sample = column.slice(0, max(_FEW_ROWS, min(SAMPLE_ROWS, len(column) // 8)))
    count = len(sample) - sample.null_count
    has_few = len(sample) < _FEW_ROWS or (count < _FEW_ROWS and 2 * count < len(sample))
    if has_few or pa.types.is_nested(sample.type):
        return True
    distinct = pc.count_distinct(sample).as_py()
    if 2 * distinct <= count:
        return True
    value_bytes = max(1, sample.nbytes // len(sample))
    return bool(count * count * value_bytes <= 2 * (count - distinct) * _LIMIT_BYTES)
