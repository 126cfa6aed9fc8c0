"""A statement as a row of tokens, read from left to right.

Definitions and calls are read so: every token is understood or named in an error. Queries and changes of rows go to
sqlglot's parser instead.
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
    """Yields the statements of a text, without the semicolons between them; empty ones are left out. After CALL the
    semicolon may be missing at the end of a line, since nothing can follow the bracket.
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
    """Whether a text that is being typed ends with a statement's semicolon."""
    try:
        tokens = tokens_of(text)
    except OptionError:
        return False
    return bool(tokens) and tokens[-1].token_type is TokenType.SEMICOLON


def gaps(text: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each stretch of the text where blanks and comments may stand: before each token, and
    behind the last.
    """
    start = 0
    for token in tokens:
        yield start, token.start
        start = token.end + 1
    yield start, len(text)


def hints_in(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Yields the hints among blanks and comments; the group `hint` of a match is the text of the hint."""
    return (comment for comment in _COMMENT.finditer(text, start, end) if comment["hint"] is not None)


@dataclass(slots=True)
class Words:
    """The tokens of one statement and how far they are read."""

    text: str
    tokens: Sequence[Token] = field(init=False)
    at: int = 0
    verb: str = ""
    """What the statement is called in errors."""
    hinted: set[int] = field(default_factory=set)
    """The positions of the tokens before which hints are allowed."""

    def __post_init__(self) -> None:
        self.tokens = tokens_of(self.text)

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        """Returns the keyword or sign that comes, in capitals; empty for a text in quotes and at the end."""
        at = self.at + ahead
        if at >= len(self.tokens):
            return ""
        token = self.tokens[at]
        return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else str(token.text).upper()

    def sees(self, *words: str) -> bool:
        """Whether exactly these words come."""
        return all(self.peek(i) == word for i, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Whether these words come. If so, they are passed; otherwise nothing is."""
        comes = self.sees(*words)
        self.at += len(words) if comes else 0
        return comes

    def expect(self, *words: str) -> None:
        """Passes these words. Raises OptionError if others come."""
        if not self.take(*words):
            raise self.wrong(f"expected {' '.join(words)}")

    def expect_comma(self) -> None:
        """Passes the comma between two parts of a list in brackets. Raises OptionError if something else comes."""
        if not self.take(","):
            raise self.wrong("expected , or )")

    def name(self, expected: str) -> str:
        """Returns a name, quoted or not."""
        if self.is_done or not self.comes_name():
            raise self.wrong(f"expected {expected}")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def comes_name(self) -> bool:
        """Whether a name may be read here."""
        if self.is_done:
            return False
        token = self.tokens[self.at]
        if token.token_type is TokenType.IDENTIFIER:
            return True
        first = str(token.text)[:1]
        return token.token_type not in _NO_NAMES and (first.isalnum() or first in ("_", "$"))

    def path(self, expected: str) -> tuple[str, ...]:
        """Reads names with dots between them, and returns them."""
        parts = [self.name(expected)]
        while self.take("."):
            parts.append(self.name(expected))
        return tuple(parts)

    def table(self) -> TableReference:
        """Returns the name of a table."""
        return table_name(self.path("the name of a table"))

    def string(self, expected: str) -> str:
        """Returns a text in quotes."""
        if self.is_done or self.tokens[self.at].token_type is not TokenType.STRING:
            raise self.wrong(f"expected {expected} in quotes")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def number(self, expected: str) -> str:
        """Returns a number as it is written."""
        if self.is_done or self.tokens[self.at].token_type is not TokenType.NUMBER:
            raise self.wrong(f"expected {expected}")
        self.at += 1
        return str(self.tokens[self.at - 1].text)

    def whole_number(self, expected: str) -> int:
        """Returns a number without sign, point and exponent."""
        if self.is_done or not self.peek().isdigit():
            raise self.wrong(f"expected {expected}, a whole number")
        return whole_number(self.number(expected))

    def literal(self) -> str | None:
        """Returns a text, number, TRUE, FALSE, DATE 'x' or TIMESTAMP 'x' as a text; None for NULL."""
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
        raise self.wrong("expected a text in quotes, a number, TRUE, FALSE or NULL")

    def comes_string(self) -> bool:
        """Whether a text in quotes comes."""
        return not self.is_done and self.tokens[self.at].token_type is TokenType.STRING

    def names(self, expected: str) -> tuple[str, ...]:
        """Reads `(name, ...)`, and returns the names."""
        self.expect("(")
        names = [self.name(expected)]
        while self.take(","):
            names.append(self.name(expected))
        self.expect(")")
        return tuple(names)

    def options(self) -> dict[str, str]:
        """Reads `('key' = 'value', ...)`. Keys and values may be words and numbers, and = may be missing before a text
        in quotes, as in Spark. Raises OptionError for a key that comes twice.
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
        """Reads the key of an option: a text in quotes, or words with dots and dashes."""
        if self.comes_string():
            return self.string("an option")
        if not self.is_done and self.tokens[self.at].token_type is TokenType.IDENTIFIER:
            return self.name("an option")  # in backticks, as Spark takes it
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
        """Passes the tokens up to a comma, a closing bracket or one of these words outside brackets. Returns where the
        passed tokens begin and end.
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
        """Returns the text of these tokens, without comments, and with texts in single quotes."""
        parts, last = [], None
        for token in self.tokens[start:end]:
            if last is not None and token.start == last.start:
                continue  # a number with a letter behind it is several tokens
            if last is not None and token.start > last.end + 1:
                parts.append(" ")
            is_text = token.token_type is TokenType.STRING
            parts.append(quoted_text(token.text) if is_text else self.text[token.start : token.end + 1])
            last = token
        return "".join(parts)

    def rest(self) -> str:
        """Returns the text from here to the last token."""
        if self.is_done:
            return ""
        start, self.at = self.tokens[self.at].start, len(self.tokens)
        return self.text[start : self.tokens[-1].end + 1]

    def query(self) -> str:
        """Returns the text from here to the end, hints included. Raises OptionError for a wrong hint before it."""
        self._refuse_hints(self.at)
        start = len(self.text) if self.is_done else self.tokens[self.at].start
        self.at = len(self.tokens)
        return self.text[start:]

    def end(self) -> None:
        """Raises OptionError, naming the remaining text, if the statement does not end here, or has a hint."""
        if not self.is_done:
            raise self.wrong("not supported here")
        self._refuse_hints(len(self.tokens))

    def _refuse_hints(self, last: int) -> None:
        """Raises OptionError if a hint stands before a token up to `last`, except where `hinted` allows it."""
        for i, (start, end) in enumerate(islice(gaps(self.text, self.tokens), last + 1)):
            hint = None if i in self.hinted else next(hints_in(self.text, start, end), None)
            if hint is not None:
                raise refused(f"{self.verb}: the hint {hint[0]!r} has no effect; leave it out", statement=self.verb)

    def wrong(self, why: str) -> OptionError:
        """Returns an error that says why, and names the token that comes next."""
        if self.is_done:
            place = "but the statement ends"
        else:
            token = self.tokens[self.at]
            place = f"found {self.text[token.start : token.end + 1]!r} (line {token.line})"
        return refused(f"{self.verb}: {why}, {place}", statement=self.verb)


def table_name(parts: Sequence[str]) -> TableReference:
    """Returns the table that `[[catalog.]database.]table[$branch_name][$system]` names. Raises OptionError."""
    if len(parts) > 3:
        raise refused(f"{'.'.join(parts)!r} has more parts than catalog, database and table; quote odd names with `")
    folder, slash, last = parts[-1].rpartition("/")
    table, *suffixes = last.split("$")
    table = f"{folder}{slash}{table}" if table else ""
    branch = suffixes.pop(0).removeprefix("branch_") if suffixes and suffixes[0].startswith("branch_") else None
    if len(suffixes) > 1 or not table or "" in suffixes:
        raise refused(f"{parts[-1]!r} is no name of a table, as t, t$files or t$branch_b$files")
    catalog, database = ((None, None, *parts[:-1])[-2:]) if len(parts) > 1 else (None, None)
    return TableReference(table, database, catalog, branch, suffixes[0] if suffixes else None)


def database_name(parts: Sequence[str]) -> tuple[str | None, str]:
    """Returns the catalog, None for the current one, and the database that `[catalog.]database` names. Raises
    OptionError.
    """
    if len(parts) > 2:
        raise refused(f"{'.'.join(parts)!r} is no database; give a database, or catalog.database")
    return (parts[0] if len(parts) == 2 else None), parts[-1]
