"""The rules of tables with the merge engine `partial-update`: reads and checks their options, and says which changes of
rows are allowed.

Source: Paimon 2.0 PartialUpdateMergeFunction.Factory, SchemaValidation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.table.field_options import SequenceGroupOption
from bucketline.conf.table.merge_options import (
    IGNORE_DELETE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    REMOVE_RECORD_ON_SEQUENCE_GROUP,
)
from bucketline.conf.table.table_settings import MergeSettings
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.aggregate.column import ColumnAggregate
from bucketline.state.lsm.aggregate.functions import UNNAMED_FUNCTION, column_aggregate
from bucketline.state.lsm.merge.merging import Merging, Unchanged
from bucketline.state.lsm.merge.partial_update import RETRACTS_OF_PARTIAL_UPDATE, PartialUpdate, SequenceGroup
from bucketline.state.lsm.merge.row_checks import RowChecks
from bucketline.state.lsm.tree.sort_keys import is_older


@dataclass(frozen=True, slots=True)
class PartialUpdateMerging(Merging):
    """The rules of a table with the merge engine `partial-update`: a new row completes the stored row. A null in the
    new row leaves the stored value as it is. If the new row has an older sequence for a sequence group, the stored
    values of this group stay as they are.
    """

    takes_updates = True
    null_keeps = True
    delete_option = (
        f"'{PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE.key}' is true, or '{REMOVE_RECORD_ON_SEQUENCE_GROUP.key}' names a "
        "sequence group"
    )

    def fold(self) -> PartialUpdate:
        schema, settings, columns = self.schema, self.schema.settings.merge, self.schema.settings.columns
        columns.check([f.name for f in schema.fields])
        written, removing = columns.sequence_groups, settings.removing_sequences
        _check_groups(schema, written)
        _check_deletes(settings, removing, written)
        groups = tuple(SequenceGroup(g.sequence, g.columns, not set(removing).isdisjoint(g.sequence)) for g in written)
        return PartialUpdate(
            keys=schema.primary_keys,
            groups=groups,
            aggregates=self._aggregates(groups),
            ignore_delete=settings.ignore_delete,
            remove_on_delete=settings.partial_update_removes,
        )

    def row_checks(self) -> RowChecks:
        fold = self.fold()
        takes_retracts = fold.ignore_delete or fold.remove_on_delete or fold.groups
        return RowChecks(
            None if takes_retracts else RETRACTS_OF_PARTIAL_UPDATE,
            columns=fold.aggregates,
            removes_on_delete=fold.remove_on_delete,
            groups=fold.groups,
        )

    def order_matters(self) -> bool:
        merge = self.schema.settings.merge
        if merge.sequence_fields:
            return False
        written = self.schema.settings.columns.sequence_groups
        ordered = {name for group in written for name in (*group.sequence, *group.columns)}
        free = {f.name for f in self.schema.fields} - ordered
        return merge.partial_update_removes or bool(free - {*self.schema.primary_keys, *self.schema.partition_keys})

    def columns_to_merge(self, needed: Sequence[str]) -> tuple[str, ...]:
        removing = set(self.schema.settings.merge.removing_sequences)
        names = dict.fromkeys(needed)
        for group in self.schema.settings.columns.sequence_groups:
            if removing & set(group.sequence) or not set(names).isdisjoint((*group.sequence, *group.columns)):
                names |= dict.fromkeys(group.sequence)
        return tuple(names)

    def takes_back(self) -> bool:
        return any(self.schema.settings.columns.function_of(f.name) for f in self.schema.fields)

    def takes_deletes(self) -> bool:
        settings = self.schema.settings.merge
        return settings.partial_update_removes or bool(settings.removing_sequences)

    def counts_again(self) -> tuple[str, ...]:
        return tuple(self.fold().aggregates)

    def unchanged(self, before: pa.RecordBatch, after: pa.RecordBatch, names: Collection[str]) -> Unchanged | None:
        group_of = {name: g for g in self.fold().groups for name in (*g.sequence, *g.columns)}
        for name in names:
            group = group_of.get(name)
            if group is None:
                lost = pc.and_(pc.is_null(after[name]), pc.is_valid(before[name]))
                why = "a null keeps the older value"
            else:
                empty = np.logical_and.reduce([np.asarray(pc.is_null(after[s])) for s in group.sequence])
                lost = pa.array(empty | is_older(after, before, group.sequence))
                why = f"its sequence group ({', '.join(group.sequence)}) has no newer sequence"
            if pc.any(lost).as_py():
                return Unchanged(name, why)
        return None

    def _aggregates(self, groups: Sequence[SequenceGroup]) -> dict[str, ColumnAggregate]:
        """Returns the aggregation of each column that is in a sequence group and has an aggregate function, by the name
        of the column. Raises OptionError if a column outside of all groups has a function.
        """
        columns = self.schema.settings.columns
        protected = {column for group in groups for column in group.columns}
        sequences = {column for group in groups for column in group.sequence}
        found: dict[str, ColumnAggregate] = {}
        for field in self.schema.fields:
            function = columns.function_of(field.name)
            if function is None or field.name in (*sequences, *self.schema.primary_keys):
                continue
            name, key = function
            if field.name in protected:
                found[field.name] = column_aggregate(field, name, columns.parameters(field.name), key)
            elif name != UNNAMED_FUNCTION:
                raise OptionError(
                    f"'{key}' = '{name}': Must use sequence group for aggregation functions but not found for field "
                    f"{field.name}; name the column in a 'fields.<sequence column>.sequence-group', or use "
                    f"'{UNNAMED_FUNCTION}'",
                    key=key,
                    column=field.name,
                )
        return found


def _check_groups(schema: TableSchema, groups: Sequence[SequenceGroupOption]) -> None:
    owner: dict[str, str] = {}
    for group in groups:
        for name in dict.fromkeys((*group.sequence, *group.columns)):
            if name in schema.primary_keys:
                raise OptionError(
                    f"'{group.key}': column {name} is part of the primary key and cannot be in a sequence group; "
                    "remove it from the option",
                    key=group.key,
                    column=name,
                )
            if name in owner and owner[name] != group.key:
                raise OptionError(
                    f"Field {name} is defined repeatedly by multiple groups: '{owner[name]}' and '{group.key}'; "
                    "leave it in one of them",
                    key=group.key,
                    column=name,
                )
            owner[name] = group.key
        for name in group.sequence:
            own = schema.settings.columns.own_function_key(name)
            if own is not None:
                raise OptionError(
                    f"Should not define aggregation function on sequence group: '{name}'; remove '{own}'",
                    key=own,
                    column=name,
                )


def _check_deletes(settings: MergeSettings, removing: Sequence[str], groups: Sequence[SequenceGroupOption]) -> None:
    remove, ignore = PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE, IGNORE_DELETE
    by_group = REMOVE_RECORD_ON_SEQUENCE_GROUP
    clash = "have conflicting behavior so should not be enabled at the same time; remove one of the two"
    if settings.partial_update_removes and settings.ignore_delete:
        raise OptionError(f"'{ignore.key}' and '{remove.key}' {clash}", key=remove.key)
    if settings.partial_update_removes and groups:
        raise OptionError(f"'{remove.key}' and sequence groups ('{groups[0].key}') {clash}", key=remove.key)
    if removing and settings.ignore_delete:
        raise OptionError(f"'{ignore.key}' and '{by_group.key}' {clash}", key=by_group.key)
    known = [name for group in groups for name in group.sequence]
    for name in removing:
        if name not in known:
            raise OptionError(
                f"field '{name}' defined in '{by_group.key}' option must be part of sequence groups; "
                f"the sequence columns are {', '.join(known) or 'none'}",
                key=by_group.key,
                column=name,
            )
