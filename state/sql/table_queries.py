"""Converts the query `TABLE t`, which means `SELECT * FROM t`, to this SELECT.

Source: Spark's TABLE statement, which may stand wherever a query may stand.
"""

from collections.abc import Iterator

from bucketline.state.sql.dialect import refused
from bucketline.state.sql.words import Words

_SELECT = "SELECT * FROM"
_COMBINED_BY = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
_AFTER = ("", ")", *_COMBINED_BY, "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET")
"""The words and signs that can follow the query `TABLE t`."""


def without_table_queries(text: str) -> str:
    """Returns a query, or a statement with queries, in which each query `TABLE t` is written as `SELECT * FROM t`.
    Raises OptionError if the text begins with a query `TABLE t`, and a clause follows that only SELECT can have, such
    as WHERE.
    """
    words = Words(text)
    for at in reversed(list(_table_queries(words))):
        token = words.tokens[at]
        text = f"{text[: token.start]}{_SELECT}{text[token.end + 1 :]}"
    return text


def _table_queries(words: Words) -> Iterator[int]:
    """Yields the positions of the tokens TABLE that begin a query. A token TABLE that is a name, or a part of another
    statement such as CREATE TABLE, is left out.
    """
    opened: list[int] = []
    closed = -1  # The position of the bracket that the token before has closed.
    for at in range(len(words.tokens)):
        words.at = at
        if words.sees("TABLE") and _can_begin_query(words, closed):
            words.at = at + 1
            if words.comes_name():
                name = ".".join(words.path("the name of a table"))
                following = words.peek()
                if following in _AFTER:
                    yield at
                elif at == 0:
                    raise refused(
                        f"TABLE {name}: {following} cannot follow the name of the table; write "
                        f"{_SELECT} {name} {following} ...",
                        statement="TABLE",
                    )
        words.at = at
        if words.sees("("):
            opened.append(at)
        closed = opened.pop() if words.sees(")") and opened else -1


def _can_begin_query(words: Words, closed: int) -> bool:
    """Returns True if a query can begin at the next token. `closed` is the position of the bracket that the token
    before has closed, or -1.
    """
    at = words.at
    before, second = _word(words, at - 1), _word(words, at - 2)
    if before == ")":
        return _word(words, closed - 1) == "AS"  # This is the end of WITH q AS (...).
    return at == 0 or before in ("(", *_COMBINED_BY) or (before in ("ALL", "DISTINCT") and second in _COMBINED_BY)


def _word(words: Words, at: int) -> str:
    """Returns the keyword or symbol at a position; an empty string before the first token, and for a literal."""
    return words.peek(at - words.at) if at >= 0 else ""
