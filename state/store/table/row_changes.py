"""Delete and update by a condition, without Spark: the rows that pass are read, and written again in one commit.

Nothing is locked: a row that somebody else writes in between is changed as it was read, and the later commit wins.
Source: Paimon 2.0 DeleteFromPaimonTableCommand, UpdatePaimonTableCommand for tables with a primary key.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import MergeEngine
from bucketline.conf.table.merge_options import (
    AGGREGATION_REMOVE_RECORD_ON_DELETE,
    IGNORE_DELETE,
    MERGE_ENGINE,
    PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    ROWKIND_FIELD,
    SEQUENCE_FIELD,
)
from bucketline.conf.table.read_options import SCAN_FALLBACK_BRANCH, SCAN_PRIMARY_BRANCH
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.read.table_read import Filter, Request, read_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.table.write_result import WriteResult
from bucketline.state.store.write.modes import mode_of
from bucketline.state.types.row_kind import RowKind

_REMOVES_ON_DELETE = {
    MergeEngine.PARTIAL_UPDATE: PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE,
    MergeEngine.AGGREGATION: AGGREGATION_REMOVE_RECORD_ON_DELETE,
}


def delete_rows(table: TableHandle, condition: Filter) -> WriteResult:
    """Deletes the rows that a reader sees and that pass; the newest snapshot's id.

    Raises UnsupportedTableError for tables in which a delete does not remove a row, SchemaMismatchError for a condition
    that does not fit, and as `write_table`.
    """
    _check_changed(table, "delete from")
    settings = table.table_schema.settings.merge
    engine = settings.engine
    removes = _REMOVES_ON_DELETE.get(engine)
    removing = {
        MergeEngine.DEDUPLICATE: True,
        MergeEngine.PARTIAL_UPDATE: settings.partial_update_removes,
        MergeEngine.AGGREGATION: settings.aggregation_removes,
    }
    if not removing.get(engine, False):
        hint = "" if removes is None else f" unless '{removes.key}' is true"
        raise UnsupportedTableError(
            f"{table.path} has '{MERGE_ENGINE.key}' = '{engine.value}', which does not remove the row of a delete"
            f"{hint}",
            engine=engine.value,
        )
    if settings.ignore_delete:
        raise UnsupportedTableError(
            f"{table.path} has '{IGNORE_DELETE.key}' = 'true': a delete would be ignored", key=IGNORE_DELETE.key
        )
    kind_field = settings.row_kind_field
    if kind_field is not None:
        return _write_found(table, condition, {kind_field: pc.scalar("-D")})
    return _write_found(table, condition, {ROW_KIND_COLUMN: pc.scalar(pa.scalar(int(RowKind.DELETE), pa.int8()))})


def update_rows(table: TableHandle, condition: Filter, assignments: Mapping[str, object]) -> WriteResult:
    """Gives columns of the rows that pass other values; the newest snapshot's id.

    A value is a constant, or an expression over the columns as they were. Raises UnsupportedTableError for tables whose
    merge engine keeps older values, SchemaMismatchError for columns that are not there or decide a row's place or
    order, and for values that do not fit; and as `write_table`.
    """
    _check_changed(table, "update")
    engine = table.table_schema.settings.merge.engine
    if engine is not MergeEngine.DEDUPLICATE:
        raise UnsupportedTableError(
            f"{table.path} has '{MERGE_ENGINE.key}' = '{engine.value}', which combines a row with what was there; an "
            "update cannot set its columns",
            engine=engine.value,
        )
    return _write_found(table, condition, _values(table, assignments))


def _check_changed(table: TableHandle, verb: str) -> None:
    settings = table.table_schema.settings.reading
    if not table.primary_key:
        raise UnsupportedTableError(
            f"cannot {verb} {table.path}: it has no primary key to write changes by; overwrite its partitions instead"
        )
    if mode_of(table.table_schema).postpones:
        raise UnsupportedTableError(
            f"cannot {verb} {table.path}: rows that wait in its postpone bucket would come after the change",
            mode=bucket_mode(table.table_schema).value,
        )
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


def _values(table: TableHandle, assignments: Mapping[str, object]) -> dict[str, pc.Expression]:
    """What each column is set to."""
    schema = table.table_schema
    fixed = {name: "part of the primary key" for name in schema.primary_keys}
    fixed |= {name: "a partition column" for name in schema.partition_keys}
    fixed |= {name: f"in '{SEQUENCE_FIELD.key}'" for name in schema.settings.merge.sequence_fields}
    kind_field = schema.settings.merge.row_kind_field
    fixed |= {} if kind_field is None else {kind_field: f"'{ROWKIND_FIELD.key}'"}
    if not assignments:
        raise SchemaMismatchError("an update needs a column to set")
    found = {}
    for name, value in assignments.items():
        if name not in table.schema.names:
            raise SchemaMismatchError(f"there is no column {name!r} ({', '.join(table.schema.names)})", column=name)
        if name in fixed:
            raise SchemaMismatchError(f"column {name!r} is {fixed[name]}, and cannot be set; write rows", column=name)
        found[name] = value if isinstance(value, pc.Expression) else _constant(table.schema.field(name), value)
    return found


def _constant(field: pa.Field, value: object) -> pc.Expression:
    try:
        return pc.scalar(pa.scalar(value, field.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as e:
        raise SchemaMismatchError(f"{value!r} is no value of column {field.name!r}: {e}", column=field.name) from e


def _write_found(table: TableHandle, condition: Filter, values: Mapping[str, pc.Expression]) -> WriteResult:
    """Writes the rows that pass with these values."""
    return repeat_if_gone(lambda: _write_found_once(table, condition, values))


def _write_found_once(table: TableHandle, condition: Filter, values: Mapping[str, pc.Expression]) -> WriteResult:
    """Batch by batch, so that memory stays bounded."""
    schema, rows = read_table(table, Request(filter=condition))
    columns = {name: pc.field(name) for name in schema.names} | dict(values)
    kept = _with_values(pa.RecordBatch.from_pylist([], schema=schema), columns).schema

    def changed() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield from _with_values(batch, columns).to_batches()

    return write_table(table, pa.RecordBatchReader.from_batches(kept, changed()))


def _with_values(batch: pa.RecordBatch, columns: Mapping[str, pc.Expression]) -> pa.Table:
    try:
        return ds.dataset(pa.Table.from_batches([batch])).to_table(columns=dict(columns), use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as e:
        raise SchemaMismatchError(f"a value cannot be computed from the table's rows: {e}") from e
