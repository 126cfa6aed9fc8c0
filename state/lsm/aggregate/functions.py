"""Lists all aggregate functions, and finds the function of a column by its name.

Source: Paimon 2.0 FieldAggregatorFactory and its implementations; `fields.<column>.*` options of CoreOptions.
"""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.lsm.aggregate.choice import FirstNonNullValue, FirstValue, LastNonNullValue, LastValue, Max, Min
from bucketline.state.lsm.aggregate.collections_of_rows import Collect, MergeMap, MergeMapWithTime
from bucketline.state.lsm.aggregate.column import ColumnAggregate
from bucketline.state.lsm.aggregate.function import AggregateFunction
from bucketline.state.lsm.aggregate.logic import BoolAnd, BoolOr
from bucketline.state.lsm.aggregate.nested import NestedPartialUpdate, NestedUpdate
from bucketline.state.lsm.aggregate.product import Product
from bucketline.state.lsm.aggregate.sketches import HllSketch, ThetaSketch
from bucketline.state.lsm.aggregate.sums import Sum
from bucketline.state.lsm.aggregate.text import ListAgg
from bucketline.state.lsm.aggregate.unions import RoaringBitmap32, RoaringBitmap64
from bucketline.state.types.logical import DataField

FUNCTIONS: tuple[type[AggregateFunction], ...] = (
    Sum,
    Product,
    Max,
    Min,
    LastValue,
    LastNonNullValue,
    FirstValue,
    FirstNonNullValue,
    BoolAnd,
    BoolOr,
    ListAgg,
    Collect,
    MergeMap,
    MergeMapWithTime,
    NestedUpdate,
    NestedPartialUpdate,
    RoaringBitmap32,
    RoaringBitmap64,
    ThetaSketch,
    HllSketch,
)

_BY_NAME: Mapping[str, type[AggregateFunction]] = {name: function for function in FUNCTIONS for name in function.names}

UNNAMED_FUNCTION = "last_non_null_value"
"""The function of a column for which the table's options name no function."""


def column_aggregate(field: DataField, name: str, options: FieldOptions, key: str) -> ColumnAggregate:
    """Returns the aggregation of a column by the function `name`. `key` is the option that named the function; error
    messages contain this option.

    Raises OptionError for an unknown function, a column type that the function does not support, or parameters that are
    not valid. Raises UnsupportedTableError if the function needs a package that is not installed.
    """
    function = _BY_NAME.get(name)
    if function is None:
        raise OptionError(
            f"'{key}' = '{name}': there is no such aggregate function{did_you_mean(name, _BY_NAME.keys())}; "
            f"column {field.name} may use one of {', '.join(sorted(_BY_NAME))}",
            key=key,
            value=name,
            column=field.name,
        )
    if function.lacks is not None:
        raise UnsupportedTableError(
            f"column {field.name}: aggregate function '{name}' needs {function.lacks}",
            option=key,
            value=name,
            column=field.name,
        )
    if function.takes is not None and field.type.root not in function.takes:
        raise OptionError(
            f"'{key}' = '{name}': column {field.name} is {field.type}, but this function takes "
            f"{', '.join(sorted(r.value for r in function.takes))}",
            key=key,
            value=name,
            column=field.name,
        )
    made = function.of(field, options)
    return ColumnAggregate(field.name, name, made, options.ignores_retracts, field.type.nullable)
