"""Which columns of a bucket may have no result when its files are merged, by what is known of the files alone.

Source: Paimon 2.0 FieldSumAgg, FieldProductAgg: integers that overflow and quotients without an end fail every merge of
their key. FieldLastValueAgg, FieldLastNonNullValueAgg: a retract leaves null.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import prod

from bucketline.conf.table.choices import MergeEngine
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.aggregate.choice import LastNonNullValue, LastValue
from bucketline.state.lsm.aggregate.functions import ColumnAggregate
from bucketline.state.lsm.aggregate.numbers import Product, Sum
from bucketline.state.lsm.merge.aggregation import Aggregation
from bucketline.state.lsm.merge.fold import fold_for
from bucketline.state.lsm.merge.partial_update import PartialUpdate
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.long_decimals import COMPACT_DIGITS

_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}


def may_overflow(schema: TableSchema) -> bool:
    """Whether the table has any column whose merges could lack a result: most have none, whatever their files hold."""
    return schema.settings.merge.engine in (MergeEngine.AGGREGATION, MergeEngine.PARTIAL_UPDATE)


def long_decimals(schema: TableSchema) -> tuple[str, ...]:
    """The columns in which files of Paimon may hold decimals with more digits than their type says."""
    if not may_overflow(schema):
        return ()
    return tuple(
        f.name
        for f in schema.fields
        if f.type.root is TypeRoot.DECIMAL
        and (f.type.precision or 0) <= COMPACT_DIGITS
        and f.name not in schema.primary_keys
    )


def columns_at_risk(schema: TableSchema, files: Sequence[tuple[DataFileMeta, TableSchema]]) -> tuple[str, ...]:
    """The columns that may have no result for some key of these files: a `sum` or `product` that does not fit an
    integer, or a decimal that must not be null; a product that is divided; a value taken back that must not be null, or
    that cannot be taken back.

    `files` are all live files of one bucket, each with the schema that it was written with. A run holds a key once, so
    the largest values of the runs bound every result. A column without statistics counts as safe.
    """
    if not may_overflow(schema):
        return ()
    aggregates = {name: c for name, c in _aggregates(schema).items() if _limit(schema.field(name), c) is not None}
    has_retracts = any(file.may_hold_deletes for file, _ in files)
    at_risk = {name for name, c in _aggregates(schema).items() if has_retracts and _fails_to_retract(schema, name, c)}
    if aggregates.keys() <= at_risk:
        return tuple(sorted(at_risk))
    runs: dict[object, dict[str, Fraction]] = defaultdict(dict)
    for file, stored in files:
        run = runs[file.level if file.level > 0 else file.file_name]
        for name, largest in _largest(schema, file, stored, aggregates.keys()):
            run[name] = max(run.get(name, Fraction(0)), largest)
    for name, column in aggregates.items():
        values = [run[name] for run in runs.values() if name in run]
        bound = sum(values) if isinstance(column.function, Sum) else prod(max(Fraction(1), v) for v in values)
        limit = _limit(schema.field(name), column)
        if limit is not None and bound >= limit:
            at_risk.add(name)
    return tuple(sorted(at_risk))


def _aggregates(schema: TableSchema) -> Mapping[str, ColumnAggregate]:
    fold = fold_for(schema)
    if isinstance(fold, Aggregation):
        return fold.columns
    return (fold.aggregates or {}) if isinstance(fold, PartialUpdate) else {}


def _limit(field: DataField, column: ColumnAggregate) -> Fraction | None:
    """Above which a computed result of the column does not exist; None where there is no such limit."""
    if not isinstance(column.function, Sum | Product):
        return None
    if field.type.root in _BITS:
        return Fraction(2 ** (_BITS[field.type.root] - 1))
    if field.type.root is TypeRoot.DECIMAL and not field.type.nullable:
        # A product is rounded up, which may add a digit.
        precision, scale = field.type.precision or 0, field.type.scale or 0
        return Fraction(10**precision - 1, 10**scale)
    return None


def _fails_to_retract(schema: TableSchema, name: str, column: ColumnAggregate) -> bool:
    field = schema.field(name)
    if column.ignores_retracts:
        return False
    if not column.function.retracts:
        # Such a row does not come in, but for a delete that may remove the whole row: it does not if it is late.
        return _is_removed_by_sequence(schema, name)
    if isinstance(column.function, Product):
        return field.type.root not in (TypeRoot.FLOAT, TypeRoot.DOUBLE)
    return isinstance(column.function, LastValue | LastNonNullValue) and not field.type.nullable


def _is_removed_by_sequence(schema: TableSchema, name: str) -> bool:
    """Whether a delete that has a newer sequence removes the whole row, and this column is in a sequence group."""
    fold = fold_for(schema)
    if not isinstance(fold, PartialUpdate) or fold.ignore_delete:
        return False
    return any(g.removes for g in fold.groups) and any(name in g.columns for g in fold.groups)


def _largest(
    schema: TableSchema, file: DataFileMeta, stored: TableSchema, names: Iterable[str]
) -> Iterable[tuple[str, Fraction]]:
    """The largest magnitude in each of the named columns that the file has statistics of."""
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
