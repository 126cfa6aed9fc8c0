"""Parses a statement token by token, from left to right.

Definitions and calls are parsed in this way, so that every token is either understood or named in an error. Queries and
statements that change rows are parsed by sqlglot instead.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from bucketline.conf.errors import OptionError
from bucketline.conf.option import whole_number
from bucketline.state.sql.dialect import Token, TokenType, refused, tokens_of
from bucketline.state.sql.statement import TableReference
from bucketline.state.types.columns_text import quoted_text

_OPENING, _CLOSING = ("(", "<", "["), (")", ">", "]")
_COMMENT = re.compile(r"--[^\n]*|/\*\+(?P<hint>.*?)\*/|/\*.*?\*/", re.DOTALL)
_NO_NAMES = frozenset({TokenType.STRING, TokenType.NUMBER, TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN})


def split_script(text: str) -> Iterator[str]:
    """Yields the statements of a text, without the semicolons between them. Empty statements are left out. At the end
    of a line, the semicolon after a CALL may be missing, because nothing can follow its closing parenthesis.
    """
    start, at, depth, tokens = 0, 0, 0, tokens_of(text)
    for i, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.SEMICOLON:
            if i > at:
                yield text[start : token.start]
            start, at, depth = token.end + 1, i + 1, 0
        elif token.token_type is TokenType.R_PAREN and depth == 0 and tokens[at].text.upper() == "CALL":
            following = tokens[i + 1] if i + 1 < len(tokens) else None
            if following is not None and following.line > token.line:
                yield text[start : token.end + 1]
                start, at = token.end + 1, i + 1
    if at < len(tokens):
        yield text[start:]


def ends_statement(text: str) -> bool:
    """Returns True if a text, which a user is typing, ends with the semicolon of a statement."""
    try:
        tokens = tokens_of(text)
    except OptionError:
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def gaps(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each part of the text that can only have spaces and comments: before each token, and
    after the last one.
    """
    start = 0
    for token in tokens:
        yield start, token.start
        start = token.end + 1
    yield start, len(text)


