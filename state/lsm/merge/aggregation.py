"""The merge engine `aggregation`: each column is folded by its own function.

Source: Paimon 2.0 AggregateMergeFunction.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.choice import LastRow
from bucketline.state.lsm.aggregate.events import Events, Indices, Op
from bucketline.state.lsm.aggregate.functions import ColumnAggregate
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.buffers import one_array
from bucketline.state.types.row_kind import RowKind


@dataclass(frozen=True, slots=True)
class Aggregation(ComputedFold):
    """`columns` by name; a column that is not there keeps its last value, as keys do.

    The result is an insert, even where all rows of a key are retracts. Only with `remove_on_delete` is it a -D where
    the last row is one.
    """

    columns: Mapping[str, ColumnAggregate]
    remove_on_delete: bool = False

    def merge(self, table: pa.Table, starts: Indices) -> pa.Table:
        kinds = table[VALUE_KIND].to_numpy()
        ops = np.where(kinds & 1, np.int8(Op.RETRACT), np.int8(Op.ADD))
        if self.remove_on_delete:
            ops[kinds == RowKind.DELETE] = Op.SEED
        events = Events(starts, ops)
        last = events.starts + events.lengths - 1
        arrays = []
        for name in table.column_names:
            if name == VALUE_KIND:
                deleted = (kinds[last] == RowKind.DELETE) & self.remove_on_delete
                arrays.append(pa.array(np.where(deleted, RowKind.DELETE, RowKind.INSERT).astype(np.int8)))
            elif name == SEQUENCE or name not in self.columns:
                arrays.append(LastRow().fold(one_array(table[name]), events))
            else:
                arrays.append(self.columns[name].fold(one_array(table[name]), events))
        return pa.Table.from_arrays(arrays, schema=table.schema)
