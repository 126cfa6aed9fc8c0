"""Parses SELECT, INSERT, UPDATE, DELETE and TRUNCATE with sqlglot, and converts the tree that sqlglot returns to a
statement.
"""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from bucketline.state.sql.dialect import refused
from bucketline.state.sql.relations import Parsed, hints_between, read_relations
from bucketline.state.sql.statement import (
    Delete,
    Insert,
    Query,
    Relation,
    Statement,
    TruncateTable,
    Update,
)
from bucketline.state.sql.words import Words


def read_query(text: str) -> Query:
    """Parses a query: a SELECT, VALUES, or several queries combined by UNION, INTERSECT or EXCEPT. Raises OptionError
    for any other text.
    """
    return _query(read_relations(text))


def _query(parsed: Parsed) -> Query:
    if not isinstance(parsed.tree, exp.Query | exp.Values):
        raise refused(f"{type(parsed.tree).__name__.upper()} is no query; use SELECT or VALUES")
    if isinstance(parsed.tree, exp.Select) and not parsed.tree.expressions:
        raise refused("SELECT needs columns, or *")
    if parsed.tree.args.get("into") is not None:
        raise refused("SELECT INTO is not supported; use CREATE TABLE ... AS SELECT or INSERT INTO")
    return Query(parsed.text, parsed.tree, parsed.relations)


def read_insert(words: Words) -> Insert:
    """Parses `INSERT INTO t ...` or `INSERT OVERWRITE t ...`."""
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
    if words.sees("(") and not _begins_query(words):
        if by_name:
            raise words.wrong("BY NAME takes no list of columns; expected VALUES, SELECT or TABLE")
        columns = words.names("a column")
        options |= _hints(words)
    if words.is_done:
        raise words.wrong("expected VALUES, SELECT or TABLE")
    relation = Relation(name, start, end, options)
    return Insert(relation, columns, partition, dynamic, overwrite, by_name, read_query(words.query()))


def _begins_query(words: Words) -> bool:
    """Returns True if a query follows the bracket that comes next; False if names of columns follow it."""
    word = words.peek(1)
    return word in ("SELECT", "WITH", "VALUES", "(") or (word == "TABLE" and words.peek(2) not in (",", ")"))


def read_partition(words: Words) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Parses `(dt = '1', hr)`. Returns the values by column, and the columns without a value."""
    values: dict[str, str | None] = {}
    dynamic: list[str] = []
    words.expect("(")
    while True:
        name = words.name("a partition column")
        if name in values or name in dynamic:
            raise refused(f"{words.verb}: partition column {name!r} is given twice", statement=words.verb)
        if words.take("="):
            values[name] = words.literal()
        else:
            dynamic.append(name)
        if words.take(")"):
            return values, tuple(dynamic)
        words.expect_comma()


def read_truncate(words: Words) -> TruncateTable:
    """Parses `TRUNCATE TABLE t`, for one partition or for the whole table."""
    words.expect("TRUNCATE")
    words.verb = "TRUNCATE TABLE"
    words.expect("TABLE")
    name = words.table()
    partition: Mapping[str, str | None] | None = None
    if words.take("PARTITION"):
        partition, dynamic = read_partition(words)
        if dynamic:
            raise refused(
                f"TRUNCATE TABLE: partition column {dynamic[0]!r} has no value; write {dynamic[0]} = value",
                statement=words.verb,
            )
    words.end()
    return TruncateTable(name, partition)


def read_change(text: str) -> Statement:
    """Parses UPDATE or DELETE."""
    parsed = read_relations(text)
    match parsed.tree:
        case exp.Update():
            return _update(parsed, parsed.tree)
        case exp.Delete():
            return _delete(parsed, parsed.tree)
    raise refused(f"{type(parsed.tree).__name__.upper()} is not supported")


def _update(parsed: Parsed, tree: exp.Update) -> Update:
    only(tree, "UPDATE", "this", "expressions", "where")
    values = {target_of(e, tree.this.alias_or_name): e.expression for e in assignments(tree.expressions, "UPDATE")}
    if len(values) < len(tree.expressions):
        raise refused("UPDATE: a column is set twice", statement="UPDATE")
    return Update(parsed.relation(tree.this), tree.this.alias_or_name, values, _condition(tree), parsed.relations)


def _delete(parsed: Parsed, tree: exp.Delete) -> Delete:
    if tree.args.get("tables"):
        raise refused("DELETE: FROM is missing; write DELETE FROM t WHERE ...", statement="DELETE")
    only(tree, "DELETE", "this", "where")
    return Delete(parsed.relation(tree.this), tree.this.alias_or_name, _condition(tree), parsed.relations)


def assignments(nodes: Sequence[exp.Expression], verb: str) -> Sequence[exp.Expression]:
    """Returns the assignments `column = value` of a SET clause. Raises OptionError for any other node."""
    for e in nodes:
        if not isinstance(e, exp.EQ) or not _is_path(e.this):
            raise refused(f"{verb}: SET needs column = value, found {e.sql()}", statement=verb)
    return nodes


def _is_path(node: exp.Expression) -> bool:
    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column)


def target_of(assignment: exp.Expression, alias: str) -> tuple[str, ...]:
    """Returns the column that an assignment sets, or the path of a field inside a column."""
    path = path_of(assignment.this)
    return path[1:] if len(path) > 1 and path[0].lower() == alias.lower() else path


def path_of(node: exp.Expression) -> tuple[str, ...]:
    """Returns the names in a node with dots, such as `a.b.c`."""
    if isinstance(node, exp.Dot):
        return (*path_of(node.this), str(node.expression.name))
    return tuple(str(part.name) for part in node.parts)


def _condition(tree: exp.Expression) -> exp.Expression | None:
    where = tree.args.get("where")
    return None if where is None else where.this


def only(tree: exp.Expression, verb: str, *allowed: str) -> None:
    """Raises OptionError, which names the clause, if a tree has a clause that is not in `allowed`. `verb` is the
    statement, for the message.
    """
    for key, value in tree.args.items():
        if value and key not in allowed:
            raise refused(f"{verb}: {key.upper().rstrip('_')} is not supported", statement=verb)


def _hints(words: Words) -> dict[str, str]:
    words.hinted.add(words.at)
    end = len(words.text) if words.is_done else words.tokens[words.at].start
    return hints_between(words.text, words.tokens[words.at - 1].end + 1, end)