def hints_in(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Yields the hints in a part of the text that has only spaces and comments. The group `hint` of a match is the text
    of the hint.
    """
    return (comment for comment in _COMMENT.finditer(text, start, end) if comment["hint"] is not None)


@dataclass(slots=True)
class Words:
    """The tokens of a statement, and the position of the next token to parse."""

    text: str
    tokens: Sequence[Token] = field(init=False)
    at: int = 0
    verb: str = ""
    """The name of the statement in errors."""
    hinted: set[int] = field(default_factory=set)
    """The positions of the tokens before which hints are allowed."""

    def __post_init__(self) -> None:
        self.tokens = tokens_of(self.text)

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        """Returns the next keyword or symbol in upper case, without moving on; an empty string if a string literal or
        the end comes next. `ahead` is the number of tokens to skip first.
        """
        at = self.at + ahead
        if at >= len(self.tokens):
            return ""
        token = self.tokens[at]
        return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else str(token.text).upper()

    def sees(self, *words: str) -> bool:
        """Returns True if these words come next."""
        return all(self.peek(i) == word for i, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Returns True and moves on if these words come next. Otherwise returns False and does not move."""
        comes = self.sees(*words)
        self.at += len(words) if comes else 0
        return comes

    def expect(self, *words: str) -> None:
        """Checks that the next words of the statement are `words`, and moves on to the word after them. Raises
        OptionError if other words come next.
        """
        if not self.take(*words):
            raise self.wrong(f"expected {' '.join(words)}")

    def expect_comma(self) -> None:
        """Moves on after the comma between two parts of a list in parentheses. Raises OptionError if another token
        comes next.
        """
        if not self.take(","):
            raise self.wrong("expected , or )")

    def name(self, expected: str) -> str:
        """Parses a name, with or without quotes. Raises OptionError, with `expected` in the message, for any other
        token.
        """
        if self.is_done or not self.comes_name():
            raise self.wrong(f"expected {expected}")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def comes_name(self) -> bool:
        """Returns True if the next token can be a name."""
        if self.is_done:
            return False
        token = self.tokens[self.at]
        if token.token_type is TokenType.IDENTIFIER:
            return True
        first = str(token.text)[:1]
        return token.token_type not in _NO_NAMES and (first.isalnum() or first in ("_", "$"))

    def path(self, expected: str) -> tuple[str, ...]:
        """Parses names with dots between them, and returns the names."""
        parts = [self.name(expected)]
        while self.take("."):
            parts.append(self.name(expected))
        return tuple(parts)

    def table(self) -> TableReference:
        """Parses the name of a table."""
        return table_name(self.path("the name of a table"))

    def string(self, expected: str) -> str:
        """Parses a string literal. Raises OptionError, with `expected` in the message, for any other token."""
        if self.is_done or self.tokens[self.at].token_type is not TokenType.STRING:
            raise self.wrong(f"expected {expected} in quotes")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def number(self, expected: str) -> str:
        """Takes the next token, which must be a number, and returns the number as the text in the statement. `expected`
        says what was expected, for the error if the next token is no number.
        """
        if self.is_done or self.tokens[self.at].token_type is not TokenType.NUMBER:
            raise self.wrong(f"expected {expected}")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def whole_number(self, expected: str) -> int:
        """Parses a number without sign, point and exponent."""
        if self.is_done or not self.peek().isdigit():
            raise self.wrong(f"expected {expected}, a whole number")
        return whole_number(self.number(expected))

    def literal(self) -> str | None:
        """Parses a string, a number, TRUE, FALSE, DATE 'x' or TIMESTAMP 'x', and returns it as a string; None for
        NULL.
        """
        if self.comes_string():
            return self.string("a value")
        if self.take("NULL"):
            return None
        for word in ("TRUE", "FALSE"):
            if self.take(word):
                return word.lower()
        for word in ("DATE", "TIMESTAMP"):
            if self.take(word):
                return self.string(f"a {word.lower()}")
        sign = "-" if self.take("-") else ""
        if not self.is_done and self.tokens[self.at].token_type is TokenType.NUMBER:
            self.at += 1
            return sign + str(self.tokens[self.at - 1].text)
        raise self.wrong("expected a string in quotes, a number, TRUE, FALSE or NULL")

    def comes_string(self) -> bool:
        """Returns True if the next token is a string literal."""
        return not self.is_done and self.tokens[self.at].token_type is TokenType.STRING

    def names(self, expected: str) -> tuple[str, ...]:
        """Parses `(name, ...)`, and returns the names."""
        self.expect("(")
        names = [self.name(expected)]
        while self.take(","):
            names.append(self.name(expected))
        self.expect(")")
        return tuple(names)

    def options(self) -> dict[str, str]:
        """Parses `('key' = 'value', ...)`. As in Spark, keys and values may be words and numbers without quotes, and =
        may be missing before a value in quotes. Raises OptionError for a key that occurs twice.
        """
        options: dict[str, str] = {}
        self.expect("(")
        while not self.take(")"):
            if options:
                self.expect_comma()
            key = self.option_key()
            if not self.take("=") and not self.comes_string():
                raise self.wrong("expected =")
            if key in options:
                raise refused(f"option '{key}' is given twice", option=key)
            options[key] = self.option_value(key)
        return options

    def option_key(self) -> str:
        """Parses the key of an option: a string in quotes, or words with dots and dashes."""
        if self.comes_string():
            return self.string("an option")
        if not self.is_done and self.tokens[self.at].token_type is TokenType.IDENTIFIER:
            return self.name("an option")  # The key is in backticks, which Spark allows.
        start = self.at
        while not self.is_done and self.peek() not in ("=", ",", ")"):
            self.at += 1
        if start == self.at:
            raise self.wrong("expected the key of an option")
        return self.source(start, self.at)

    def option_value(self, key: str) -> str:
        if self.comes_string():
            return self.string("a value")
        start = self.at
        self.take("-")
        token = None if self.is_done else self.tokens[self.at]
        if token is None or not (token.token_type is TokenType.NUMBER or self.peek() in ("TRUE", "FALSE")):
            raise self.wrong(f"expected the value of '{key}' in quotes")
        self.at += 1
        return self.source(start, self.at)

    def clause(self, *ends: str) -> tuple[int, int]:
        """Moves on to the next token outside parentheses that is a comma, a closing parenthesis or one of the words
        `ends`. Returns the start and the end of the skipped tokens.
        """
        start, depth = self.at, 0
        while not self.is_done:
            sign = self.peek()
            if depth == 0 and (sign in (",", ")") or sign in ends):
                break
            depth += (sign in _OPENING) - (sign in _CLOSING)
            self.at += 1
        if start == self.at:
            raise self.wrong("expected a column or its type")
        return start, self.at

    def source(self, start: int, end: int) -> str:
        """Returns the text of the tokens from `start` to `end`, without comments, and with strings in single quotes."""
        parts, last = [], None
        for token in self.tokens[start:end]:
            if last is not None and token.start == last.start:
                continue  # A number with a letter after it is several tokens.
            if last is not None and token.start > last.end + 1:
                parts.append(" ")
            is_text = token.token_type is TokenType.STRING
            parts.append(quoted_text(token.text) if is_text else self.text[token.start : token.end + 1])
            last = token
        return "".join(parts)

    def rest(self) -> str:
        """Returns the text from the next token to the last one."""
        if self.is_done:
            return ""
        start, self.at = self.tokens[self.at].start, len(self.tokens)
        return self.text[start : self.tokens[-1].end + 1]

    def query(self) -> str:
        """Returns the text from the next token to the end of the statement. The text keeps its hints (`/*+ ... */`).
        Raises OptionError for a hint directly before the next token, where no hint is allowed.
        """
        self._refuse_hints(self.at)
        start = len(self.text) if self.is_done else self.tokens[self.at].start
        self.at = len(self.tokens)
        return self.text[start:]

    def end(self) -> None:
        """Raises OptionError, which names the remaining text, if the statement does not end here, or if it has a hint
        that is not allowed.
        """
        if not self.is_done:
            raise self.wrong("not supported here")
        self._refuse_hints(len(self.tokens))

    def _refuse_hints(self, last: int) -> None:
        """Raises OptionError if there is a hint before one of the tokens with positions up to `last`. A hint before a
        token whose position is in `hinted` is allowed.
        """
        for i, (start, end) in enumerate(islice(gaps(self.text, self.tokens), last + 1)):
            hint = None if i in self.hinted else next(hints_in(self.text, start, end), None)
            if hint is not None:
                raise refused(f"{self.verb}: the hint {hint[0]!r} has no effect here; remove it", statement=self.verb)

    def wrong(self, why: str) -> OptionError:
        """Returns the error for a statement that is not valid. The message contains `why` and the next token."""
        if self.is_done:
            place = "but the statement ends"
        else:
            token = self.tokens[self.at]
            place = f"found {self.text[token.start : token.end + 1]!r} (line {token.line})"
        return refused(f"{self.verb}: {why}, {place}", statement=self.verb)


def table_name(parts: Sequence[str]) -> TableReference:
    """Returns the table for a name of the form `[[catalog.]database.]table[$branch_name][$system]`. Raises OptionError
    for any other name.
    """
    if len(parts) > 3:
        raise refused(
            f"{'.'.join(parts)!r} has more parts than catalog, database and table; put a name with a dot in backticks"
        )
    folder, slash, last = parts[-1].rpartition("/")
    table, *suffixes = last.split("$")
    table = f"{folder}{slash}{table}" if table else ""
    branch = suffixes.pop(0).removeprefix("branch_") if suffixes and suffixes[0].startswith("branch_") else None
    if len(suffixes) > 1 or not table or "" in suffixes:
        raise refused(f"{parts[-1]!r} is no name of a table; write for example t, t$files or t$branch_b$files")
    catalog, database = ((None, None, *parts[:-1])[-2:]) if len(parts) > 1 else (None, None)
    return TableReference(table, database, catalog, branch, suffixes[0] if suffixes else None)


def database_name(parts: Sequence[str]) -> tuple[str | None, str]:
    """Returns the catalog and the database for a name of the form `[catalog.]database`. The catalog is None for the
    current catalog. Raises OptionError for any other name.
    """
    if len(parts) > 2:
        raise refused(f"{'.'.join(parts)!r} is no name of a database; write database, or catalog.database")
    return (parts[0] if len(parts) == 2 else None), parts[-1]
