"""Finds the columns for which merging the files of a bucket may have no result, for example because a sum overflows.
Only the metadata of the files is used.

Source: Paimon 2.0 FieldSumAgg, FieldProductAgg: every merge of a key fails if an integer overflows or a quotient has
infinitely many digits. FieldLastValueAgg, FieldLastNonNullValueAgg: a -U or -D row leaves null.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.aggregate.column import ColumnAggregate
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.long_decimals import COMPACT_DIGITS


def may_overflow(schema: TableSchema) -> bool:
    """Returns True if the table's merge engine computes new values from several rows. Such a value may be too large for
    its column. The other merge engines only choose among rows.
    """
    return bool(schema.primary_keys) and schema.settings.merge.engine.builds_rows


def long_decimals(schema: TableSchema) -> tuple[str, ...]:
    """Returns the columns in which files written by Paimon may have decimals with more digits than their type
    allows.
    """
    if not may_overflow(schema):
        return ()
    return tuple(
        f.name
        for f in schema.fields
        if f.type.root is TypeRoot.DECIMAL
        and (f.type.precision or 0) <= COMPACT_DIGITS
        and f.name not in schema.primary_keys
    )


def shortened_decimals(schema: TableSchema) -> tuple[str, ...]:
    """Returns the columns in which a decimal with more digits than its type allows is written as null. They are the
    nullable columns of `long_decimals`; a NOT NULL column keeps the decimal.
    """
    return tuple(name for name in long_decimals(schema) if schema.field(name).type.nullable)


def columns_at_risk(schema: TableSchema, files: Sequence[tuple[DataFileMeta, TableSchema]]) -> tuple[str, ...]:
    """Returns the columns for which merging these files may have no result for some key. There are three reasons: a
    number may become too large for an integer column or a NOT NULL decimal column; a row that takes a value back may
    leave null in a NOT NULL column; or the column's function may be unable to take a value back, because a quotient
    does not exist.

    `files` are all live files of one bucket, each with the schema with which it was written. A sorted run has each key
    only once, so the largest values of the runs limit every result. A column without statistics counts as safe.
    """
    if not may_overflow(schema):
        return ()
    fold = fold_for(schema)
    assert isinstance(fold, ComputedFold), "a merge engine that builds rows computes them"
    aggregates = {name: c for name, c in fold.aggregated.items() if c.function.limit(schema.field(name)) is not None}
    has_retracts = any(file.may_hold_deletes for file, _ in files)
    at_risk = {n for n, c in fold.aggregated.items() if has_retracts and _fails_to_retract(fold, schema.field(n), c)}
    if aggregates.keys() <= at_risk:
        return tuple(sorted(at_risk))
    runs: dict[object, dict[str, Fraction]] = defaultdict(dict)
    for file, stored in files:
        run = runs[file.level if file.level > 0 else file.file_name]
        for name, largest in _largest(schema, file, stored, aggregates.keys()):
            run[name] = max(run.get(name, Fraction(0)), largest)
    for name, column in aggregates.items():
        values = [run[name] for run in runs.values() if name in run]
        limit = column.function.limit(schema.field(name))
        if limit is not None and column.function.bound(values) >= limit:
            at_risk.add(name)
    return tuple(sorted(at_risk))


def _fails_to_retract(fold: ComputedFold, field: DataField, column: ColumnAggregate) -> bool:
    if column.ignores_retracts:
        return False
    if not column.function.retracts:
        # Such -U and -D rows are refused when they are written, except a delete that can remove the whole row. A late
        # delete does not remove the row, so the function would have to take a value back, which it cannot do.
        return fold.removes_by_others(field.name)
    return column.function.fails_to_retract(field)


def _largest(
    schema: TableSchema, file: DataFileMeta, stored: TableSchema, names: Iterable[str]
) -> Iterable[tuple[str, Fraction]]:
    """Yields the name and the largest magnitude of each column in `names` for which the file has statistics. `stored`
    is the schema with which the file was written.
    """
    fields = stored.fields if file.value_stats_cols is None else stored.select(file.value_stats_cols)
    stats = file.value_stats
    if stats.null_counts is None or len(stats.null_counts) != len(fields):
        return
    types = [f.type.as_nullable() for f in fields]
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    name_of = {f.id: f.name for f in schema.fields if f.name in set(names)}
    for field, low, high in zip(fields, lows, highs, strict=True):
        if field.id in name_of and isinstance(low, int | Decimal) and isinstance(high, int | Decimal):
            yield name_of[field.id], max(abs(Fraction(low)), abs(Fraction(high)))
