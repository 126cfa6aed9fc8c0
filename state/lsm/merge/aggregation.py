"""The merge engine `aggregation`: an aggregate function computes each column.

Source: Paimon 2.0 AggregateMergeFunction, AggregateMergeFunction.Factory, SchemaValidation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.table.field_options import DEFAULT_FUNCTION, PREFIX
from bucketline.conf.table.merge_options import AGGREGATION_REMOVE_RECORD_ON_DELETE, SEQUENCE_FIELD
from bucketline.state.lsm.aggregate.choice import LastRow
from bucketline.state.lsm.aggregate.column import ColumnAggregate
from bucketline.state.lsm.aggregate.events import Events, Indices, Op
from bucketline.state.lsm.aggregate.functions import UNNAMED_FUNCTION, column_aggregate
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.merge.merging import Merging
from bucketline.state.lsm.merge.row_checks import RowChecks
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.buffers import one_array
from bucketline.state.types.row_kind import RowKind


@dataclass(frozen=True, slots=True)
class Aggregation(ComputedFold):
    """Merges the rows of each key by computing each column in `columns` with its own function. Every other column, for
    example a key column, keeps its last value.

    The result is an insert, even if all rows of a key are -U or -D rows. Only if `remove_on_delete` is true and the
    last row is a -D, the result is a -D.
    """

    columns: Mapping[str, ColumnAggregate]
    remove_on_delete: bool = False

    @property
    def aggregated(self) -> Mapping[str, ColumnAggregate]:
        return self.columns

    def strict(self) -> "Aggregation":
        return replace(self, columns={n: c.strict() for n, c in self.columns.items()})

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


@dataclass(frozen=True, slots=True)
class AggregationMerging(Merging):
    """The rules of a table with the merge engine `aggregation`. Each row counts once, so a row must not be written
    again, and only a -U or -D row takes a value back.
    """

    delete_option = f"'{AGGREGATION_REMOVE_RECORD_ON_DELETE.key}' is true"

    def fold(self) -> Aggregation:
        settings, columns = self.schema.settings.merge, self.schema.settings.columns
        columns.check([f.name for f in self.schema.fields])
        remove = settings.aggregation_removes
        aggregates: dict[str, ColumnAggregate] = {}
        for field in self.schema.fields:
            # A partition column is equal in all rows of a key, so a -U or -D row must not remove it.
            if field.name in self.schema.primary_keys or field.name in self.schema.partition_keys:
                continue
            name, key = self._function(field.name)
            aggregate = column_aggregate(field, name, columns.parameters(field.name), key)
            if remove and aggregate.ignores_retracts:
                raise OptionError(
                    f"'{PREFIX}{field.name}.ignore-retract' and '{AGGREGATION_REMOVE_RECORD_ON_DELETE.key}' have "
                    "conflicting behavior so should not be enabled at the same time; remove one of the two",
                    key=f"{PREFIX}{field.name}.ignore-retract",
                    column=field.name,
                )
            aggregates[field.name] = aggregate
        return Aggregation(aggregates, remove_on_delete=remove)

    def row_checks(self) -> RowChecks:
        fold = self.fold()
        return RowChecks(columns=fold.columns, removes_on_delete=fold.remove_on_delete)

    def order_matters(self) -> bool:
        if self.schema.settings.merge.sequence_fields:
            return False
        fold = self.fold()
        return fold.remove_on_delete or not all(c.function.commutes for c in fold.columns.values())

    def takes_back(self) -> bool:
        return True

    def takes_deletes(self) -> bool:
        return self.schema.settings.merge.aggregation_removes

    def _function(self, column: str) -> tuple[str, str]:
        """Returns the name of a column's function, and the option that sets it."""
        columns = self.schema.settings.columns
        if column not in self.schema.settings.merge.sequence_fields:
            return columns.function_of(column) or (UNNAMED_FUNCTION, DEFAULT_FUNCTION)
        own = columns.own_function_key(column)
        if own is not None:
            raise OptionError(
                f"Should not define aggregation on sequence field: '{column}'; remove '{own}'", key=own, column=column
            )
        return "last_value", SEQUENCE_FIELD.key
