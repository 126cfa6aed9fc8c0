"""Translates a condition in SQL to an Arrow expression over a table's columns.

Supported are AND, OR, NOT, comparisons of a column with a literal, IN, BETWEEN, IS [NOT] NULL, LIKE, and a BOOLEAN
column alone. Literals are converted exactly to the column's type: a number is never rounded to fit. Anything else is
refused with an error that names it, and never ignored.

Nulls are handled as in SQL: the expression is true exactly if the condition is true. For this, NOT is moved inwards,
because Arrow's own functions return false where SQL's result is unknown. As in Spark and Paimon, NaN equals itself and
is greater than every number. The literal for NaN is CAST('NaN' AS DOUBLE); 'Infinity' and '-Infinity' are written in
the same way.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.sql.compute.like import match_like
from bucketline.state.sql.dialect import DIALECT
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.char_text import padded
from bucketline.state.types.logical import DataField, TypeRoot
from bucketline.state.types.timestamp_text import cast_text

_INTEGERS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
_EXACT = (*_INTEGERS, TypeRoot.DECIMAL)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_STAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_NOT_FINITE = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}
_LARGEST_EXPONENT = 400

_NOTHING = pc.scalar(False)
_OPERATORS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MEMBERS: dict[type, frozenset[str]] = {
    exp.In: frozenset({"this", "expressions"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.Column: frozenset({"this"}),
    exp.Cast: frozenset({"this", "to"}),
}
"""The parts that nodes of some kinds may have. A node of any other kind may have `this` and `expression`."""


def translate_filter(node: exp.Expression, fields: Sequence[DataField]) -> pc.Expression:
    """Returns the condition as an Arrow expression on the columns `fields`.

    Raises OptionError, which names the unknown column, the literal that does not fit, or the SQL that is not supported
    here. The module `expression` may be able to compute such SQL.
    """
    try:
        return _Translator({f.name: f for f in fields}).translate(node, wanted=True)
    except RecursionError as e:
        raise _refused("the condition is nested too deeply") from e


def literal_scalar(field: DataField, node: exp.Expression) -> pa.Scalar:
    """Returns a literal as a value of the column's type, without rounding. NULL becomes null. Raises OptionError if the
    node is no literal, or if the type cannot hold the value of the literal.
    """
    if isinstance(node, exp.Null):
        return pa.scalar(None, arrow_type(field.type))
    value = _exact_value(field, node)
    if value is None:
        raise _no_value(field, node, f"a value of {field.type}, without rounding")
    return value


def untyped_scalar(node: exp.Expression) -> pa.Scalar | None:
    """Returns the value of a literal (a string, true, false, NULL, a number, a date or a time), or None if the node is
    no literal. A whole number becomes an INT or BIGINT, and another number a DECIMAL.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return pa.scalar(None)
    if isinstance(node, exp.Boolean):
        return pa.scalar(bool(node.this))
    if isinstance(node, exp.Literal) and node.is_string:
        return pa.scalar(str(node.this))
    if isinstance(node, exp.HexString):
        return pa.scalar(bytes.fromhex(node.this))
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        if node.to.is_type("date"):
            return pa.scalar(str(node.this.this)).cast(pa.date32())
        is_time = node.to.is_type("timestamp", "timestamptz", "timestampltz", "timestampntz")
        return pa.scalar(str(node.this.this)).cast(pa.timestamp("us")) if is_time else None
    is_negative = isinstance(node, exp.Neg)
    inner = node.this if is_negative else node
    if not isinstance(inner, exp.Literal) or inner.is_string:
        return None
    try:
        number = Decimal(inner.this)
    except InvalidOperation:
        return None
    number = number.copy_negate() if is_negative else number
    if "." in inner.this or "e" in inner.this.lower():
        return pa.scalar(float(number)) if "e" in inner.this.lower() else pa.scalar(number)
    if not -(2**63) <= number < 2**63:
        return pa.scalar(number)
    return pa.scalar(int(number), pa.int32() if abs(number) < 2**31 else pa.int64())


