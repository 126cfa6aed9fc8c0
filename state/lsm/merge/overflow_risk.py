"""Which columns of a bucket could overflow when its files are merged, by the files' statistics alone.

Source: Paimon 2.0 FieldSumAgg, FieldProductAgg: integers that overflow end every merge of their key.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod

from bucketline.conf.table.choices import MergeEngine
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.aggregate.numbers import Product, Sum
from bucketline.state.lsm.merge.aggregation import Aggregation
from bucketline.state.lsm.merge.fold import fold_for
from bucketline.state.lsm.merge.partial_update import PartialUpdate
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import TypeRoot

_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}


def may_overflow(schema: TableSchema) -> bool:
    """Whether the table has any column whose merges could overflow: most have none, whatever their files hold."""
    return schema.settings.merge.engine in (MergeEngine.AGGREGATION, MergeEngine.PARTIAL_UPDATE)


def columns_at_risk(schema: TableSchema, files: Sequence[tuple[DataFileMeta, TableSchema]]) -> tuple[str, ...]:
    """The integer columns with `sum` or `product` whose result may not fit their type for some key of these files.

    `files` are all live files of one bucket, each with the schema that it was written with. A run holds a key once, so
    the largest values of the runs bound every result. A column without statistics counts as safe.
    """
    if not may_overflow(schema):
        return ()
    computed = _computed(schema)
    if not computed:
        return ()
    runs: dict[object, dict[str, int]] = defaultdict(dict)
    for file, stored in files:
        run = runs[file.level if file.level > 0 else file.file_name]
        for name, largest in _largest(schema, file, stored, computed.keys()):
            run[name] = max(run.get(name, 0), largest)
    at_risk = []
    for name, is_sum in computed.items():
        values = [run[name] for run in runs.values() if name in run]
        bound = sum(values) if is_sum else prod(max(1, v) for v in values)
        if bound >= 2 ** (_BITS[_roots(schema)[name]] - 1):
            at_risk.append(name)
    return tuple(at_risk)


def _computed(schema: TableSchema) -> Mapping[str, bool]:
    """Integer columns that are computed: True for sums, False for products."""
    fold = fold_for(schema)
    if isinstance(fold, Aggregation):
        aggregates = fold.columns
    else:
        aggregates = (fold.aggregates or {}) if isinstance(fold, PartialUpdate) else {}
    roots = _roots(schema)
    return {
        name: isinstance(column.function, Sum)
        for name, column in aggregates.items()
        if isinstance(column.function, Sum | Product) and roots[name] in _BITS
    }


def _roots(schema: TableSchema) -> Mapping[str, TypeRoot]:
    return {f.name: f.type.root for f in schema.fields}


def _largest(
    schema: TableSchema, file: DataFileMeta, stored: TableSchema, names: Iterable[str]
) -> Iterable[tuple[str, int]]:
    """The largest magnitude in each of the named columns that the file has statistics of."""
    fields = stored.fields if file.value_stats_cols is None else stored.select(file.value_stats_cols)
    stats = file.value_stats
    if stats.null_counts is None or len(stats.null_counts) != len(fields):
        return
    types = [f.type.as_nullable() for f in fields]
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    name_of = {f.id: f.name for f in schema.fields if f.name in set(names)}
    for field, low, high in zip(fields, lows, highs, strict=True):
        if field.id in name_of and isinstance(low, int) and isinstance(high, int):
            yield name_of[field.id], max(abs(low), abs(high))
