"""SELECT, INSERT, UPDATE, DELETE, MERGE and TRUNCATE: sqlglot parses, and what it found becomes a statement."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from bucketline.state.sql.dialect import refused
from bucketline.state.sql.relations import Parsed, hints_between, read_relations
from bucketline.state.sql.statement import (
    Delete,
    Insert,
    Merge,
    MergeAction,
    Query,
    Relation,
    Statement,
    Truncate,
    Update,
)
from bucketline.state.sql.words import Words


def read_query(text: str) -> Query:
    """A SELECT, VALUES, or several joined by UNION and its like. Raises OptionError for anything else."""
    return _query(read_relations(text))


def _query(found: Parsed) -> Query:
    if not isinstance(found.tree, exp.Query | exp.Values):
        raise refused(f"{type(found.tree).__name__.upper()} is no query; SELECT and VALUES are")
    if isinstance(found.tree, exp.Select) and not found.tree.expressions:
        raise refused("SELECT needs columns, or *")
    if found.tree.args.get("into") is not None:
        raise refused("SELECT INTO is not supported; use CREATE TABLE ... AS SELECT or INSERT INTO")
    return Query(found.text, found.tree, found.relations)


def read_insert(words: Words) -> Insert:
    """`INSERT INTO t ...` and `INSERT OVERWRITE t ...`."""
    words.expect("INSERT")
    words.verb = "INSERT"
    overwrite = words.take("OVERWRITE")
    if not overwrite:
        words.expect("INTO")
    words.take("TABLE")
    start = words.tokens[words.at].start if not words.is_done else len(words.text)
    name = words.table()
    end = words.tokens[words.at - 1].end + 1
    options = _hints(words)
    partition: Mapping[str, str | None] = {}
    dynamic: tuple[str, ...] = ()
    if words.take("PARTITION"):
        partition, dynamic = read_partition(words)
        options |= _hints(words)
    by_name = words.take("BY", "NAME")
    columns = None
    if words.sees("(") and words.peek(1) not in ("SELECT", "WITH", "VALUES", "("):
        columns = words.names("a column")
        options |= _hints(words)
    if words.is_done:
        raise words.wrong("expected VALUES or SELECT")
    relation = Relation(name, start, end, options)
    return Insert(relation, columns, partition, dynamic, overwrite, by_name, read_query(words.rest()))


def read_partition(words: Words) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """`(dt = '1', hr)`: the values by column, and the columns without one."""
    given: dict[str, str | None] = {}
    dynamic: list[str] = []
    words.expect("(")
    while True:
        name = words.name("a partition column")
        if name in given or name in dynamic:
            raise refused(f"{words.verb}: partition column {name!r} is given twice", statement=words.verb)
        if words.take("="):
            given[name] = words.literal()
        else:
            dynamic.append(name)
        if words.take(")"):
            return given, tuple(dynamic)
        words.expect(",")


def read_truncate(words: Words) -> Truncate:
    """`TRUNCATE TABLE t`, of one partition or of all."""
    words.expect("TRUNCATE")
    words.verb = "TRUNCATE TABLE"
    words.expect("TABLE")
    name = words.table()
    partition: Mapping[str, str | None] | None = None
    if words.take("PARTITION"):
        partition, dynamic = read_partition(words)
        if dynamic:
            raise refused(f"TRUNCATE TABLE: partition column {dynamic[0]!r} has no value", statement=words.verb)
    words.end()
    return Truncate(name, partition)


def read_change(text: str) -> Statement:
    """UPDATE, DELETE or MERGE."""
    found = read_relations(text)
    match found.tree:
        case exp.Update():
            return _update(found, found.tree)
        case exp.Delete():
            return _delete(found, found.tree)
        case exp.Merge():
            return _merge(text, found, found.tree)
    raise refused(f"{type(found.tree).__name__.upper()} is not supported")


def _update(found: Parsed, tree: exp.Update) -> Update:
    _only(tree, "UPDATE", "this", "expressions", "where")
    values = {_target(e, tree.this.alias_or_name): e.expression for e in _assignments(tree.expressions, "UPDATE")}
    if len(values) < len(tree.expressions):
        raise refused("UPDATE: a column is set twice", statement="UPDATE")
    return Update(found.relation(tree.this), tree.this.alias_or_name, values, _condition(tree))


def _delete(found: Parsed, tree: exp.Delete) -> Delete:
    _only(tree, "DELETE", "this", "where")
    return Delete(found.relation(tree.this), tree.this.alias_or_name, _condition(tree))


def _merge(text: str, found: Parsed, tree: exp.Merge) -> Merge:
    _only(tree, "MERGE", "this", "using", "on", "whens")
    matched, not_matched = None, None
    for when in tree.args["whens"].expressions:
        if when.args.get("condition"):
            raise refused("MERGE: WHEN ... AND CONDITION is not supported; choose the rows in USING (SELECT ...)")
        _only(when, "MERGE WHEN", "matched", "source", "then")
        if when.args.get("source"):
            raise refused("MERGE: WHEN NOT MATCHED BY SOURCE is not supported; use DELETE or UPDATE after it")
        action = _action(when.args["then"], tree.this.alias_or_name)
        if (matched if when.args["matched"] else not_matched) is not None:
            raise refused("MERGE: give one WHEN MATCHED and one WHEN NOT MATCHED; conditions belong into the source")
        if when.args["matched"]:
            matched = action
        else:
            not_matched = action
    source = tree.args["using"]
    if not isinstance(source, exp.Table | exp.Subquery):
        raise refused("MERGE: USING takes a table or (SELECT ...)")
    return Merge(
        found.relation(tree.this),
        tree.this.alias_or_name,
        _merge_source(text),
        source.alias_or_name,
        tree.args["on"],
        matched,
        not_matched,
    )


def _merge_source(text: str) -> Query:
    """The query after USING: a table, or a SELECT in brackets."""
    words = Words(text)
    while not words.is_done and not words.sees("USING"):
        words.at += 1
    words.expect("USING")
    start = words.tokens[words.at].start
    if not words.sees("("):
        words.path("the name of a table")
        end = words.tokens[words.at].start if not words.is_done else len(text)
        return read_query(f"SELECT * FROM {text[start:end]}")
    depth = 0
    while not words.is_done:
        depth += words.sees("(") - words.sees(")")
        words.at += 1
        if depth == 0:
            return read_query(text[start + 1 : words.tokens[words.at - 1].start])
    raise words.wrong("expected )")


def _action(then: exp.Expression, alias: str) -> MergeAction:
    if isinstance(then, exp.Update):
        if (
            not then.expressions
            or isinstance(then.args["expressions"], exp.Star | exp.Var)
            or _is_star(then.expressions)
        ):
            return MergeAction("update")
        return MergeAction("update", {_target(e, alias): e.expression for e in _assignments(then.expressions, "MERGE")})
    if isinstance(then, exp.Insert):
        if then.expression is None or isinstance(then.this, exp.Star):
            return MergeAction("insert")
        names = [c.name for c in then.this.expressions]
        values = then.expression.expressions
        if len(names) != len(values):
            raise refused(f"MERGE: INSERT has {len(names)} columns and {len(values)} values")
        return MergeAction("insert", dict(zip(names, values, strict=True)))
    if getattr(then, "name", "").upper() == "DELETE":
        return MergeAction("delete")
    raise refused(f"MERGE: THEN {then.sql()} is not supported; UPDATE SET, DELETE and INSERT are")


def _is_star(found: Sequence[exp.Expression]) -> bool:
    return len(found) == 1 and isinstance(found[0], exp.Star)


def _assignments(found: Sequence[exp.Expression], verb: str) -> Sequence[exp.Expression]:
    for e in found:
        if not isinstance(e, exp.EQ) or not isinstance(e.this, exp.Column):
            raise refused(f"{verb}: SET takes column = value, not {e.sql()}", statement=verb)
    return found


def _target(assignment: exp.Expression, alias: str) -> str:
    """The column that an assignment sets."""
    column = assignment.this
    if column.table and column.table.lower() != alias.lower():
        raise refused(
            f"{column.sql()!r} cannot be set: it is no column of the table; fields inside columns are not set"
        )
    return str(column.name)


def _condition(tree: exp.Expression) -> exp.Expression | None:
    where = tree.args.get("where")
    return None if where is None else where.this


def _only(tree: exp.Expression, verb: str, *allowed: str) -> None:
    """Returns if a tree says nothing else. Raises OptionError naming the clause."""
    for key, value in tree.args.items():
        if value and key not in allowed:
            raise refused(f"{verb}: {key.upper().rstrip('_')} is not supported", statement=verb)


def _hints(words: Words) -> dict[str, str]:
    end = len(words.text) if words.is_done else words.tokens[words.at].start
    return hints_between(words.text, words.tokens[words.at - 1].end + 1, end)


__all__ = ["read_change", "read_insert", "read_partition", "read_query", "read_truncate"]
