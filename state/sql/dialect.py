"""The SQL that is read: Spark's, with what Flink's spelling and Paimon's names need.

A quote inside a text is written '' or \\'. A `$` is part of a name, as in `orders$files`.
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
    """Spark's dialect with names like `t$files` and with '' inside texts."""

    class Tokenizer(Spark.Tokenizer):  # type: ignore[misc]
        STRING_ESCAPES = ("'", "\\")
        VAR_SINGLE_TOKENS = frozenset({"$"})
        COMMANDS: frozenset[TokenType] = frozenset()  # CALL, SHOW and their like are read token by token as well

    class Parser(Spark.Parser):  # type: ignore[misc]
        STRICT_CAST = True  # CAST stays CAST
        COLON_IS_VARIANT_EXTRACT = True  # payload:a.b
        FUNCTIONS: ClassVar = {
            name: make for name, make in Spark.Parser.FUNCTIONS.items() if name in ("AVG", "COUNT", "MAX", "MIN", "SUM")
        }
        """Aggregates. Any other function stays a call by its name: for some functions sqlglot's nodes lose a part."""


DIALECT = BucketlineSql

_IN_TEXT = re.compile(r"\\.|''", re.DOTALL)
"""An escaped sign, or a quote that is written twice."""


def tokens_of(text: str) -> list[Token]:
    """Returns the tokens of a text, one a word. Raises OptionError for a text or a comment that does not end."""
    try:
        return [word for token in sqlglot.tokenize(text, read=DIALECT) for word in _single_words(token)]
    except SqlglotError as e:
        place = str(e).splitlines()[0].removeprefix("Error tokenizing ")
        raise refused(
            f"the text cannot be read: a text in quotes, a name in backticks or a comment does not end, after {place}"
        ) from e


def _single_words(token: Token) -> Iterator[Token]:
    """Yields the words of a token. A keyword of several words, such as PRIMARY KEY, is one token to sqlglot."""
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) or len(str(token.text).split()) < 2:
        yield token
        return
    for match in re.finditer(r"\S+", token.text):
        start = token.start + match.start()
        yield Token(TokenType.VAR, match[0], token.line, token.col, start, start + len(match[0]) - 1)


def sql_text(node: exp.Expression) -> str:
    """Returns a value or a condition as the SQL text that `bl.expr` takes: '' in texts, quoted names. TIMESTAMP has no
    time zone, as in Paimon.
    """

    def plain(part: exp.Expression) -> exp.Expression:
        is_zoned = isinstance(part, exp.DataType) and part.is_type("timestamptz")
        return exp.DataType.build("timestampntz") if is_zoned else part

    return str(node.transform(plain).sql(DIALECT, identify=True))


def as_spark_reads(text: str) -> str:
    """Returns the query with \\' for '' in its texts: to Spark two quotes end one text and begin another."""
    for token in reversed(tokens_of(text)):
        end = token.end + 1
        if token.token_type is TokenType.STRING and text[token.start] == "'" and "'" in token.text:
            inner = _IN_TEXT.sub(lambda sign: sign[0].replace("''", "\\'"), text[token.start + 1 : end - 1])
            text = f"{text[: token.start]}'{inner}'{text[end:]}"
    return text


def parse_one(text: str) -> exp.Expression:
    """Returns one query or change of rows. Raises OptionError with the place where the text cannot be read."""
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
    """Returns the error of a statement that cannot be read, or is not supported."""
    return OptionError(f"SQL: {why}", key="sql").reworded(f"SQL: {why}", **fields)


def reason_of(error: SqlglotError) -> str:
    """Returns why sqlglot cannot read a text, with the place."""
    details = getattr(error, "errors", None)
    if not details:
        return str(error).splitlines()[0]
    detail = details[0]
    place = f", at {detail['highlight']!r} (line {detail['line']})" if detail.get("highlight") else ""
    description = str(detail.get("description") or "")
    if not description or "<" in description:
        description = "the statement cannot be read: something is missing"
    elif "Unexpected token" in description:
        description = "the statement cannot be read"
    return f"{description.rstrip('.')}{place}"


def quoted_column(name: str, table: str | None = None) -> exp.Column:
    """Returns a column by its exact name, of the table with that name or alias if it is given."""
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
