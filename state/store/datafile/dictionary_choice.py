"""Which columns of a Parquet file are worth a dictionary, by the first rows that are written.

A writer that tries a dictionary on values that hardly repeat hashes every one of them, until the dictionary has grown
past its limit and is given up: a third of the time that a file of such columns takes.
"""

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS = 4096

_LIMIT_BYTES = 1 << 20
"""Bytes at which pyarrow gives a dictionary up."""

_FEW_ROWS = 1024
"""Columns that are shorter than this get one: it costs nothing."""


def is_worth_dictionary(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether the distinct values of a column will fit into a dictionary, as far as its first rows tell.

    The number of distinct values is the one that would let as many sampled pairs be equal as are seen to be.
    """
    sample = column.slice(0, SAMPLE_ROWS)
    count = len(sample) - sample.null_count
    if count < _FEW_ROWS:
        return True
    distinct = pc.count_distinct(sample).as_py()
    if 2 * distinct <= count:
        return True
    value_bytes = max(1, sample.nbytes // len(sample))
    return bool(count * count * value_bytes <= 2 * (count - distinct) * _LIMIT_BYTES)
