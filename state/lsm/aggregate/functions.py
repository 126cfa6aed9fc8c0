"""Aggregate functions by name: what each column of an aggregating table computes, and what it refuses.

Source: Paimon 2.0 FieldAggregatorFactory and its implementations; `fields.<column>.*` options of CoreOptions.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.conf.table.field_options import FieldOptions
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.lsm.aggregate.choice import Extreme, FirstNonNullValue, FirstValue, LastNonNullValue, LastValue
from bucketline.state.lsm.aggregate.collections_of_rows import Collect, MergeMap, MergeMapWithTime
from bucketline.state.lsm.aggregate.events import Events, Mask, Op
from bucketline.state.lsm.aggregate.nested import NestedPartialUpdate, NestedUpdate
from bucketline.state.lsm.aggregate.numbers import Logic, Product, Sum
from bucketline.state.lsm.aggregate.sketches import HLL_SKETCH, SKETCHES_INSTALLED, THETA_SKETCH
from bucketline.state.lsm.aggregate.text import ListAgg
from bucketline.state.lsm.aggregate.unions import BITMAP32, BITMAP64, SetKind, Union
from bucketline.state.types.logical import MAX_LENGTH, DataField, TypeRoot

NUMBERS = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
    }
)
COMPARABLE = NUMBERS | {
    TypeRoot.CHAR,
    TypeRoot.VARCHAR,
    TypeRoot.DATE,
    TypeRoot.TIME,
    TypeRoot.TIMESTAMP,
    TypeRoot.TIMESTAMP_LTZ,
    TypeRoot.BINARY,
    TypeRoot.VARBINARY,
}


class AggregateFunction(Protocol):
    """Values and events of one column → one value per key. `retracts`: whether it can retract values."""

    @property
    def retracts(self) -> bool: ...

    def fold(self, values: pa.Array, events: Events) -> pa.Array: ...


@runtime_checkable
class ChecksValues(Protocol):
    """An aggregate function with values that it can never merge.

    Shapes: n values, and whether each is retracted, in; for each reason n bools and the reason out.
    """

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]: ...


@dataclass(frozen=True, slots=True)
class ColumnAggregate:
    """How one column is aggregated. `ignores_retracts`: -U and -D rows leave it unchanged. `needs_value`: null is no
    result of the column.
    """

    column: str
    name: str
    function: AggregateFunction
    ignores_retracts: bool = False
    needs_value: bool = False

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        """Raises SchemaMismatchError when a row retracts a value and the function cannot, or a result is null and must
        not be.
        """
        if self.ignores_retracts:
            events = events.ignoring_retracts()
        elif not self.function.retracts and (events.ops == Op.RETRACT).any():
            raise SchemaMismatchError(self._cannot_retract, column=self.column)
        folded = self.function.fold(values, events)
        if self.needs_value and folded.null_count:
            raise SchemaMismatchError(null_result(self.column), column=self.column)
        return folded

    def strict(self, *, is_nullable: bool) -> "ColumnAggregate":
        """The aggregate for rows that are not in the table yet: it refuses what gives no result, instead of null."""
        function = replace(self.function, is_strict=True) if isinstance(self.function, _STRICT) else self.function
        return replace(self, function=function, needs_value=not is_nullable)

    def unmergeable(self, values: pa.Array, retracts: Mask) -> Iterator[tuple[Mask, str]]:
        """Rows that this column can never merge, by reason. Shapes: as `ChecksValues`."""
        if self.ignores_retracts:
            retracts = np.zeros(len(retracts), bool)
        elif not self.function.retracts and retracts.any():
            yield retracts, self._cannot_retract
        if isinstance(self.function, ChecksValues):
            yield from self.function.unmergeable(values, retracts)

    @property
    def _cannot_retract(self) -> str:
        return (
            f"column {self.column}: aggregate function '{self.name}' cannot retract the values of -U and -D rows; "
            f"set 'fields.{self.column}.ignore-retract' = 'true' to leave the column as it is, or 'ignore-delete' "
            "= 'true' to skip such rows"
        )


_STRICT = Sum | Product | Union


def null_result(column: str) -> str:
    """Why rows that leave null in a NOT NULL column are refused."""
    return (
        f"column {column} is NOT NULL, but merging its rows leaves null in it, as there is no result that it can hold: "
        f'make it nullable, with alter_column("{column}", nullable=True), or give it a wider type'
    )


_Make = Callable[[DataField, FieldOptions], AggregateFunction]


def column_aggregate(field: DataField, name: str, options: FieldOptions, key: str) -> ColumnAggregate:
    """The aggregate of a column; `key` is the option that named the function.

    Raises OptionError for an unknown function, a column of a type it does not take, or parameters it cannot read,
    UnsupportedTableError for functions that need a package which is not installed.
    """
    if name in _SKETCHES and not SKETCHES_INSTALLED:
        raise UnsupportedTableError(
            f"column {field.name}: aggregate function '{name}' needs Apache DataSketches wherever the table is "
            "written or read: pip install 'bucketline[sketches]'",
            option=key,
            value=name,
            column=field.name,
        )
    entry = _FUNCTIONS.get(name)
    if entry is None:
        raise OptionError(
            f"'{key}' = '{name}': there is no such aggregate function{did_you_mean(name, _FUNCTIONS.keys())}; "
            f"column {field.name} may use one of {', '.join(sorted(_FUNCTIONS))}",
            key=key,
            value=name,
            column=field.name,
        )
    accepted, make = entry
    if accepted is not None and field.type.root not in accepted:
        raise OptionError(
            f"'{key}' = '{name}': column {field.name} is {field.type}, but this function takes "
            f"{', '.join(sorted(r.value for r in accepted))}",
            key=key,
            value=name,
            column=field.name,
        )
    return ColumnAggregate(field.name, name, make(field, options), options.ignores_retracts)


def _plain(make: Callable[[], AggregateFunction]) -> _Make:
    return lambda field, options: make()


def _list_agg(field: DataField, options: FieldOptions) -> AggregateFunction:
    if field.type.length != MAX_LENGTH:
        raise OptionError(
            f"'fields.{field.name}.aggregate-function' = 'listagg': column {field.name} is {field.type}, but listagg "
            "takes STRING only, as joined texts grow",
            key=f"fields.{field.name}.aggregate-function",
            column=field.name,
        )
    if options.distinct and not options.delimiter:
        raise OptionError(
            f"'fields.{field.name}.list-agg-delimiter' is empty, but 'fields.{field.name}.distinct' = 'true' needs one "
            "to tell parts apart; name a delimiter",
            key=f"fields.{field.name}.list-agg-delimiter",
            column=field.name,
        )
    return ListAgg(options.delimiter, options.distinct)


def _merge_map_with_time(field: DataField, options: FieldOptions) -> AggregateFunction:
    value = field.type.value
    key = f"fields.{field.name}.ts-field"
    if value is None or value.root is not TypeRoot.ROW or not value.fields:
        raise OptionError(
            f"'fields.{field.name}.aggregate-function' = 'merge_map_with_keytime': column {field.name} is {field.type}"
            ", but the values of its map must be rows that hold a time",
            key=f"fields.{field.name}.aggregate-function",
            column=field.name,
        )
    names = [f.name for f in value.fields]
    name = options.time_field or names[-1]
    if name not in names:
        raise OptionError(
            f"'{key}' = '{name}': the rows of column {field.name} have no such field, only {', '.join(names)}",
            key=key,
            column=field.name,
        )
    if value.fields[names.index(name)].type.root not in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        raise OptionError(
            f"'{key}' = '{name}': field {name} of column {field.name} must be text, as times are compared as text",
            key=key,
            column=field.name,
        )
    return MergeMapWithTime(names.index(name))


def _nested_update(field: DataField, options: FieldOptions) -> AggregateFunction:
    key = _sub_fields(field, "nested_update", "nested-key", options.nested_key)
    sequence = _sub_fields(field, "nested_update", "nested-sequence-field", options.nested_sequence)
    if sequence and not key:
        raise OptionError(
            f"'fields.{field.name}.nested-sequence-field' orders rows of one key, but there is no "
            f"'fields.{field.name}.nested-key'; name one",
            key=f"fields.{field.name}.nested-sequence-field",
            column=field.name,
        )
    return NestedUpdate(field.name, key, sequence, options.null_keys, options.count_limit)


def _nested_partial_update(field: DataField, options: FieldOptions) -> AggregateFunction:
    key = _sub_fields(field, "nested_partial_update", "nested-key", options.nested_key)
    if not key:
        raise OptionError(
            f"column {field.name}: nested_partial_update needs 'fields.{field.name}.nested-key'; name the key fields",
            key=f"fields.{field.name}.nested-key",
            column=field.name,
        )
    return NestedPartialUpdate(key)


def _sub_fields(field: DataField, function: str, suffix: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Positions of the named fields in the rows of an array column."""
    element = field.type.element
    if element is None or element.root is not TypeRoot.ROW:
        raise OptionError(
            f"'fields.{field.name}.aggregate-function' = '{function}': column {field.name} is {field.type}, but this "
            "function takes arrays of rows",
            key=f"fields.{field.name}.aggregate-function",
            column=field.name,
        )
    known = [f.name for f in element.fields]
    for name in names:
        if name not in known:
            raise OptionError(
                f"'fields.{field.name}.{suffix}': the rows of column {field.name} have no field {name}, only "
                f"{', '.join(known)}",
                key=f"fields.{field.name}.{suffix}",
                column=field.name,
            )
    return tuple(known.index(name) for name in names)


