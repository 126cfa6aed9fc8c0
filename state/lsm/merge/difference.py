"""Compares the rows of a bucket at two times: which keys were added, changed or removed.

Source: Paimon 2.0 IncrementalDiffSplitRead. In Paimon, a row has the kind with which the row was stored. Here, the kind
says whether the key was added (+I), changed (+U) or removed (-D).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.events import Mask
from bucketline.state.lsm.merge.change_rows import equal_rows
from bucketline.state.lsm.merge.merge_runs import merge_runs
from bucketline.state.types.arrow import VALUE_KIND
from bucketline.state.types.row_kind import RowKind

_TIME = "_bucketline_time"
_BEFORE, _AFTER = 0, 1


def difference(
    before: Iterable[pa.RecordBatch],
    after: Iterable[pa.RecordBatch],
    keys: Sequence[str],
    batch_rows: int,
    batch_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yields one row for each key whose row differs: a new row with the kind +I, a changed row with its values after
    the change and the kind +U, and a removed row with its last values and the kind -D. Rows that are equal in all
    columns are left out.

    *Shapes*: both inputs have the same schema, with `_VALUE_KIND` among its columns, are sorted by `keys`, and have at
    most one row for each key, which is of the kind +I or +U. The result has this schema, and is in key order.
    Memory use is about that of `merge_runs` for two sorted runs.
    """
    runs = [_at_time(before, _BEFORE), _at_time(after, _AFTER)]
    yield from merge_runs(runs, keys, (), False, _Differing(), batch_rows, batch_bytes, oldest_first=True)


def _at_time(batches: Iterable[pa.RecordBatch], time: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column(_TIME, pa.repeat(pa.scalar(time, pa.int8()), batch.num_rows))


@dataclass(frozen=True, slots=True)
class _Differing:
    """A fold of the rows of a key: the row before, the row after, or both. Keeps no row if the two rows are equal, and
    otherwise one row with the kind that `difference` promises.
    """

    def fold(self, table: pa.Table, starts: Mask) -> pa.Table:
        numbers = np.cumsum(starts) - 1
        is_after = table[_TIME].to_numpy() == _AFTER
        rows = table.drop_columns([_TIME])
        before, after = np.full(int(starts.sum()), -1, np.int64), np.full(int(starts.sum()), -1, np.int64)
        before[numbers[~is_after]] = np.flatnonzero(~is_after)
        after[numbers[is_after]] = np.flatnonzero(is_after)
        kinds = np.where(before < 0, RowKind.INSERT, np.where(after < 0, RowKind.DELETE, RowKind.UPDATE_AFTER))
        both = np.flatnonzero((before >= 0) & (after >= 0))
        compared = _with_bits(rows.drop_columns([VALUE_KIND]))
        same = equal_rows(
            compared.take(pa.array(before[both])), compared.take(pa.array(after[both])), compared.column_names
        )
        differs = np.ones(len(kinds), bool)
        differs[both[same]] = False
        chosen = np.where(after < 0, before, after)[differs]
        found = rows.take(pa.array(chosen))
        position = found.schema.get_field_index(VALUE_KIND)
        return found.set_column(position, found.schema.field(position), pa.array(kinds[differs], pa.int8()))


def _with_bits(rows: pa.Table) -> pa.Table:
    """Returns the rows with integers of the same bits in place of FLOAT and DOUBLE, so that NaN equals NaN."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            bits = pa.int32() if field.type.bit_width == 32 else pa.int64()
            column = pa.chunked_array([chunk.view(bits) for chunk in rows.column(position).chunks], bits)
            rows = rows.set_column(position, field.name, column)
    return rows
