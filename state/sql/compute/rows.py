"""Computes the nodes of an SQL expression over rows, column by column, with the results of Spark 4.

Nulls are handled as in SQL. As in Spark's ANSI mode, a lost value is an error: overflow, division by zero, a string
that is no number. A branch of CASE is computed only for the rows that take this branch. The right side of AND and OR is
computed only for the rows for which the left side does not decide the result. So a condition can prevent a division by
zero.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.errors import CorruptFileError
from bucketline.state.sql.compute.calls import LOCAL_CONTEXT, Context
from bucketline.state.sql.compute.casts import cast_to, try_cast_to
from bucketline.state.sql.compute.functions import call_function, function_call
from bucketline.state.sql.compute.json_paths import json_values
from bucketline.state.sql.compute.meeting import common_type, compared, to_common
from bucketline.state.sql.compute.moments import by_array
from bucketline.state.sql.compute.nested import field_of, item_of
from bucketline.state.sql.compute.numbers import Value, arithmetic, is_number, negated
from bucketline.state.sql.dialect import DIALECT
from bucketline.state.types.buffers import repeated
from bucketline.state.types.logical import DataType, parse_type_text

SOURCE, TARGET = "source", "target"

COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_TYPE_NAMES = {
    "TEXT": "STRING",
    "TIMESTAMPTZ": "TIMESTAMP",
    "TIMESTAMPLTZ": "TIMESTAMP_LTZ",
    "TIMESTAMPNTZ": "TIMESTAMP",
    "INTEGER": "INT",
}
ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError)


class NodeRows:
    """Computes an SQL expression over some rows. A node is a part of the parsed expression. The object is called with a
    node, and returns the value of this node for the rows.
    """

    def __init__(self, columns: Mapping[str, pa.Array], row_count: int, context: Context = LOCAL_CONTEXT) -> None:
        self._columns, self._count, self.context = columns, row_count, context

    def __call__(self, node: Any) -> Value:
        return self.value(node)

    def array(self, node: Any) -> pa.Array:
        """Returns the value of a node in each row."""
        value = self.value(node)
        return repeated(value, self._count) if isinstance(value, pa.Scalar) else value

    def value(self, node: Any) -> Value:
        """Computes a part of an SQL expression (a node of its tree) for each row. Returns a column, or a single value
        if all rows have the same value.
        """
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        if type(node) in COMPARISONS:
            return compared(COMPARISONS[type(node)], self.value(node.this), self.value(node.expression), self.context)
        compute = _NODES.get(type(node))
        if compute is not None:
            return compute(self, node)
        call = function_call(node)
        if call is not None:
            return call_function(call, self)
        raise _refused(f"{type(node).__name__.upper()} in {node.sql(DIALECT)!r} is not supported")

    def _arithmetic(self, node: Any) -> Value:
        left, right = self._operand(node.this), self._operand(node.expression)
        if pa.types.is_null(left.type) or pa.types.is_null(right.type):
            return pa.scalar(None)
        for side in (left, right):
            if not is_number(side.type):
                raise pa.ArrowTypeError(
                    f"{node.sql(DIALECT)!r} cannot be computed with {side.type}; use CAST to convert it to a number"
                )
        return arithmetic(_ARITHMETIC[type(node)], left, right)

    def _operand(self, node: Any) -> Value:
        """Returns the value of an operand of an arithmetic operator: a single value or a column.

        An integer that is not written as a literal becomes a column, even if it is the same in all rows. So the
        operator can tell a literal from a computed integer. Spark needs this in arithmetic with decimals: the literal
        `5` counts as a decimal of one digit, and a computed INT as a decimal of ten digits.
        """
        value = self.value(node)
        while isinstance(node, exp.Paren | exp.Neg):
            node = node.this
        is_computed = isinstance(value, pa.Scalar) and not isinstance(node, exp.Literal)
        return pa.repeat(value, self._count) if is_computed and pa.types.is_integer(value.type) else value

    def _negation(self, node: Any) -> Value:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number(f"-{node.this.this}")
        value = self.value(node.this)
        if not is_number(value.type):
            raise pa.ArrowTypeError(f"{node.sql(DIALECT)!r} negates {value.type}, which is no number; use CAST")
        return negated(value)

    def _column(self, node: Any) -> Value:
        parts = [part.name for part in node.parts]
        side = node.table
        if parts[0] in (SOURCE, TARGET) and len(parts) > 1 and self._found(parts[0]) is None:
            known = ".".join(parts[:2]) if parts[0] == SOURCE else parts[1]
            fields = parts[2:]
        else:
            known, fields = parts[0], parts[1:]
        found = self._found(known)
        if found is not None:
            value: Value = _plain(self._columns[found])
            if fields and found in self.context.json_columns:
                return by_array(value, lambda texts: json_values(texts, tuple(fields)))
            for field in fields:
                value = field_of(value, field, node.sql(DIALECT))
            return _plain(value) if fields else value
        if side == SOURCE and not any(c.startswith(f"{SOURCE}.") for c in self._columns):
            raise OptionError(f"{node.sql(DIALECT)!r}: only a merge has a source", key="expression", column=known)
        near = did_you_mean(known, self._columns) or f"; there are {', '.join(self._columns)}"
        raise OptionError(f"unknown column '{known}'{near}", key="expression", column=known)

    def _found(self, name: str) -> str | None:
        """Returns the name of the column that `name` means; None if there is none. Upper and lower case may differ if
        only one column matches.
        """
        if name in self._columns:
            return name
        others = [c for c in self._columns if c.lower() == name.lower()]
        return others[0] if len(others) == 1 else None

    def _dot(self, node: Any) -> Value:
        return field_of(self.value(node.this), node.expression.name, node.sql(DIALECT))

    def _bracket(self, node: Any) -> Value:
        if len(node.expressions) != 1:
            raise _refused(f"{node.sql(DIALECT)!r} is not supported")
        return item_of(node.this, node.expressions[0], self, counts_from_one=False)

    def _literal(self, node: Any) -> Value:
        return pa.scalar(str(node.this)) if node.is_string else _number(node.this)

    def _logical(self, node: Any) -> Value:
        joined, decides = (pc.and_kleene, False) if isinstance(node, exp.And) else (pc.or_kleene, True)
        left = self.truth(node.this)
        try:
            return joined(left, self.truth(node.expression))
        except ARROW_ERRORS:
            # In `a <> 0 AND 1 / a > 2`, the right side is not computed for rows for which the left side decides the
            # result.
            decided = pc.fill_null(pc.equal(left, decides), False)
            is_decided = np.asarray(pa.repeat(decided, self._count) if isinstance(decided, pa.Scalar) else decided)
            if not is_decided.any():
                raise
        right = self._at(np.flatnonzero(~is_decided)).truth(node.expression)
        if isinstance(right, pa.Array):
            right = right.take(pa.array(np.cumsum(~is_decided) - 1, mask=is_decided))
        return joined(left, right)

    def truth(self, node: Any) -> Value:
        """Returns the result of a condition as a BOOLEAN column, or as a single value if all rows have the same result.
        Raises ArrowTypeError if the node is no condition.
        """
        value = self.value(node)
        if pa.types.is_null(value.type):
            return pa.scalar(None, pa.bool_())
        if not pa.types.is_boolean(value.type):
            raise pa.ArrowTypeError(f"{node.sql(DIALECT)!r} is {value.type}, not a condition; write a comparison")
        return value

    def _is(self, node: Any) -> Value:
        value, other = self.value(node.this), node.expression
        if isinstance(other, exp.Null):
            return pc.is_null(value)
        if isinstance(other, exp.Boolean):
            return pc.fill_null(pc.equal(self.truth(node.this), bool(other.this)), False)
        raise _refused(f"{node.sql(DIALECT)!r} is not supported; use IS NULL, IS TRUE or IS FALSE")

    def _same(self, node: Any) -> Value:
        left, right = self.value(node.this), self.value(node.expression)
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both, pc.fill_null(compared("=", left, right, self.context), False))

    def _membership(self, node: Any) -> Value:
        if not node.expressions:
            raise _refused(f"{node.sql(DIALECT)!r}: IN needs a list of values")
        value = self.value(node.this)
        return reduce(pc.or_kleene, [compared("=", value, self.value(e), self.context) for e in node.expressions])

    def _range(self, node: Any) -> Value:
        low = exp.GTE(this=node.this, expression=node.args["low"])
        return self._logical(exp.And(this=low, expression=exp.LTE(this=node.this, expression=node.args["high"])))

    def _case(self, node: Any) -> Value:
        base = node.this
        whens = [
            (exp.EQ(this=base, expression=w.this) if base is not None else w.this, w.args["true"])
            for w in node.args["ifs"]
        ]
        return self._first_true(whens, node.args.get("default"))

    def _if(self, node: Any) -> Value:
        return self._first_true([(node.this, node.args["true"])], node.args.get("false"))

    def _first_true(self, whens: Sequence[tuple[Any, Any]], default: Any) -> Value:
        left = np.arange(self._count)
        places: list[np.ndarray] = []
        results: list[pa.Array] = []
        for test, then in whens:
            rows = self._at(left)
            holds = rows.truth(test)
            if isinstance(holds, pa.Scalar):
                holds = pa.repeat(holds, len(left))
            mask = np.asarray(holds.fill_null(False))
            places.append(left[mask])
            results.append(self._at(left[mask]).array(then))
            left = left[~mask]
        places.append(left)
        rows = self._at(left)
        results.append(pa.nulls(len(left)) if default is None else rows.array(default))
        target = common_type([v.type for v in results], self.context)
        together = pa.concat_arrays([to_common(v, target, self.context) for v in results])
        return together.take(pa.array(np.argsort(np.concatenate(places), kind="stable")))

    def _at(self, rows: np.ndarray) -> "NodeRows":
        if len(rows) == self._count:
            return self
        chosen = pa.array(rows)
        return NodeRows(_Taken(self._columns, chosen), len(rows), self.context)

    def _cast(self, node: Any) -> Value:
        wanted = _type_of(node, self.context)
        cast = try_cast_to if isinstance(node, exp.TryCast) else cast_to
        value = self.value(node.this)
        return by_array(value, lambda values: cast(values, wanted, self.context))


class _Taken(Mapping[str, pa.Array]):
    """The columns of some chosen rows. The values of a column are selected when the column is first used."""

    def __init__(self, columns: Mapping[str, pa.Array], rows: pa.Array) -> None:
        self._columns, self._rows = columns, rows

    def __getitem__(self, name: str) -> pa.Array:
        return self._columns[name].take(self._rows)

    def __iter__(self) -> Any:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns


_NODES: dict[type[Any], Callable[[NodeRows, Any], Value]] = {
    exp.Paren: lambda rows, node: rows.value(node.this),
    exp.Neg: NodeRows._negation,
    exp.Column: NodeRows._column,
    exp.Literal: NodeRows._literal,
    exp.Boolean: lambda rows, node: pa.scalar(bool(node.this)),
    exp.Null: lambda rows, node: pa.scalar(None),
    exp.HexString: lambda rows, node: pa.scalar(bytes.fromhex(node.this), pa.binary()),
    exp.And: NodeRows._logical,
    exp.Or: NodeRows._logical,
    exp.Not: lambda rows, node: pc.invert(rows.truth(node.this)),
    exp.Is: NodeRows._is,
    exp.NullSafeEQ: NodeRows._same,
    exp.NullSafeNEQ: lambda rows, node: pc.invert(rows._same(node)),
    exp.In: NodeRows._membership,
    exp.Between: NodeRows._range,
    exp.Case: NodeRows._case,
    exp.If: NodeRows._if,
    exp.Cast: NodeRows._cast,
    exp.TryCast: NodeRows._cast,
    exp.Dot: NodeRows._dot,
    exp.Bracket: NodeRows._bracket,
}


def _plain(column: pa.Array) -> pa.Array:
    """Returns the values of a column without dictionary encoding and in the Arrow types that functions expect."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    if pa.types.is_large_binary(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.binary())
    if pa.types.is_decimal(column.type) and not pa.types.is_decimal128(column.type):
        return column.cast(pa.decimal128(min(38, column.type.precision), column.type.scale))
    return column