def _union(kind: SetKind) -> _Make:
    return lambda field, options: Union(field.name, kind)


_SKETCHES = frozenset({"theta_sketch", "hll_sketch"})
_SETS = frozenset({TypeRoot.VARBINARY})

_FUNCTIONS: Mapping[str, tuple[frozenset[TypeRoot] | None, _Make]] = {
    "sum": (NUMBERS, lambda field, options: Sum(field.name)),
    "product": (NUMBERS, lambda field, options: Product(field.name)),
    "max": (COMPARABLE, _plain(lambda: Extreme(greatest=True))),
    "min": (COMPARABLE, _plain(lambda: Extreme(greatest=False))),
    "last_value": (None, _plain(LastValue)),
    "last_non_null_value": (None, _plain(LastNonNullValue)),
    "first_value": (None, _plain(FirstValue)),
    "first_non_null_value": (None, _plain(FirstNonNullValue)),
    "first_not_null_value": (None, _plain(FirstNonNullValue)),
    "bool_and": (frozenset({TypeRoot.BOOLEAN}), _plain(lambda: Logic(every=True))),
    "bool_or": (frozenset({TypeRoot.BOOLEAN}), _plain(lambda: Logic(every=False))),
    "listagg": (frozenset({TypeRoot.VARCHAR}), _list_agg),
    "collect": (
        frozenset({TypeRoot.ARRAY}),
        # Ignoring retracts, Paimon puts late rows in front; otherwise it appends them like any other.
        lambda field, options: Collect(options.distinct, late_first=options.ignores_retracts),
    ),
    "merge_map": (frozenset({TypeRoot.MAP}), _plain(MergeMap)),
    "merge_map_with_keytime": (frozenset({TypeRoot.MAP}), _merge_map_with_time),
    "nested_update": (frozenset({TypeRoot.ARRAY}), _nested_update),
    "nested_partial_update": (frozenset({TypeRoot.ARRAY}), _nested_partial_update),
    "rbm32": (_SETS, _union(BITMAP32)),
    "rbm64": (_SETS, _union(BITMAP64)),
    "theta_sketch": (_SETS, _union(THETA_SKETCH)),
    "hll_sketch": (_SETS, _union(HLL_SKETCH)),
}

COMMUTING = frozenset({"sum", "max", "min", "bool_and", "bool_or", "rbm32", "rbm64", "theta_sketch", "hll_sketch"})
"""Functions that give the same result whatever order values come in; a product does not, as quotients are rounded."""