class _Translator:
    def __init__(self, fields: Mapping[str, DataField]) -> None:
        self._fields = fields

    def translate(self, node: exp.Expression, *, wanted: bool) -> pc.Expression:
        """Translates a condition of SQL to Arrow. If `wanted` is true, the result is true for exactly the rows for
        which the condition is true. If `wanted` is false, the result is true for exactly the rows for which the
        condition is false.
        """
        _check_members(node)
        if isinstance(node, exp.Paren):
            return self.translate(node.this, wanted=wanted)
        if isinstance(node, exp.Not):
            return self.translate(node.this, wanted=not wanted)
        if isinstance(node, exp.And | exp.Or):
            parts = [self.translate(part, wanted=wanted) for part in _parts(node, type(node))]
            return _joined(operator.and_ if isinstance(node, exp.And) is wanted else operator.or_, parts)
        if type(node) in _COMPARISONS:
            return self._comparison(node, wanted=wanted)
        if isinstance(node, exp.In):
            return self._membership(node, wanted=wanted)
        if isinstance(node, exp.Between):
            return self._range(node, wanted=wanted)
        if isinstance(node, exp.Is):
            return self._is(node, wanted=wanted)
        if isinstance(node, exp.Like | exp.Escape):
            return self._like(node, wanted=wanted)
        if isinstance(node, exp.Boolean):
            return pc.scalar(node.this is wanted)
        if isinstance(node, exp.Column):
            field = self._column(node)
            if field.type.root is TypeRoot.BOOLEAN:
                return pc.field(field.name) == wanted
            raise _refused(f"column '{field.name}' is {field.type}, not a condition; compare it with a value")
        raise _unsupported(node)

    def _comparison(self, node: exp.Expression, *, wanted: bool) -> pc.Expression:
        sign = _COMPARISONS[type(node)]
        left, right = node.this, node.expression
        if not isinstance(left, exp.Column) and isinstance(right, exp.Column):
            left, right, sign = right, left, _MIRRORED[sign]
        if isinstance(right, exp.Column):
            raise _refused(
                f"{node.sql(DIALECT)!r} compares two columns, which is not supported; write strings in single quotes"
            )
        return _compare(self._column(left), sign if wanted else _OPPOSITE[sign], right)

    def _membership(self, node: exp.In, *, wanted: bool) -> pc.Expression:
        field = self._column(node.this)
        literals = [e for e in node.expressions if not isinstance(e, exp.Null)]
        if not node.expressions:
            raise _refused(f"{node.sql(DIALECT)!r}: IN needs a list of literals")
        if not wanted and len(literals) < len(node.expressions):
            return _NOTHING  # NOT IN is never true for a list with a null.
        values = [v for e in literals if (v := _exact_value(field, e)) is not None and not _is_beyond(field, e, v)]
        if field.type.root in _FLOATS and any(v.as_py() == 0 for v in values):
            # In lists, Arrow treats 0.0 and -0.0 as different values; in comparisons they are equal.
            values += [pa.scalar(zero, arrow_type(field.type)) for zero in (0.0, -0.0)]
        is_member = pc.field(field.name).isin(pa.array(values, arrow_type(field.type)))
        return is_member if wanted else pc.field(field.name).is_valid() & ~is_member

    def _range(self, node: exp.Between, *, wanted: bool) -> pc.Expression:
        field, low, high = self._column(node.this), node.args["low"], node.args["high"]
        if wanted:
            return _compare(field, ">=", low) & _compare(field, "<=", high)
        return _compare(field, "<", low) | _compare(field, ">", high)

    def _is(self, node: exp.Is, *, wanted: bool) -> pc.Expression:
        column = pc.field(self._column(node.this).name)
        if isinstance(node.expression, exp.Null):
            return column.is_null() if wanted else column.is_valid()
        if isinstance(node.expression, exp.Boolean) and self._column(node.this).type.root is TypeRoot.BOOLEAN:
            value = bool(node.expression.this)
            return column == value if wanted else (column != value) | column.is_null()
        raise _unsupported(node)

    def _like(self, node: exp.Expression, *, wanted: bool) -> pc.Expression:
        escape = "\\"
        if isinstance(node, exp.Escape):
            escape, node = _text(node.expression), node.this
            if len(escape) != 1 or type(node) is not exp.Like:
                raise _refused("ESCAPE takes one character, after LIKE 'pattern'")
            _check_members(node)
        if type(node) is not exp.Like:
            raise _unsupported(node)
        field = self._column(node.this)
        if field.type.root not in _TEXTS:
            raise _refused(f"LIKE needs a string column, but '{field.name}' is {field.type}")
        matches = match_like(pc.field(field.name), _text(node.expression), escape)
        return matches if wanted is not bool(node.args.get("negate")) else ~matches

    def _column(self, node: exp.Expression) -> DataField:
        if not isinstance(node, exp.Column):
            raise _refused(f"{node.sql(DIALECT)!r}: one side must be a column and the other a literal")
        _check_members(node)
        field = self._fields.get(node.name)
        if field is None:
            others = [f for f in self._fields.values() if f.name.lower() == node.name.lower()]
            field = others[0] if len(others) == 1 else None
        if field is None:
            near = did_you_mean(node.name, self._fields)
            known = near or f"; the table has {', '.join(self._fields)}"
            raise OptionError(f"unknown column '{node.name}'{known}", key="filter", column=node.name)
        return field


