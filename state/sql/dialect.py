"""The SQL that is read: Spark's, with what Flink's spelling and Paimon's names need.

A quote inside a text is written '' or \\'. A `$` is part of a name, as in `orders$files`.
"""

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from bucketline.conf.errors import OptionError


class BucketlineSql(Spark):  # type: ignore[misc]  # sqlglot is not typed
    """Spark's dialect with names like `t$files` and with '' inside texts."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        STRING_ESCAPES = ("'", "\\")
        VAR_SINGLE_TOKENS = frozenset({"$"})
        COMMANDS: frozenset[TokenType] = frozenset()  # CALL, SHOW and their like are read token by token as well


DIALECT = BucketlineSql


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, one a word. Raises OptionError for a text or a comment that does not end."""
    try:
        return [word for token in sqlglot.tokenize(text, read=DIALECT) for word in _single_words(token)]
    except SqlglotError as e:
        raise refused(f"the text cannot be read: {str(e).splitlines()[0]}") from e


def _single_words(token: Token) -> Iterator[Token]:
    """Keywords of several words, as PRIMARY KEY, one by one."""
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) or len(str(token.text).split()) < 2:
        yield token
        return
    for match in re.finditer(r"\S+", token.text):
        start = token.start + match.start()
        yield Token(TokenType.VAR, match[0], token.line, token.col, start, start + len(match[0]) - 1)


def parse_one(text: str) -> exp.Expression:
    """One query or change of rows. Raises OptionError with the place where the text cannot be read."""
    try:
        found = [s for s in sqlglot.parse(text, read=DIALECT) if s is not None]
    except SqlglotError as e:
        raise refused(_reason(e)) from e
    except RecursionError as e:
        raise refused("the statement is nested too deeply") from e
    if len(found) != 1:
        raise refused("give one statement")
    return found[0]


def refused(why: str, **fields: object) -> OptionError:
    """The error of a statement that cannot be read, or is not supported."""
    return OptionError(f"SQL: {why}", key="sql", **fields)


def _reason(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return str(error).splitlines()[0]
    found = details[0]
    place = f", at {found['highlight']!r} (line {found['line']})" if found.get("highlight") else ""
    return f"{str(found.get('description') or 'it cannot be read').rstrip('.')}{place}"


__all__ = ["DIALECT", "Token", "TokenType", "parse_one", "refused", "tokens_of"]
