"""A table's schema → its merge engine, with checks of its options.

Source: Paimon 2.0 PartialUpdateMergeFunction.Factory, AggregateMergeFunction.Factory, SchemaValidation.
"""

from collections.abc import Sequence

from bucketline.conf.errors import OptionError
from bucketline.conf.table import merge_options
from bucketline.conf.table.choices import MergeEngine
from bucketline.conf.table.field_options import DEFAULT_FUNCTION, PREFIX, ColumnSettings, SequenceGroupOption
from bucketline.conf.table.table_settings import MergeSettings
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.aggregate.functions import ColumnAggregate, column_aggregate
from bucketline.state.lsm.merge.aggregation import Aggregation
from bucketline.state.lsm.merge.partial_update import PartialUpdate, SequenceGroup
from bucketline.state.types.logical import DataField

_UNGROUPED_FUNCTION = "last_non_null_value"


def aggregation_fold(schema: TableSchema) -> Aggregation:
    """The fold of a table with merge-engine aggregation.

    Raises OptionError naming option, column and remedy; UnsupportedTableError for functions whose package is not
    installed.
    """
    settings, columns = schema.settings.merge, schema.settings.columns
    columns.check([f.name for f in schema.fields])
    remove = settings.aggregation_removes
    sequence = settings.sequence_fields
    aggregates: dict[str, ColumnAggregate] = {}
    for field in schema.fields:
        # A partition column is the same in all rows of a key; a retract must not remove it.
        if field.name in schema.primary_keys or field.name in schema.partition_keys:
            continue
        name, key = _aggregation_function(columns, field, sequence)
        aggregate = column_aggregate(field, name, columns.parameters(field.name), key)
        if remove and aggregate.ignores_retracts:
            raise OptionError(
                f"'{PREFIX}{field.name}.ignore-retract' and '{merge_options.AGGREGATION_REMOVE_RECORD_ON_DELETE.key}' "
                "have conflicting behavior so should not be enabled at the same time; remove one of the two",
                key=f"{PREFIX}{field.name}.ignore-retract",
                column=field.name,
            )
        aggregates[field.name] = aggregate
    return Aggregation(aggregates, remove_on_delete=remove)


def partial_update_fold(schema: TableSchema) -> PartialUpdate:
    """The fold of a table with merge-engine partial-update. Raises as `aggregation_fold`."""
    settings, columns = schema.settings.merge, schema.settings.columns
    columns.check([f.name for f in schema.fields])
    written = columns.sequence_groups
    _check_groups(schema, written)
    removing = settings.removing_sequences
    _check_deletes(settings, removing, written)
    protected = {column for group in written for column in group.columns}
    sequences = {column for group in written for column in group.sequence}
    aggregates: dict[str, ColumnAggregate] = {}
    for field in schema.fields:
        function = None if field.name in (*sequences, *schema.primary_keys) else columns.function_of(field.name)
        if function is None:
            continue
        if field.name in protected:
            aggregates[field.name] = column_aggregate(field, function[0], columns.parameters(field.name), function[1])
        elif function[0] != _UNGROUPED_FUNCTION:
            raise OptionError(
                f"'{function[1]}' = '{function[0]}': Must use sequence group for aggregation functions but not found "
                f"for field {field.name}; name the column in a 'fields.<sequence column>.sequence-group', or use "
                f"'{_UNGROUPED_FUNCTION}'",
                key=function[1],
                column=field.name,
            )
    groups = tuple(SequenceGroup(g.sequence, g.columns, not set(removing).isdisjoint(g.sequence)) for g in written)
    return PartialUpdate(
        keys=schema.primary_keys,
        groups=groups,
        aggregates=aggregates,
        ignore_delete=settings.ignore_delete,
        remove_on_delete=settings.partial_update_removes,
    )


def columns_to_merge(schema: TableSchema, needed: Sequence[str]) -> tuple[str, ...]:
    """The requested columns and those that merging them needs, each once."""
    if schema.settings.merge.engine is not MergeEngine.PARTIAL_UPDATE:
        return tuple(dict.fromkeys(needed))
    removing = set(schema.settings.merge.removing_sequences)
    names = dict.fromkeys(needed)
    for group in schema.settings.columns.sequence_groups:
        if removing & set(group.sequence) or not set(names).isdisjoint((*group.sequence, *group.columns)):
            names |= dict.fromkeys(group.sequence)
    return tuple(names)


def _aggregation_function(columns: ColumnSettings, field: DataField, sequence: Sequence[str]) -> tuple[str, str]:
    """The function of a column and the option that says so."""
    if field.name in sequence:
        own = columns.own_function_key(field.name)
        if own is not None:
            raise OptionError(
                f"Should not define aggregation on sequence field: '{field.name}'; remove '{own}'",
                key=own,
                column=field.name,
            )
        return "last_value", merge_options.SEQUENCE_FIELD.key
    return columns.function_of(field.name) or (_UNGROUPED_FUNCTION, DEFAULT_FUNCTION)


def _check_groups(schema: TableSchema, groups: Sequence[SequenceGroupOption]) -> None:
    owner: dict[str, str] = {}
    for group in groups:
        for name in dict.fromkeys((*group.sequence, *group.columns)):
            if name in schema.primary_keys:
                raise OptionError(
                    f"'{group.key}': column {name} is part of the primary key and cannot be in a sequence group; "
                    "take it out",
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
    remove, ignore = merge_options.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE, merge_options.IGNORE_DELETE
    by_group = merge_options.REMOVE_RECORD_ON_SEQUENCE_GROUP
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