def _compare(field: DataField, sign: str, node: exp.Expression) -> pc.Expression:
    """Returns the condition `column sign literal`, which is null if the column is null."""
    root, column = field.type.root, pc.field(field.name)
    if isinstance(node, exp.Null):
        raise _refused(f"nothing equals NULL; use '{field.name}' IS NULL or IS NOT NULL")
    if root in _EXACT:
        return _compare_exact(field, sign, _number(field, node))
    value = _value(field, node)
    if root in _FLOATS and math.isnan(value.as_py()):
        return _compare_nan(column, sign)
    if _is_beyond(field, node, value):
        return _compare_beyond(column, sign, value)
    holds = _OPERATORS[sign](column, value)
    return holds | pc.is_nan(column) if root in _FLOATS and sign in (">", ">=") else holds


def _compare_nan(column: pc.Expression, sign: str) -> pc.Expression:
    """Returns the condition `column sign NaN`."""
    if sign in (">", "<="):
        return _NOTHING if sign == ">" else column.is_valid()
    return pc.is_nan(column) if sign in ("=", ">=") else ~pc.is_nan(column)


def _is_beyond(field: DataField, node: exp.Expression, value: pa.Scalar) -> bool:
    """Returns True if `node` is a finite number that is too large or too small for a FLOAT or DOUBLE column. `value`
    is the number in the column's type; it is then infinite.
    """
    return field.type.root in _FLOATS and math.isinf(value.as_py()) and not isinstance(node, exp.Cast)


def _compare_beyond(column: pc.Expression, sign: str, infinite: pa.Scalar) -> pc.Expression:
    """Returns the condition `column sign number` for a number that is larger or smaller than all finite values of the
    column's type. `infinite` is infinity if the number is larger, and minus infinity if the number is smaller.
    """
    if sign in ("=", "<>"):
        return _NOTHING if sign == "=" else column.is_valid()
    if infinite.as_py() > 0:
        return column < infinite if sign in ("<", "<=") else (column == infinite) | pc.is_nan(column)
    return column == infinite if sign in ("<", "<=") else (column > infinite) | pc.is_nan(column)


