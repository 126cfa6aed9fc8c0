"""A SQL expression, computed over whole columns: values of rows that are updated, conditions over two columns.

Understood: columns (`source.c` and `target.c` in a merge), literals, + - * / %, ||, comparisons, AND OR NOT, IS NULL,
IN, BETWEEN, LIKE, CASE, CAST and the functions in `sql_functions`. Everything else is refused by name. Nulls are SQL's.
A branch of CASE is computed for its own rows alone, and the right side of AND and OR only where the left one does not
decide, so that both can avoid a division by zero. Text is quoted with ', odd names with ` or ".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.errors import CorruptFileError, SchemaMismatchError
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.char_text import chars_of, padded
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import DataField, DataType, parse_type_text
from bucketline.state.types.sql_functions import call_function, common_type, compared, is_function, to_common
from bucketline.state.types.sql_numbers import Value, arithmetic, cast_value, fitted, is_number, negated
from bucketline.state.types.struct_fields import by_spelling

_DIALECT = "sqlite"
SOURCE, TARGET = "source", "target"

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_TYPE_NAMES = {"TEXT": "STRING", "TIMESTAMPTZ": "TIMESTAMP_LTZ", "TIMESTAMPLTZ": "TIMESTAMP_LTZ", "INTEGER": "INT"}
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError)


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """SQL text that is computed for each row; made by `expr`."""

    text: str


def expr(text: str) -> SqlExpression:
    """A value in SQL for `Table.update` and `Table.merge`: `bl.expr("amount * 2")`, `bl.expr("source.amount")`.

    Raises OptionError for text that is no expression.
    """
    _parse(text)
    return SqlExpression(text)


def evaluate(expression: SqlExpression, columns: Mapping[str, pa.Array], row_count: int) -> pa.Array:
    """The value of each row. `columns` are the table's by name, those of a merge's source as `source.name`.

    Raises OptionError for a column that is unknown or SQL that is not understood, SchemaMismatchError for a value that
    cannot be computed: types that do not go together, overflow, division by zero.
    """
    try:
        return _Rows(columns, row_count).array(_parse(expression.text))
    except _ARROW_ERRORS as e:
        raise SchemaMismatchError(f"{expression.text!r} cannot be computed: {e}", expression=expression.text) from e
    except RecursionError as e:
        raise _refused(f"{expression.text!r} is nested too deeply") from e


def assigned(expression: SqlExpression, columns: Mapping[str, pa.Array], row_count: int, field: DataField) -> pa.Array:
    """The value of each row as the column stores it: decimals are rounded, fields of structs are matched by name.

    Raises as `evaluate`; also for a value that the column's type cannot hold.
    """
    values = evaluate(expression, columns, row_count)
    if not field.type.is_atomic:
        return fit_array(values, field.type.as_nullable(), arrow_type(field.type), field.name, by_spelling)
    try:
        return fitted(values, field.type)
    except _ARROW_ERRORS as e:
        raise SchemaMismatchError(
            f"{expression.text!r} gives a value that column {field.name!r} {field.type} cannot hold: {e}",
            column=field.name,
            expected=str(field.type),
        ) from e


def condition(expression: SqlExpression, columns: Mapping[str, pa.Array], row_count: int) -> pa.Array:
    """For each row whether the condition is true; unknown is false. Raises as `evaluate`."""
    values = evaluate(expression, columns, row_count)
    if pa.types.is_null(values.type):
        return pa.array(np.zeros(row_count, bool))
    if not pa.types.is_boolean(values.type):
        raise _refused(f"{expression.text!r} is {values.type}, not a condition")
    return values.fill_null(False)


def with_blanks(expression: SqlExpression, fields: Sequence[DataField]) -> SqlExpression:
    """The expression, with the blanks of a CHAR in each text that a column of the table is compared with."""
    chars = chars_of(fields)
    if not chars:
        return expression
    tree = _parse(expression.text)
    for node in tree.find_all(*_COMPARISONS, exp.In, exp.Between):
        parts = [n for part in node.args.values() for n in (part if isinstance(part, list) else [part])]
        column = next((n for n in parts if isinstance(n, exp.Column) and n.name in chars and n.table != SOURCE), None)
        for part in parts:
            if column is not None and isinstance(part, exp.Literal) and part.is_string:
                part.set("this", padded(part.this, chars[column.name]))
    return SqlExpression(tree.sql(_DIALECT))


def _parse(text: str) -> Any:
    try:
        statements = sqlglot.parse(f"SELECT {text}", read=_DIALECT)
    except SqlglotError as e:
        raise _refused(f"{text!r} is no SQL expression: {str(e).splitlines()[0]}") from e
    except RecursionError as e:
        raise _refused("the expression is nested too deeply") from e
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1:
        raise _refused(f"{text!r} is no single SQL expression")
    if any(value for key, value in select.args.items() if key != "expressions"):
        raise _refused(f"{text!r} is a query; give one expression, as in: amount * 2")
    node = select.expressions[0]
    if isinstance(node, exp.Alias | exp.Star):
        raise _refused(f"{text!r}: give one expression, as in: amount * 2")
    return node


class _Rows:
    """Rows over which nodes are computed."""

    def __init__(self, columns: Mapping[str, pa.Array], row_count: int) -> None:
        self._columns, self._count = columns, row_count

    def array(self, node: Any) -> pa.Array:
        """The node's value of each row."""
        value = self.value(node)
        return pa.repeat(value, self._count) if isinstance(value, pa.Scalar) else value

    def value(self, node: Any) -> Value:
        """The node's values; one value where it is the same in all rows."""
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        if type(node) in _COMPARISONS:
            return compared(_COMPARISONS[type(node)], self.value(node.this), self.value(node.expression))
        compute = _NODES.get(type(node))
        if compute is not None:
            return compute(self, node)
        if is_function(node):
            return call_function(node, self.value)
        raise _refused(f"{_name_of(node)} in {node.sql(_DIALECT)!r} is not supported")

    def _arithmetic(self, node: Any) -> Value:
        left, right = self.value(node.this), self.value(node.expression)
        if pa.types.is_null(left.type) or pa.types.is_null(right.type):
            return pa.scalar(None)
        for side in (left, right):
            if not is_number(side.type):
                raise pa.ArrowTypeError(
                    f"{node.sql(_DIALECT)!r} computes with {side.type}; use CAST to make it a number"
                )
        return arithmetic(_ARITHMETIC[type(node)], left, right)

    def _negation(self, node: Any) -> Value:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number(f"-{node.this.this}")
        value = self.value(node.this)
        if not is_number(value.type):
            raise pa.ArrowTypeError(f"{node.sql(_DIALECT)!r} is the negative of {value.type}")
        return negated(value)

    def _column(self, node: Any) -> Value:
        side, name = node.table, node.name
        if node.args.get("db") or side not in ("", SOURCE, TARGET):
            raise _refused(f"{node.sql(_DIALECT)!r}: fields inside columns are not supported; quote odd names with `")
        known = f"{SOURCE}.{name}" if side == SOURCE else name
        if known in self._columns:
            return _plain(self._columns[known])
        if side == SOURCE and not any(c.startswith(f"{SOURCE}.") for c in self._columns):
            raise OptionError(f"{node.sql(_DIALECT)!r}: only a merge has a source", key="expression", column=known)
        near = did_you_mean(known, self._columns) or f"; there are {', '.join(self._columns)}"
        raise OptionError(f"unknown column '{known}'{near}", key="expression", column=known)

    def _literal(self, node: Any) -> Value:
        return pa.scalar(str(node.this)) if node.is_string else _number(node.this)

    def _logical(self, node: Any) -> Value:
        joined, decides = (pc.and_kleene, False) if isinstance(node, exp.And) else (pc.or_kleene, True)
        left = self.truth(node.this)
        try:
            return joined(left, self.truth(node.expression))
        except _ARROW_ERRORS:
            # As in `a <> 0 AND 1 / a > 2`: where the left side decides, the right one is not computed.
            decided = pc.fill_null(pc.equal(left, decides), False)
            is_decided = np.asarray(pa.repeat(decided, self._count) if isinstance(decided, pa.Scalar) else decided)
            if not is_decided.any():
                raise
        right = self._at(np.flatnonzero(~is_decided)).truth(node.expression)
        if isinstance(right, pa.Array):
            right = right.take(pa.array(np.cumsum(~is_decided) - 1, mask=is_decided))
        return joined(left, right)

    def truth(self, node: Any) -> Value:
        """As `value`, of a condition."""
        value = self.value(node)
        if pa.types.is_null(value.type):
            return pa.scalar(None, pa.bool_())
        if not pa.types.is_boolean(value.type):
            raise pa.ArrowTypeError(f"{node.sql(_DIALECT)!r} is {value.type}, not a condition")
        return value

    def _is(self, node: Any) -> Value:
        value, other = self.value(node.this), node.expression
        if isinstance(other, exp.Null):
            return pc.is_null(value)
        if isinstance(other, exp.Boolean):
            return pc.fill_null(pc.equal(self.truth(node.this), bool(other.this)), False)
        raise _refused(f"{node.sql(_DIALECT)!r} is not supported; use IS NULL, IS TRUE or IS FALSE")

    def _same(self, node: Any) -> Value:
        left, right = self.value(node.this), self.value(node.expression)
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(both, pc.fill_null(compared("=", left, right), False))

    def _membership(self, node: Any) -> Value:
        if not node.expressions:
            raise _refused(f"{node.sql(_DIALECT)!r}: IN needs a list of values")
        value = self.value(node.this)
        return reduce(pc.or_kleene, [compared("=", value, self.value(e)) for e in node.expressions])

    def _range(self, node: Any) -> Value:
        value = self.value(node.this)
        low, high = self.value(node.args["low"]), self.value(node.args["high"])
        return pc.and_kleene(compared(">=", value, low), compared("<=", value, high))

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
        target = common_type([v.type for v in results])
        together = pa.concat_arrays([to_common(v, target) for v in results])
        return together.take(pa.array(np.argsort(np.concatenate(places), kind="stable")))

    def _at(self, rows: np.ndarray) -> "_Rows":
        if len(rows) == self._count:
            return self
        chosen = pa.array(rows)
        return _Rows(_Taken(self._columns, chosen), len(rows))

    def _cast(self, node: Any) -> Value:
        wanted = _type_of(node)
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            return _typed_literal(str(node.this.this), wanted)
        return cast_value(self.array(node.this), wanted)


