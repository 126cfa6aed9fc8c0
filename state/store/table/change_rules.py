"""Refuses changes of rows that a table's merge engine or options do not allow. The checks run before any row is read.

Source: Paimon 2.0 SupportsRowLevelOperationFlinkTableSink, and RowLevelOp of Paimon Spark. Both refuse the same merge
engines for updates and merges. For deletes the stricter rules of Flink hold: a delete must remove the row.
"""

from bucketline.conf.errors import OptionError
from bucketline.conf.table.merge_options import (
    IGNORE_DELETE,
    MERGE_ENGINE,
    ROWKIND_FIELD,
    SEQUENCE_FIELD,
)
from bucketline.conf.table.read_options import SCAN_FALLBACK_BRANCH, SCAN_PRIMARY_BRANCH
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.store.catalog.table_handle import TableHandle


def check_changeable(table: TableHandle, verb: str) -> None:
    """Checks that the rows that the handle reads can be changed with the same handle. `verb` is the word for the change
    in the message of the error.

    Raises UnsupportedTableError if the handle also reads rows of another branch, OptionError for a table that was
    opened at an older state.
    """
    settings = table.table_schema.settings.reading
    for branch, name in (
        (SCAN_FALLBACK_BRANCH, settings.fallback_branch),
        (SCAN_PRIMARY_BRANCH, settings.primary_branch),
    ):
        if name is not None:
            raise UnsupportedTableError(
                f"cannot {verb} {table.path}: '{branch.key}' is set, so reads return rows of another branch too. The "
                "change cannot reach the rows of that branch, and would hide all its rows in the changed partitions; "
                "unset the option first",
                option=branch.key,
            )
    for key in settings.named_versions:
        raise OptionError(f"cannot {verb} an older state of {table.path}: open the table without '{key}'", key=key)


def check_delete(table: TableHandle) -> None:
    """Checks that a delete removes rows of the table. Raises UnsupportedTableError if the table ignores deletes or
    keeps deleted rows, and the errors of `check_changeable`.
    """
    check_changeable(table, "delete from")
    if not table.primary_key:
        return
    settings, merging = table.table_schema.settings.merge, merging_of(table.table_schema)
    if not merging.takes_deletes():
        hint = "" if merging.delete_option is None else f" unless {merging.delete_option}"
        raise UnsupportedTableError(
            f"{table.path} has '{MERGE_ENGINE.key}' = '{settings.engine.value}', so a delete does not remove a "
            f"row{hint}",
            engine=settings.engine.value,
        )
    if settings.ignore_delete:
        raise UnsupportedTableError(
            f"{table.path} has '{IGNORE_DELETE.key}' = 'true', so a delete would be ignored; unset the option",
            key=IGNORE_DELETE.key,
        )


def check_update(table: TableHandle, verb: str = "update") -> None:
    """Checks that an updated row would have exactly the values that the update gives it. `verb` says in messages what
    the user does. Raises UnsupportedTableError if the merge engine would combine old and new values, and the errors of
    `check_delete`.
    """
    check_changeable(table, verb)
    if not table.primary_key:
        return
    word, merging = table.table_schema.settings.merge.engine.value, merging_of(table.table_schema)
    if not merging.takes_updates:
        raise UnsupportedTableError(
            f"cannot {verb} {table.path}: '{MERGE_ENGINE.key}' = '{word}' combines a row with the older rows of its "
            "key, so an update cannot set columns",
            engine=word,
        )
    again = merging.counts_again()
    if again:
        raise UnsupportedTableError(
            f"cannot {verb} {table.path}: an update writes the whole row again, so its values would go "
            f"into the aggregates of {', '.join(again)} once more; write only the values to add",
            columns=again,
        )


def fixed_columns(schema: TableSchema) -> dict[str, str]:
    """Returns the columns that an update cannot set, each with the reason.

    Source: Paimon refuses to update primary keys. A column of row kinds cannot be set, because its value would change
    the kind of the update's own rows.
    """
    fixed = {name: "part of the primary key" for name in schema.primary_keys}
    settings = schema.settings.merge
    if settings.row_kind_field is not None:
        fixed[settings.row_kind_field] = f"'{ROWKIND_FIELD.key}'"
    if bucket_mode(schema).moves_keys and not settings.engine.keeps_newest:
        fixed |= {
            name: f"a partition column, and '{MERGE_ENGINE.key}' = '{settings.engine.value}' leaves a key where it is"
            for name in schema.partition_keys
        }
    return fixed


def sequence_description(schema: TableSchema) -> str:
    """Returns the option that orders the rows of a key, and the columns that the option names, for a message."""
    return f"'{SEQUENCE_FIELD.key}' ({', '.join(schema.settings.merge.sequence_fields)})"