def _compare_exact(field: DataField, sign: str, number: Decimal) -> pc.Expression:
    """Returns the condition `column sign number`. The number may also be between two values of the column's type, or
    outside the range of the type.
    """
    column = pc.field(field.name)
    digits, low, high = _bounds(field)
    units = _shifted(number, digits)
    floor = units.to_integral_value("ROUND_FLOOR")
    if low <= floor <= high:
        if floor != units:
            if sign in ("=", "<>"):
                return _NOTHING if sign == "=" else column.is_valid()
            sign = ">" if sign in (">", ">=") else "<="
        return _OPERATORS[sign](column, _scaled(field, int(floor)))
    holds = sign == "<>" or (sign in ("<", "<=")) == (floor > high)
    return column.is_valid() if holds and sign != "=" else _NOTHING


def _exact_value(field: DataField, node: exp.Expression) -> pa.Scalar | None:
    """Returns the literal as a value of the column's type; None if the type cannot hold this number exactly."""
    if field.type.root not in _EXACT:
        return _value(field, node)
    digits, low, high = _bounds(field)
    number = _shifted(_number(field, node), digits)
    if number != number.to_integral_value() or not low <= number <= high:
        return None
    return _scaled(field, int(number))


def _bounds(field: DataField) -> tuple[int, int, int]:
    """Returns the number of digits that the column has after the point, and its smallest and largest value in units of
    the last digit.
    """
    if field.type.root is TypeRoot.DECIMAL:
        assert field.type.precision is not None and field.type.scale is not None
        greatest = 10**field.type.precision - 1
        return field.type.scale, -greatest, greatest
    half = 1 << (_INTEGERS[field.type.root] - 1)
    return 0, -half, half - 1


def _scaled(field: DataField, units: int) -> pa.Scalar:
    """Returns `units` units of the last digit as a value of the column's type; for DECIMAL(5, 2), 123 gives 1.23."""
    if field.type.root is TypeRoot.DECIMAL:
        sign, digits = int(units < 0), tuple(map(int, str(abs(units))))
        return pa.scalar(Decimal((sign, digits, -(field.type.scale or 0))), arrow_type(field.type))
    return pa.scalar(units, arrow_type(field.type))


def _shifted(number: Decimal, places: int) -> Decimal:
    """Returns the finite number with its point moved to the right by `places` digits. A multiplication would round the
    number to 28 digits.
    """
    sign, digits, exponent = number.as_tuple()
    return Decimal((sign, digits, int(exponent) + places))


def _number(field: DataField, node: exp.Expression) -> Decimal:
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if not isinstance(node, exp.Literal) or node.is_string:
        raise _no_value(field, node, "a number")
    try:
        number = Decimal(node.this)
    except InvalidOperation as e:
        raise _no_value(field, node, "a number") from e
    if not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise _no_value(field, node, "a number")
    return number.copy_negate() if sign < 0 else number


def _value(field: DataField, node: exp.Expression) -> pa.Scalar:
    """Returns the literal as a value of the column's type. Raises OptionError if the node is no literal, or if the type
    cannot hold the value of the literal.
    """
    root, target = field.type.root, arrow_type(field.type)
    while isinstance(node, exp.Paren):
        node = node.this
    if root is TypeRoot.BOOLEAN:
        if not isinstance(node, exp.Boolean):
            raise _no_value(field, node, "true or false")
        return pa.scalar(bool(node.this), target)
    if root in _FLOATS:
        number = _float(field, node)
        with np.errstate(over="ignore"):
            return pa.scalar(float(np.float32(number)) if root is TypeRoot.FLOAT else number, target)
    if root in _TEXTS:
        text = _plain_text(field, node, "a string such as 'x'")
        return pa.scalar(padded(text, field.type) if root is TypeRoot.CHAR else text, target)
    if root in _BYTES:
        if not isinstance(node, exp.HexString):
            raise _no_value(field, node, "bytes in hexadecimal digits such as X'0aff'")
        return pa.scalar(bytes.fromhex(node.this), target)
    if root is TypeRoot.DATE:
        return _dated(field, node, "a date such as '2024-12-31'", date.fromisoformat)
    if root is TypeRoot.TIME:
        return _dated(field, node, "a time such as '12:30:00'", time.fromisoformat)
    if root in _STAMPS:
        zone = root is TypeRoot.TIMESTAMP_LTZ
        example = (
            "a time with a zone such as '2024-12-31 12:30:00Z'" if zone else "a time such as '2024-12-31 12:30:00'"
        )
        text = _plain_text(field, node, example)
        try:
            return cast_text(text, target)
        except pa.ArrowInvalid as e:
            raise _no_value(field, node, f"{example}, {_reach(target)}") from e
    raise _refused(f"column '{field.name}' is {field.type}: only IS NULL and IS NOT NULL are supported on it")