class _Taken(Mapping[str, pa.Array]):
    """Columns of chosen rows, each taken when it is asked for."""

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


_NODES: dict[type[Any], Callable[[_Rows, Any], Value]] = {
    exp.Paren: lambda rows, node: rows.value(node.this),
    exp.Neg: _Rows._negation,
    exp.Column: _Rows._column,
    exp.Literal: _Rows._literal,
    exp.Boolean: lambda rows, node: pa.scalar(bool(node.this)),
    exp.Null: lambda rows, node: pa.scalar(None),
    exp.HexString: lambda rows, node: pa.scalar(bytes.fromhex(node.this), pa.binary()),
    exp.And: _Rows._logical,
    exp.Or: _Rows._logical,
    exp.Not: lambda rows, node: pc.invert(rows.truth(node.this)),
    exp.Is: _Rows._is,
    exp.NullSafeEQ: _Rows._same,
    exp.NullSafeNEQ: lambda rows, node: pc.invert(rows._same(node)),
    exp.In: _Rows._membership,
    exp.Between: _Rows._range,
    exp.Case: _Rows._case,
    exp.If: _Rows._if,
    exp.Cast: _Rows._cast,
}


def _plain(column: pa.Array) -> pa.Array:
    """The values in the one layout that functions take; a source may bring others."""
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
    """A literal: BIGINT, DECIMAL with its digits, DOUBLE where it has an exponent."""
    if "e" in text.lower():
        return pa.scalar(float(text), pa.float64())
    number = Decimal(text)
    if "." not in text and -(1 << 63) <= number < 1 << 63:
        return pa.scalar(int(number), pa.int64())
    digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
    scale = -int(exponent)
    if max(len(digits), scale) > 38:
        raise _refused(f"{text} has more than 38 digits")
    return pa.scalar(number, pa.decimal128(max(1, len(digits), scale), scale))


def _typed_literal(text: str, wanted: DataType) -> Value:
    """DATE '2024-12-31' and its like, CAST('x' AS type)."""
    try:
        if wanted.root.value == "DATE":
            return pa.scalar(date.fromisoformat(text), pa.date32())
        if wanted.root.value == "TIME":
            return pa.scalar(time.fromisoformat(text), pa.time32("ms"))
    except ValueError as e:
        raise pa.ArrowInvalid(f"'{text}' is no {wanted}") from e
    return cast_value(pa.array([text]), wanted)[0]


def _type_of(node: Any) -> DataType:
    name = node.to.this.value if hasattr(node.to.this, "value") else str(node.to.this)
    name = _TYPE_NAMES.get(name, name)
    params = ", ".join(p.sql(_DIALECT) for p in node.to.expressions)
    text = f"{name}({params})" if params else name
    try:
        return parse_type_text(text)
    except CorruptFileError as e:
        raise _refused(f"{node.sql(_DIALECT)!r}: type {text} is not supported") from e


def _name_of(node: Any) -> str:
    return str(node.this).upper() if isinstance(node, exp.Anonymous) else type(node).__name__.upper()


def _refused(why: str) -> OptionError:
    return OptionError(why, key="expression")
