"""Which tables take which change of rows, by merge engine and options; refused before anything is read.

Source: Paimon 2.0 SupportsRowLevelOperationFlinkTableSink, RowLevelOp of Paimon Spark: both refuse the same merge
engines for updates and merges; for deletes the stricter rules of Flink hold, under which a delete removes the row.
"""

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import MergeEngine
from bucketline.conf.table.merge_options import (
    AGGREGATION_REMOVE_RECORD_ON_DELETE,
    IGNORE_DELETE,
    MERGE_ENGINE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    REMOVE_RECORD_ON_SEQUENCE_GROUP,
    ROWKIND_FIELD,
    SEQUENCE_FIELD,
)
from bucketline.conf.table.read_options import SCAN_FALLBACK_BRANCH, SCAN_PRIMARY_BRANCH
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.merge.fold import fold_for
from bucketline.state.lsm.merge.partial_update import PartialUpdate
from bucketline.state.store.catalog.table_handle import TableHandle

_REMOVES = {
    MergeEngine.PARTIAL_UPDATE: (
        f"'{PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE.key}' is true, or '{REMOVE_RECORD_ON_SEQUENCE_GROUP.key}' names a "
        "sequence group"
    ),
    MergeEngine.AGGREGATION: f"'{AGGREGATION_REMOVE_RECORD_ON_DELETE.key}' is true",
}


def check_changeable(table: TableHandle, verb: str) -> None:
    """Returns if rows that the handle reads can be changed through it. Raises UnsupportedTableError for rows of another
    branch, OptionError for a table that was opened as it was.
    """
    settings = table.table_schema.settings.reading
    for branch, name in (
        (SCAN_FALLBACK_BRANCH, settings.fallback_branch),
        (SCAN_PRIMARY_BRANCH, settings.primary_branch),
    ):
        if name is not None:
            raise UnsupportedTableError(
                f"cannot {verb} {table.path}: by '{branch.key}' rows of another branch are read that a change cannot "
                "reach, and it would hide the rest of their partitions",
                option=branch.key,
            )
    for key in settings.named_versions:
        raise OptionError(f"cannot {verb} {table.path} as it was: open it without '{key}'", key=key)


def check_delete(table: TableHandle) -> None:
    """Returns if a delete removes rows of the table. Raises UnsupportedTableError, and as `check_changeable`."""
    check_changeable(table, "delete from")
    if not table.primary_key:
        return
    settings = table.table_schema.settings.merge
    removing = {
        MergeEngine.DEDUPLICATE: True,
        MergeEngine.PARTIAL_UPDATE: settings.partial_update_removes or bool(settings.removing_sequences),
        MergeEngine.AGGREGATION: settings.aggregation_removes,
    }
    engine = settings.engine
    if not removing.get(engine, False):
        hint = f" unless {_REMOVES[engine]}" if engine in _REMOVES else ""
        raise UnsupportedTableError(
            f"{table.path} has '{MERGE_ENGINE.key}' = '{engine.value}', which does not remove the row of a delete"
            f"{hint}",
            engine=engine.value,
        )
    if settings.ignore_delete:
        raise UnsupportedTableError(
            f"{table.path} has '{IGNORE_DELETE.key}' = 'true': a delete would be ignored", key=IGNORE_DELETE.key
        )


def check_update(table: TableHandle, verb: str = "update") -> None:
    """Returns if a row of the table takes the values that an update gives it. Raises as `check_delete`."""
    check_changeable(table, verb)
    if not table.primary_key:
        return
    engine = table.table_schema.settings.merge.engine
    if engine not in (MergeEngine.DEDUPLICATE, MergeEngine.PARTIAL_UPDATE):
        raise UnsupportedTableError(
            f"cannot {verb} {table.path}: '{MERGE_ENGINE.key}' = '{engine.value}' combines a row with the older rows "
            "of its key, so an update cannot set columns",
            engine=engine.value,
        )
    fold = fold_for(table.table_schema)
    if isinstance(fold, PartialUpdate) and fold.aggregates:
        raise UnsupportedTableError(
            f"cannot {verb} {table.path}: a row that is written again would go into the aggregates of "
            f"{', '.join(fold.aggregates)} once more; write what is to be added",
            columns=tuple(fold.aggregates),
        )


def fixed_columns(schema: TableSchema) -> dict[str, str]:
    """The columns that an update cannot set, with what they are.

    Source: Paimon refuses primary keys. Columns of row kinds would change what the update is.
    """
    fixed = {name: "part of the primary key" for name in schema.primary_keys}
    settings = schema.settings.merge
    if settings.row_kind_field is not None:
        fixed[settings.row_kind_field] = f"'{ROWKIND_FIELD.key}'"
    if bucket_mode(schema).moves_keys and settings.engine is not MergeEngine.DEDUPLICATE:
        fixed |= {
            name: f"a partition column, and '{MERGE_ENGINE.key}' = '{settings.engine.value}' leaves a key where it is"
            for name in schema.partition_keys
        }
    return fixed


def sequence_description(schema: TableSchema) -> str:
    """What orders the rows of one key, in the words of the options."""
    return f"'{SEQUENCE_FIELD.key}' ({', '.join(schema.settings.merge.sequence_fields)})"
