"""Which columns of a Parquet file get a dictionary, by the first rows that are written.

A dictionary for values that hardly repeat hashes every value until it exceeds its limit and is dropped. That is a third
of the time for a file of such columns.
"""

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS = 4096
"""Rows that are looked at, but no more than an eighth: looking shall not cost what it saves."""

_LIMIT_BYTES = 1 << 20
"""Bytes at which pyarrow drops a dictionary."""

_FEW_ROWS = 1024
"""Columns that are shorter than this get one, and those that are mostly null: it costs nothing."""


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
