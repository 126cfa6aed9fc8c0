"""Finds which columns and which rows of a table a query needs.

Spark does not tell a data source in Python what a query needs, so this module derives it from the text of the query.
The results are on the safe side. A column is left out only if its name does not occur in the query and nothing in the
query uses columns without naming them. A part of WHERE is passed on only if Spark and the reader always agree about it.
Spark computes the whole query in any case.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from sqlglot import exp

from bucketline.state.sql.dialect import quoted_column, sql_text, tokens_of
from bucketline.state.sql.queries import read_query
from bucketline.state.sql.statement import Query, Relation
from bucketline.state.types.columns_text import in_backticks
from bucketline.state.types.logical import DataField, TypeRoot

_DIGITS = {TypeRoot.TINYINT: 2, TypeRoot.SMALLINT: 4, TypeRoot.INT: 9, TypeRoot.BIGINT: 18}
"""The number of digits of whole numbers that each type can hold."""

_SMALL = (*_DIGITS, TypeRoot.BOOLEAN, TypeRoot.DATE, TypeRoot.FLOAT, TypeRoot.DOUBLE)
_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_KEEPS_LEFT = ("LEFT", "SEMI", "ANTI")
_BEFORE_STAR = ("SELECT", "DISTINCT", "ALL", ",")


def needed_columns(
    query: Query, relation: Relation, fields: Sequence[DataField], hidden: Sequence[DataField] = ()
) -> tuple[str, ...] | None:
    """Returns the columns of a table that the query may use, in the order of the table, and at least one column. None
    means all `fields`, without the `hidden` columns, which `*` does not include.
    """
    place = _table(query, relation)
    if place is None or _names_columns_otherwise(query.tree) or _has_star(place[1]):
        return None
    words = {token.text.lower() for token in tokens_of(query.text)}
    columns = [f for f in (*fields, *hidden) if f.name.lower() in words]
    if not columns:
        columns = [next((f for f in fields if f.type.root in _SMALL), fields[0])]
    names = tuple(f.name for f in columns)
    if names == tuple(f.name for f in fields) or any("," in n or n != n.strip() for n in names):
        return None
    return names


def star_beside(query: Query, hidden: Collection[str]) -> int | None:
    """Returns the position of `*` in a query that reads one table, and that also uses one of the `hidden` columns by
    name. Returns None for every other query. Spark would include a hidden column in `*` if the hidden column were read.
    """
    select, tokens = query.tree, tokens_of(query.text)
    names = {name.lower() for name in hidden}
    if len(query.relations) != 1 or not isinstance(select, exp.Select) or select.args.get("joins"):
        return None
    is_wanted = any(t.text.lower() in names for t in tokens) and any(map(_is_star, select.expressions))
    if not is_wanted or _table(query, query.relations[0]) is None:
        return None
    pairs = pairwise(tokens)
    stars = (star for before, star in pairs if star.text == "*" and before.text.upper() in _BEFORE_STAR)
    return int(next(stars).start)


def with_listed_columns(query: Query, star: int, fields: Sequence[DataField]) -> Query:
    """Returns the query with a list of the columns `fields` instead of the `*` at position `star`."""
    (relation,) = query.relations
    listed = ", ".join(in_backticks(f.name) for f in fields)
    again = read_query(f"{query.text[:star]}{listed}{query.text[star + 1 :]}")
    start, end = (at + len(listed) - 1 for at in (relation.start, relation.end))
    return replace(again, relations=(replace(relation, start=start, end=end),))


def _is_star(column: exp.Expression) -> bool:
    return isinstance(column, exp.Star) and not any(column.args.values())


def needed_rows(query: Query, relation: Relation, fields: Sequence[DataField]) -> str | None:
    """Returns a condition in SQL. All rows of the table that the query needs meet the condition. Returns None if no
    condition can be derived from the query.
    """
    place = _table(query, relation)
    if place is None or _names_columns_otherwise(query.tree):
        return None
    table, select = place
    where, joins = select.args.get("where"), select.args.get("joins") or []
    if where is None or select.args.get("laterals") or not _keeps_rows(table, joins):
        return None
    known = {f.name.lower(): f for f in fields}
    if len(known) < len(fields):
        return None
    alias = table.alias_or_name.lower()
    parts = [
        passed
        for part in _conjuncts(where.this)
        if (passed := _passed_on(part, known, alias, needs_alias=bool(joins))) is not None
    ]
    return " AND ".join(parts) if parts else None


def _table(query: Query, relation: Relation) -> tuple[exp.Table, exp.Select] | None:
    """Returns the node of a table in the tree, and the SELECT whose FROM or JOIN contains it; None if the table is at
    another position.
    """
    for table in query.tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or int(table.parts[0].meta.get("start", -1)) != relation.start:
            continue
        place = table.parent
        select = None if place is None else place.parent
        is_plain = isinstance(place, exp.From | exp.Join) and isinstance(select, exp.Select)
        alias = table.args.get("alias")
        has_names = isinstance(alias, exp.TableAlias) and bool(alias.columns)
        own = {key for key, value in table.args.items() if value} - {"this", "db", "catalog", "alias"}
        return (table, select) if is_plain and not has_names and not own else None
    return None


def _names_columns_otherwise(tree: exp.Expression) -> bool:
    """Returns True if a query may use columns without naming them, as in NATURAL JOIN, PIVOT, IDENTIFIER('...') and
    TRANSFORM.
    """
    if tree.find(exp.Pivot, exp.QueryTransform):
        return True
    for join in tree.find_all(exp.Join):
        if join.args.get("method"):
            return True
    return any(str(function.this).upper() == "IDENTIFIER" for function in tree.find_all(exp.Anonymous))


def _has_star(select: exp.Select) -> bool:
    """Returns True if this SELECT has a `*` that stands for all columns. The `*` in COUNT(*) does not count, because it
    stands for the rows.
    """
    for star in select.find_all(exp.Star):
        if star.find_ancestor(exp.Select) is select and not _counts_rows(star):
            return True
    return False


def _counts_rows(star: exp.Star) -> bool:
    return isinstance(star.parent, exp.Count)


def _keeps_rows(table: exp.Table, joins: Sequence[exp.Join]) -> bool:
    """Returns True if a condition on joined rows can also be applied to the rows of this table. The condition can be
    applied if no outer join adds rows with nulls for the table.
    """
    is_first = isinstance(table.parent, exp.From)
    for join in joins:
        words = {str(join.args.get(key) or "").upper() for key in ("side", "kind", "method")} - {"", "INNER", "CROSS"}
        if words - {"OUTER"} and not (is_first and words <= {*_KEEPS_LEFT, "OUTER"}):
            return False
        if "OUTER" in words and not words & set(_KEEPS_LEFT):
            return False
    return True


def _conjuncts(node: exp.Expression) -> Iterator[exp.Expression]:
    node = node.unnest()
    if isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _passed_on(node: exp.Expression, known: dict[str, DataField], alias: str, *, needs_alias: bool) -> str | None:
    """Returns `node`, a part of WHERE, as SQL text on this table only. Returns None unless the part compares a column
    of the table with literals of the column's type. `known` has the columns by name in lower case. `alias` is the alias
    or the name of the table; if `needs_alias` is true, a column must be written with the alias, as in `t.a`.
    """

    def field(operand: exp.Expression) -> DataField | None:
        if not isinstance(operand, exp.Column) or isinstance(operand.this, exp.Star) or operand.args.get("db"):
            return None
        if operand.table.lower() != alias and (operand.table or needs_alias):
            return None
        return known.get(operand.name.lower())

    if isinstance(node, _COMPARISONS):
        for column, literal in ((node.this, node.expression), (node.expression, node.this)):
            own = field(column)
            if own is not None and _is_of(literal, own):
                return _text(node, own)
        return None
    own = field(node.this) if isinstance(node.this, exp.Expression) else None
    if own is None:
        return None
    if isinstance(node, exp.In) and node.expressions and len(node.args["expressions"]) == len(node.expressions):
        others = any(value for key, value in node.args.items() if key not in ("this", "expressions"))
        return None if others or not all(_is_of(e, own) for e in node.expressions) else _text(node, own)
    if isinstance(node, exp.Between):
        ends = (node.args["low"], node.args["high"])
        return _text(node, own) if not node.args.get("symmetric") and all(_is_of(e, own) for e in ends) else None
    return None


def _is_of(node: exp.Expression, field: DataField) -> bool:
    """Returns True if a node is a literal of the column's type. Only whole numbers and strings are supported."""
    if field.type.root in _DIGITS:
        inner = node.this if isinstance(node, exp.Neg) else node
        is_number = isinstance(inner, exp.Literal) and not inner.is_string and inner.this.isdigit()
        return is_number and len(inner.this) <= _DIGITS[field.type.root]
    is_text = field.type.root is TypeRoot.VARCHAR
    return is_text and isinstance(node, exp.Literal) and bool(node.is_string) and "\\" not in node.this


def _text(node: exp.Expression, field: DataField) -> str:
    name = quoted_column(field.name)
    return f"({sql_text(node.transform(lambda part: name.copy() if isinstance(part, exp.Column) else part))})"
