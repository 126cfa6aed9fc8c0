"""Parses the list of columns of a SELECT: which columns stay unchanged, and which are computed."""

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.expression import SqlExpression
from bucketline.state.sql.compute.functions import FUNCTIONS, function_call
from bucketline.state.sql.compute.parsing import parse_value
from bucketline.state.sql.compute.times import NOW
from bucketline.state.sql.dialect import DIALECT, reason_of


@dataclass(frozen=True, slots=True)
class SelectedColumns:
    """The columns of a SELECT list. If `has_star` is true, the list has all columns of the rows, unchanged, except the
    columns in `left_out`. `items` are the columns that are computed: the name of each column, and its expression.
    """

    has_star: bool = True
    left_out: tuple[str, ...] = ()
    items: tuple[tuple[str, SqlExpression], ...] = ()


ALL_COLUMNS = SelectedColumns()


def parse_selection(text: str, key: str = "select") -> SelectedColumns:
    """Parses a list such as `* EXCEPT (a), lower(b) AS b`. Raises OptionError, which names the part that is not
    supported.
    """
    try:
        trees = sqlglot.parse(f"SELECT {text}", read=DIALECT)
    except SqlglotError as e:
        raise OptionError(f"{key}: {text!r} is no list of columns: {reason_of(e)}", key=key) from e
    except RecursionError as e:
        raise OptionError(f"{key}: an expression is nested too deeply", key=key) from e
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Select) or not tree.expressions:
        raise OptionError(f"{key}: {text!r} is no list of columns", key=key)
    other = next((name for name, value in tree.args.items() if value and name != "expressions"), None)
    if other is not None:
        raise OptionError(
            f'{key}: {other.upper().rstrip("_")} does not belong here; give columns, as in "*, lower(a) AS a"', key=key
        )
    stars = [node for node in tree.expressions if isinstance(node, exp.Star)]
    if len(stars) > 1:
        raise OptionError(f"{key}: * must not occur twice", key=key)
    items = [_item(node, key) for node in tree.expressions if not isinstance(node, exp.Star)]
    names = [name.lower() for name, _ in items]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"{key}: there are two columns {twice!r}", key=key, column=twice)
    return SelectedColumns(bool(stars), _left_out(stars[0], key) if stars else (), tuple(items))


def _left_out(star: exp.Expression, key: str) -> tuple[str, ...]:
    for name, said in star.args.items():
        if said and name != "except_":
            raise OptionError(f"{key}: {star.sql(DIALECT)} is not supported; use * EXCEPT (a, b)", key=key)
    return tuple(node.name for node in star.args.get("except_") or ())


def _item(node: exp.Expression, key: str) -> tuple[str, SqlExpression]:
    inner = node.unalias()
    if isinstance(node, exp.Alias):
        name = node.alias
    elif isinstance(inner, exp.Column | exp.Dot):
        name = inner.name
    else:
        raise OptionError(f"{key}: {inner.sql(DIALECT)} needs a name: add AS and the name of the column", key=key)
    return name, SqlExpression(inner.sql(DIALECT, identify=True))


def names_in(expression: SqlExpression) -> tuple[str, ...]:
    """Returns the names of the columns that an expression uses, each once. For a nested field, the name of its column
    is returned.
    """
    nodes = parse_value(expression.text).find_all(exp.Column)
    return tuple(dict.fromkeys(str(node.parts[0].name) for node in nodes))


def check_functions(expression: SqlExpression, key: str) -> None:
    """Raises OptionError, which names the function, if the expression calls an unknown function."""
    for node in parse_value(expression.text).walk():
        call = function_call(node)
        if call is not None and call.name not in FUNCTIONS:
            raise OptionError(f"{key}: function {call.name} is not supported", key=key, function=call.name)


def tells_time(expression: SqlExpression) -> str | None:
    """Returns the name of a function in the expression that returns the current time or date; None if the expression
    has no such function.
    """
    calls = (function_call(node) for node in parse_value(expression.text).walk())
    return next((call.name for call in calls if call is not None and call.name in NOW), None)
