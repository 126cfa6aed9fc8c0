"""Computes SQL expressions over whole columns: new values for rows that are updated, and conditions on several columns.

The dialect is Spark's. The module `rows` lists the supported kinds of nodes, and the module `functions` the supported
functions. Anything else is refused with an error that names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.sql.compute.calls import LOCAL_CONTEXT, Context
from bucketline.state.sql.compute.numbers import fitted
from bucketline.state.sql.compute.parsing import check_quoted_names, check_spelling, parse_value, quoted_texts
from bucketline.state.sql.compute.rows import ARROW_ERRORS, COMPARISONS, SOURCE, TARGET, NodeRows
from bucketline.state.sql.dialect import DIALECT
from bucketline.state.types.arrow import arrow_type
from bucketline.state.types.char_text import chars_of, padded
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import DataField
from bucketline.state.types.struct_fields import by_spelling


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """An SQL expression, which is computed for each row. `expr` creates it. `quoted` are strings that the user wrote in
    double quotes.
    """

    text: str
    quoted: tuple[str, ...] = ()


def expr(text: str) -> SqlExpression:
    """Returns an SQL expression that `Table.update` and `Table.merge` accept as a value: `bl.expr("amount * 2")`,
    `bl.expr("source.amount")`.

    Raises OptionError for a text that is no expression, or that had another meaning in the dialect of earlier releases.
    """
    check_spelling(text)
    parse_value(text)
    return SqlExpression(text, quoted_texts(text))


def evaluate(
    expression: SqlExpression, columns: Mapping[str, pa.Array], row_count: int, context: Context = LOCAL_CONTEXT
) -> pa.Array:
    """Returns the value of the expression in each row. `columns` are the table's columns by name; in a merge, the
    columns of the source have names such as `source.name`.

    Raises OptionError for an unknown column or SQL that is not supported. Raises SchemaMismatchError for a value that
    cannot be computed: if types cannot be combined, if a number overflows, or if a number is divided by zero.
    """
    if expression.quoted:
        check_quoted_names(expression.quoted, {name.removeprefix(f"{SOURCE}.") for name in columns})
    try:
        return NodeRows(columns, row_count, context).array(parse_value(expression.text))
    except ARROW_ERRORS as e:
        raise SchemaMismatchError(f"{expression.text!r} cannot be computed: {e}", expression=expression.text) from e
    except RecursionError as e:
        raise OptionError(f"{expression.text!r} is nested too deeply", key="expression") from e


def assigned(expression: SqlExpression, columns: Mapping[str, pa.Array], row_count: int, field: DataField) -> pa.Array:
    """Returns the value of the expression in each row, converted to the type of the column `field`. Decimals are
    rounded, and fields of structs are matched by name.

    Raises the errors of `evaluate`, and SchemaMismatchError for a value that the column's type cannot hold.
    """
    values = evaluate(expression, columns, row_count)
    if not field.type.is_atomic:
        return fit_array(values, field.type.as_nullable(), arrow_type(field.type), field.name, by_spelling)
    try:
        return fitted(values, field.type)
    except ARROW_ERRORS as e:
        raise SchemaMismatchError(
            f"{expression.text!r} gives a value that column {field.name!r} {field.type} cannot hold: {e}",
            column=field.name,
            expected=str(field.type),
        ) from e


def condition(expression: SqlExpression, columns: Mapping[str, pa.Array], row_count: int) -> pa.Array:
    """Returns a mask of the rows for which the condition is true. A row for which the result is null is not in the
    mask. Raises the errors of `evaluate`.
    """
    values = evaluate(expression, columns, row_count)
    if pa.types.is_null(values.type):
        return pa.array(np.zeros(row_count, bool))
    if not pa.types.is_boolean(values.type):
        raise OptionError(
            f"{expression.text!r} is {values.type}, not a condition; write a comparison", key="expression"
        )
    return values.fill_null(False)


def with_blanks(expression: SqlExpression, fields: Sequence[DataField]) -> SqlExpression:
    """Returns the expression with changed literals: a string that is compared with a CHAR column is filled up with
    spaces.
    """
    chars = chars_of(fields)
    if not chars:
        return expression
    tree = parse_value(expression.text).copy()
    for node in tree.find_all(*COMPARISONS, exp.In, exp.Between):
        parts = [n for part in node.args.values() for n in (part if isinstance(part, list) else [part])]
        column = next((n for n in parts if isinstance(n, exp.Column) and n.name in chars and n.table != SOURCE), None)
        for part in parts:
            if column is not None and isinstance(part, exp.Literal) and part.is_string:
                part.set("this", padded(part.this, chars[column.name]))
    return replace(expression, text=tree.sql(DIALECT))


__all__ = ["SOURCE", "TARGET", "SqlExpression", "assigned", "condition", "evaluate", "expr", "with_blanks"]
