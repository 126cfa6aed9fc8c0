"""Parses MERGE: converts the clauses of sqlglot's tree to a statement.

If a MERGE has several clauses of one kind, only the last may be without a condition. Source: Spark's MERGE INTO.
"""

from collections.abc import Sequence

from sqlglot import exp

from bucketline.state.sql.dialect import refused
from bucketline.state.sql.queries import assignments, only, read_query, target_of
from bucketline.state.sql.relations import Parsed, read_relations
from bucketline.state.sql.statement import Merge, MergeAction, Query, SetValues
from bucketline.state.sql.table_queries import without_table_queries
from bucketline.state.sql.words import Words

_KINDS = {"matched": "MATCHED", "not_matched": "NOT MATCHED", "by_source": "NOT MATCHED BY SOURCE"}
_TAKES = {"matched": ("update", "delete"), "not_matched": ("insert",), "by_source": ("update", "delete")}


def read_merge(text: str) -> Merge:
    """Parses MERGE INTO ... USING ... ON ... WHEN .... Raises OptionError for a statement that is not supported."""
    text = without_table_queries(text)
    words = Words(text)
    words.verb = "MERGE"
    words.expect("MERGE")
    if words.take("WITH", "SCHEMA", "EVOLUTION"):
        raise refused("MERGE WITH SCHEMA EVOLUTION is not supported; use ALTER TABLE ... ADD COLUMN first")
    if "WHEN" not in (words.peek(i) for i in range(len(words.tokens))):
        raise refused("MERGE: a WHEN clause is missing", statement="MERGE")
    parsed = read_relations(text)
    tree = parsed.tree
    if not isinstance(tree, exp.Merge):
        raise refused(
            "MERGE: the statement cannot be parsed; write MERGE INTO t USING s ON condition WHEN ...", statement="MERGE"
        )
    only(tree, "MERGE", "this", "using", "on", "whens")
    if not isinstance(tree.args.get("on"), exp.Expression):
        raise refused("MERGE: ON is missing", statement="MERGE")
    kinds: dict[str, list[MergeAction]] = {kind: [] for kind in _KINDS}
    for when in tree.args["whens"].expressions:
        only(when, "MERGE WHEN", "matched", "source", "condition", "then")
        kind = "matched" if when.args["matched"] else "by_source" if when.args.get("source") else "not_matched"
        kinds[kind].append(_action(kind, when, tree.this.alias_or_name))
    for kind, actions in kinds.items():
        if any(a.condition is None for a in actions[:-1]):
            raise refused(
                f"MERGE: of several WHEN {_KINDS[kind]} clauses only the last may be without AND condition",
                statement="MERGE",
            )
    source = tree.args["using"]
    query, columns = _source(text, parsed, source)
    return Merge(
        parsed.relation(tree.this),
        tree.this.alias_or_name,
        query,
        source.alias_or_name,
        columns,
        tree.args["on"],
        tuple(kinds["matched"]),
        tuple(kinds["not_matched"]),
        tuple(kinds["by_source"]),
    )


def _source(text: str, parsed: Parsed, source: exp.Expression) -> tuple[Query, tuple[str, ...]]:
    """Returns the query after USING, and the column names that follow the alias of the query, if any. After USING there
    is a table, or SELECT or VALUES in parentheses.
    """
    alias = source.args.get("alias")
    columns = tuple(c.name for c in alias.columns) if isinstance(alias, exp.TableAlias) else ()
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        only(source, "MERGE USING", "this", "db", "catalog", "alias")
        relation = parsed.relation(source)
        return read_query(f"SELECT * FROM {text[relation.start : relation.end]}"), columns
    if isinstance(source, exp.Subquery | exp.Values):
        only(source, "MERGE USING", "this", "expressions", "alias")
        return read_query(_in_brackets(text)), columns
    raise refused("MERGE: after USING there must be a table, a view or (SELECT ...)", statement="MERGE")


def _in_brackets(text: str) -> str:
    words = Words(text)
    words.verb = "MERGE"
    while not words.is_done and not words.sees("USING"):
        words.at += 1
    words.expect("USING")
    start, depth = words.tokens[words.at].start, 0
    while not words.is_done:
        depth += words.sees("(") - words.sees(")")
        words.at += 1
        if depth == 0:
            return text[start + 1 : words.tokens[words.at - 1].start]
    raise words.wrong("expected )")


def _action(kind: str, when: exp.Expression, alias: str) -> MergeAction:
    then, condition = when.args["then"], when.args.get("condition")
    verb, values = _verb_and_values(then, alias)
    if verb not in _TAKES[kind]:
        allowed = " or ".join(w.upper() for w in _TAKES[kind])
        raise refused(f"MERGE: WHEN {_KINDS[kind]} takes {allowed}, not {verb.upper()}", statement="MERGE")
    if kind == "by_source" and verb == "update" and values is None:
        raise refused("MERGE: UPDATE SET * needs a source row; WHEN NOT MATCHED BY SOURCE has none")
    return MergeAction(verb, values, condition)


def _verb_and_values(then: exp.Expression, alias: str) -> tuple[str, SetValues | Sequence[exp.Expression] | None]:
    if isinstance(then, exp.Update):
        expressions = then.args.get("expressions")
        if isinstance(expressions, exp.Star) or (
            isinstance(expressions, list) and [type(e) for e in expressions] == [exp.Star]
        ):
            return "update", None
        assigned = assignments(then.expressions, "MERGE")
        values = {target_of(e, alias): e.expression for e in assigned}
        if not values or len(values) < len(assigned):
            raise refused("MERGE: UPDATE SET needs column = value, with each column once, or *", statement="MERGE")
        return "update", values
    if isinstance(then, exp.Insert):
        return "insert", _inserted(then, alias)
    if isinstance(then, exp.Var) and then.name.upper() == "DELETE":
        return "delete", None
    raise refused(f"MERGE: THEN {then.sql()} is not supported; use UPDATE SET, DELETE or INSERT", statement="MERGE")


def _inserted(then: exp.Insert, alias: str) -> SetValues | Sequence[exp.Expression] | None:
    if isinstance(then.this, exp.Star):
        return None
    if then.this is None and isinstance(then.expression, exp.Tuple | exp.Paren):
        return tuple(then.expression.expressions) or (then.expression.this,)
    if not isinstance(then.this, exp.Tuple) or not isinstance(then.expression, exp.Tuple):
        raise refused("MERGE: INSERT needs *, or (columns) VALUES (values)", statement="MERGE")
    names = []
    for column in then.this.expressions:
        if not isinstance(column, exp.Column) or (column.table and column.table.lower() != alias.lower()):
            raise refused(
                f"MERGE: {column.sql()!r} is no column of the table into which rows are inserted", statement="MERGE"
            )
        names.append(column.name)
    values = then.expression.expressions
    if len(names) != len(values):
        raise refused(f"MERGE: INSERT has {len(names)} columns and {len(values)} values", statement="MERGE")
    if len({n.lower() for n in names}) < len(names):
        raise refused("MERGE: INSERT names a column twice", statement="MERGE")
    return {(name,): value for name, value in zip(names, values, strict=True)}