def _number(text: str) -> pa.Scalar:
    """Returns the value of a number in SQL text: a BIGINT, a DECIMAL with the digits of the text, or a DOUBLE if the
    text has an exponent.
    """
    if "e" in text.lower():
        number_or_infinite = float(text)
        if math.isinf(number_or_infinite):
            raise _refused(f"{text[:40]} is larger than every DOUBLE")
        return pa.scalar(number_or_infinite, pa.float64())
    number = Decimal(text)
    if "." not in text and -(1 << 63) <= number < 1 << 63:
        return pa.scalar(int(number), pa.int32() if -(1 << 31) <= number < 1 << 31 else pa.int64())
    digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
    scale = -int(exponent)
    if max(len(digits), scale) > 38:
        raise _refused(f"{text} has more than 38 digits")
    return pa.scalar(number, pa.decimal128(max(1, len(digits), scale), scale))


def _type_of(node: Any, context: Context) -> DataType:
    name = node.to.this.value if hasattr(node.to.this, "value") else str(node.to.this)
    name = "TIMESTAMP_LTZ" if name == "TIMESTAMPTZ" and context.has_instants else _TYPE_NAMES.get(name, name)
    params = ", ".join(p.sql(DIALECT) for p in node.to.expressions)
    text = f"{name}({params})" if params else name
    try:
        return parse_type_text(text)
    except CorruptFileError as e:
        raise _refused(f"{node.sql(DIALECT)!r}: type {text} is not supported") from e


def _refused(why: str) -> OptionError:
    return OptionError(why, key="expression")
