"""Parses the SQL text of a value or a condition, in Spark's dialect.

Up to release 0.9, filters and `bl.expr` used another dialect. A text that has another meaning now is refused, and the
error shows the new spelling. The dialects differ in names in double quotes, and in backslashes in strings.
"""

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bucketline.conf.errors import OptionError
from bucketline.state.sql.dialect import DIALECT, Token, TokenType, reason_of, tokens_of

_KEPT_ESCAPES = re.compile(r"\\[%_]")
"""Escapes that keep their backslash in strings of both dialects, because LIKE uses the backslash."""

_OLD_TYPES = {"TIMESTAMPTZ": "TIMESTAMP_LTZ"}
_BEFORE_VALUES = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "WHEN", "THEN", "ELSE", "CASE")
_PLAIN = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING)


@lru_cache(maxsize=1024)
def parse_value(text: str, key: str = "expression") -> exp.Expression:
    """Returns sqlglot's tree of a value or condition. Callers share the tree and must not change it. Raises OptionError
    if the text is no single expression. `key` is the option that the error names.
    """
    try:
        statements = sqlglot.parse(f"SELECT {text}", read=DIALECT)
    except SqlglotError as e:
        more = (
            "; a backslash in a string escapes the character after it, unless the string is r'...'"
            if "\\" in text
            else ""
        )
        raise OptionError(f"{text!r} is no SQL expression: {reason_of(e)}{more}", key=key) from e
    except RecursionError as e:
        raise OptionError("the expression is nested too deeply", key=key) from e
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, exp.Select) or len(select.expressions) != 1:
        raise OptionError(f"{text!r} is no single SQL expression; write one, for example: amount * 2", key=key)
    if any(value for name, value in select.args.items() if name != "expressions"):
        raise OptionError(f"{text!r} is a query; write an expression, for example: amount * 2", key=key)
    node = select.expressions[0]
    if isinstance(node, exp.Alias | exp.Star):
        raise OptionError(f"{text!r}: write a single expression, for example: amount * 2", key=key)
    return node.transform(_plain_text) if node.find(exp.RawString) else node


def _plain_text(node: exp.Expression) -> exp.Expression:
    return exp.Literal.string(node.this) if isinstance(node, exp.RawString) else node


def check_spelling(text: str, key: str = "expression") -> None:
    """Raises OptionError, which shows the new spelling, if a text has another meaning in the older dialect of
    expressions. This function does not check double quotes.
    """
    before = ""
    for token in _tokens(text):
        if token.token_type is TokenType.L_BRACKET and (before.upper() in _BEFORE_VALUES or not before.isalnum()):
            raise OptionError(
                "in Spark's SQL, names must be written in backticks, as in `odd name`, not in [brackets]", key=key
            )
        before = token.text if token.token_type not in _PLAIN and token.text not in ("]", ")") else "x"
        if token.token_type not in _PLAIN and token.text.upper() in _OLD_TYPES:
            new = _OLD_TYPES[token.text.upper()]
            raise OptionError(f"the type {token.text} is called {new} in Spark's SQL; write {new}", key=key)
        raw = text[token.start : token.end + 1]
        if token.token_type is TokenType.STRING and raw.startswith("'") and "\\" in _KEPT_ESCAPES.sub("", raw):
            # A raw string cannot hold the quote that ends it.
            remedy = "'' for a quote inside of a string, and r'...'" if "\\'" in raw else f"r{raw}"
            raise OptionError(
                f"{raw}: in Spark's SQL a backslash in a string escapes the character after it; earlier releases did "
                f"not do this. Write {remedy} for a literal backslash, and for example `chr(10)` for a line feed",
                key=key,
            )


def quoted_texts(text: str) -> tuple[str, ...]:
    """Returns the strings that are written in double quotes."""
    if '"' not in text:
        return ()
    return tuple(
        str(token.text) for token in _tokens(text) if token.token_type is TokenType.STRING and text[token.start] == '"'
    )


def check_quoted_names(quoted: Collection[str], names: Collection[str], key: str = "expression") -> None:
    """Raises OptionError if a string in double quotes is also the name of a column. In Spark's SQL, double quotes mean
    a string, but the user probably means the column. The error shows how to write the column, and how to write the
    string.

    `quoted` are the strings in double quotes of an expression, `names` are the names of the columns, and `key` names
    the setting in the error.
    """
    for name in quoted:
        if name in names:
            raise OptionError(
                f'"{name}" is a string in Spark\'s SQL, but there is a column with this name: write `{name}` for the '
                f"column, '{name}' for the string",
                key=key,
                column=name,
            )


def _tokens(text: str) -> Iterator[Token]:
    try:
        yield from tokens_of(text)
    except OptionError:
        return  # The parser will report what is wrong.


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    """Returns the conditions that AND combines, from left to right."""
    waiting, found = [node], list[exp.Expression]()
    while waiting:
        part = waiting.pop()
        while isinstance(part, exp.Paren):
            part = part.this
        if isinstance(part, exp.And):
            waiting += [part.expression, part.this]
        else:
            found.append(part)
    return found
