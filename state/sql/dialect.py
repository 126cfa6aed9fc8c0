"""The SQL dialect of bucketline: Spark's dialect, with additions for Flink's spelling and for Paimon's names.

A quote inside a string is written '' or \\'. A `$` is part of a name, as in `orders$files`.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from bucketline.conf.errors import OptionError


class BucketlineSql(Spark):  # type: ignore[misc]  # sqlglot is not typed
    """Spark's dialect with names such as `t$files`, and with '' inside strings."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        STRING_ESCAPES = ("'", "\\")
        VAR_SINGLE_TOKENS = frozenset({"$"})
        COMMANDS: frozenset[TokenType] = (
            frozenset()
        )  # CALL, SHOW and similar statements are also parsed token by token.

    class Parser(Spark.Parser):  # type: ignore[misc]
        STRICT_CAST = True  # CAST stays CAST
        COLON_IS_VARIANT_EXTRACT = True  # payload:a.b
        FUNCTIONS: ClassVar = {
            name: make for name, make in Spark.Parser.FUNCTIONS.items() if name in ("AVG", "COUNT", "MAX", "MIN", "SUM")
        }
        """Aggregate functions get nodes of their own. Any other function stays a call with its name, because the nodes
        of sqlglot lose parts of some functions.
        """


DIALECT = BucketlineSql

_IN_TEXT = re.compile(r"\\.|''", re.DOTALL)
"""Matches an escaped character in a string, or a quote that is written twice."""


def tokens_of(text: str) -> list[Token]:
    """Returns the tokens of an SQL text; each word is a token. Raises OptionError for a string or a comment that does
    not end.
    """
    try:
        return [word for token in sqlglot.tokenize(text, read=DIALECT) for word in _single_words(token)]
    except SqlglotError as e:
        place = str(e).splitlines()[0].removeprefix("Error tokenizing ")
        raise refused(
            f"the text cannot be parsed: a string, a name in backticks or a comment is not closed, after {place}"
        ) from e


def _single_words(token: Token) -> Iterator[Token]:
    """Splits a token into words. For sqlglot, a keyword of several words, such as PRIMARY KEY, is one token."""
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) or len(str(token.text).split()) < 2:
        yield token
        return
    for match in re.finditer(r"\S+", token.text):
        start = token.start + match.start()
        yield Token(TokenType.VAR, match[0], token.line, token.col, start, start + len(match[0]) - 1)


def sql_text(node: exp.Expression) -> str:
    """Returns a value or a condition as SQL text that `bl.expr` accepts, with quoted names, and with '' for a quote in
    a string. TIMESTAMP has no time zone, as in Paimon.
    """

    def plain(part: exp.Expression) -> exp.Expression:
        is_zoned = isinstance(part, exp.DataType) and part.is_type("timestamptz")
        return exp.DataType.build("timestampntz") if is_zoned else part

    return str(node.transform(plain).sql(DIALECT, identify=True))


def as_spark_reads(text: str) -> str:
    """Returns the query with \\' instead of '' in its strings. For Spark, two quotes end a string and begin another."""
    for token in reversed(tokens_of(text)):
        end = token.end + 1
        if token.token_type is TokenType.STRING and text[token.start] == "'" and "'" in token.text:
            inner = _IN_TEXT.sub(lambda sign: sign[0].replace("''", "\\'"), text[token.start + 1 : end - 1])
            text = f"{text[: token.start]}'{inner}'{text[end:]}"
    return text


def parse_one(text: str) -> exp.Expression:
    """Parses a query or a statement that changes rows, and returns sqlglot's tree. Raises OptionError, which says where
    the text is not valid.
    """
    try:
        statements = [s for s in sqlglot.parse(text, read=DIALECT) if s is not None]
    except SqlglotError as e:
        raise refused(reason_of(e)) from e
    except RecursionError as e:
        raise refused("the statement is nested too deeply") from e
    if len(statements) != 1:
        raise refused("give one statement")
    return statements[0]


def refused(why: str, **fields: object) -> OptionError:
    """Returns the error for a statement that cannot be parsed or is not supported. `why` is the reason."""
    return OptionError(f"SQL: {why}", key="sql").reworded(f"SQL: {why}", **fields)


def reason_of(error: SqlglotError) -> str:
    """Returns why sqlglot cannot parse a text, and where in the text."""
    details = getattr(error, "errors", None)
    if not details:
        return str(error).splitlines()[0]
    detail = details[0]
    place = f", at {detail['highlight']!r} (line {detail['line']})" if detail.get("highlight") else ""
    description = str(detail.get("description") or "")
    if not description or "<" in description:
        description = "the statement cannot be parsed: something is missing"
    elif "Unexpected token" in description:
        description = "the statement cannot be parsed"
    return f"{description.rstrip('.')}{place}"


def quoted_column(name: str, table: str | None = None) -> exp.Column:
    """Returns a node for the column with exactly this name. If `table` is given, it is the name or alias of the
    column's table.
    """
    column = exp.column(exp.to_identifier(name, quoted=True))
    if table is not None:
        column.set("table", exp.to_identifier(table, quoted=True))
    return column


__all__ = [
    "DIALECT",
    "Token",
    "TokenType",
    "as_spark_reads",
    "parse_one",
    "quoted_column",
    "reason_of",
    "refused",
    "sql_text",
    "tokens_of",
]