def _reach(target: pa.TimestampType) -> str:
    """Returns a phrase for error messages that says which times a column of this type can hold."""
    years = " and of 1677-09-21 to 2262-04-11" if target.unit == "ns" else ""
    return f"no finer than {target.unit}{years}"


def _float(field: DataField, node: exp.Expression) -> float:
    is_text = isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string
    if not is_text or not node.to.is_type("double", "float"):
        return float(_number(field, node))
    _check_members(node)
    name = str(node.this.this).strip().lower()
    if name not in _NOT_FINITE:
        raise _no_value(field, node, "a number")
    return _NOT_FINITE[name]


def _dated(field: DataField, node: exp.Expression, example: str, read: Callable[[str], object]) -> pa.Scalar:
    text = _plain_text(field, node, example)
    try:
        return pa.scalar(read(text), arrow_type(field.type))
    except (ValueError, pa.ArrowException) as e:
        raise _no_value(field, node, example) from e


def _plain_text(field: DataField, node: exp.Expression, expected: str) -> str:
    """Returns the string in a literal such as 'x', DATE 'x' or TIMESTAMP 'x'. Raises OptionError, with `expected` in
    the message, for any other node.
    """
    if isinstance(node, exp.Cast) and field.type.root not in _TEXTS and isinstance(node.this, exp.Literal):
        _check_members(node)
        if node.to.is_type("date", "time", "timestamp", "timestamptz", "timestampltz", "timestampntz"):
            node = node.this
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise _no_value(field, node, expected)
    return str(node.this)


def _text(node: exp.Expression) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise _refused(f"{node.sql(DIALECT)!r}: expected a string such as 'a%'")
    return str(node.this)


def _parts(node: exp.Expression, kind: type[Any]) -> Iterator[exp.Expression]:
    """Yields the operands of a chain of ANDs or ORs, from left to right. The chain may have any length."""
    waiting: list[Any] = [node]
    while waiting:
        operand = waiting.pop()
        if isinstance(operand, kind):
            waiting += [operand.expression, operand.this]
        else:
            yield operand


def _joined(join: Callable[[Any, Any], pc.Expression], parts: Sequence[pc.Expression]) -> pc.Expression:
    """Combines all parts with AND or OR (`join`) in a balanced tree, because Arrow processes expressions
    recursively.
    """
    while len(parts) > 2:
        parts = [reduce(join, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return reduce(join, parts)


def _check_members(node: exp.Expression) -> None:
    """Raises OptionError if the node has a part that the translation does not support."""
    allowed = _MEMBERS.get(type(node), frozenset({"this", "expression"}))
    if any(value for key, value in node.args.items() if key not in allowed):
        if isinstance(node, exp.Column):
            raise _refused(
                f"{node.sql(DIALECT)!r}: fields inside columns are not supported; put a name with a dot in backticks"
            )
        raise _unsupported(node)


def _unsupported(node: exp.Expression) -> OptionError:
    return _refused(f"{type(node).__name__.upper()} in {node.sql(DIALECT)!r} is not supported")


def _no_value(field: DataField, node: exp.Expression, expected: str) -> OptionError:
    literal = node.sql(DIALECT)
    why = f"{literal} is no value of column '{field.name}' {field.type}: it takes {expected}"
    return OptionError(why, key="filter", literal=literal)


def _refused(why: str) -> OptionError:
    return OptionError(why, key="filter")
