"""Makes rows that are not read from one table: the rows of two queries one after the other, and series of numbers.

Source: Spark's UNION and `range`.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
from sqlglot import exp

from bucketline.conf.wording import counted
from bucketline.state.sql.compute.calls import literal
from bucketline.state.sql.compute.meeting import common_type, to_common
from bucketline.state.sql.dialect import DIALECT, refused

_BATCH_ROWS = 65536


def united(left: pa.RecordBatchReader, right: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Returns the rows of both queries, under the column names of the first query. A column has the common type of the
    two columns at its position.

    Raises OptionError for different numbers of columns, pa.ArrowInvalid for types without a common type.
    """
    names = left.schema.names
    if len(names) != len(right.schema):
        raise refused(
            f"UNION: the queries have {counted(len(names), 'column')} and {counted(len(right.schema), 'column')}; "
            "give both the same number of columns"
        )
    kinds = [common_type([a.type, b.type]) for a, b in zip(left.schema, right.schema, strict=True)]
    schema = pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in chain(left, right):
            columns = [to_common(column, kind) for column, kind in zip(batch.columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def series(node: exp.Expression) -> pa.RecordBatchReader | None:
    """Returns the numbers of `range(end)` or `range(start, end[, step])` after FROM, as the column `id`; None for any
    other function.
    """
    call = node.this if isinstance(node, exp.Table) else node
    if not isinstance(call, exp.Anonymous) or str(call.this).lower() != "range":
        return None
    bounds = [literal(argument, int) for argument in call.expressions]
    if not 1 <= len(bounds) <= 3 or (len(bounds) == 3 and bounds[2] == 0):
        raise refused(
            f"{call.sql(DIALECT)}: the arguments of range are an end, or a start and an end, or a start, an end and a "
            "step other than 0"
        )
    numbers = range(*bounds)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])

    def rows() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(numbers), _BATCH_ROWS):
            part = numbers[at : at + _BATCH_ROWS]
            yield pa.record_batch(
                [pa.array(np.arange(part.start, part.stop, part.step, dtype=np.int64))], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, rows())
