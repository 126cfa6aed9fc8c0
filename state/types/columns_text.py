"""Parses a list of columns in SQL into the columns of a table, and prints columns as SQL:

    id BIGINT NOT NULL, name VARCHAR(20) COMMENT 'as typed', tags ARRAY<STRING>, place ROW<lat DOUBLE, lon DOUBLE>

Types mean what they mean in Paimon: TIMESTAMP has no time zone, TIMESTAMP_LTZ is an instant. Spark's spellings (LONG,
STRUCT<a: INT>) are understood. Types whose meaning would surprise are refused, such as VARCHAR without a length, which
has one character in SQL. Source: Paimon 2.0 DataTypes; Flink SQL's and Spark SQL's CREATE TABLE.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.state.errors import CorruptFileError
from bucketline.state.types.logical import (
    MAX_DEPTH,
    MAX_LENGTH,
    DataField,
    DataType,
    TypeRoot,
    parse_type_text,
    range_problem,
)

_TOKEN = re.compile(
    r"\s+|--[^\n]*"
    r"|(?P<quoted>`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\")"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<word>\w+)"
    r"|(?P<sign>[<>(),:])"
)
_IN_DEFAULT = re.compile(r"[-+.]")
"""The characters that are tokens in the value of a DEFAULT, and nowhere else."""

_WORD = re.compile(r"\w+")
_SPARK_NAMES = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "TIMESTAMP_NTZ": "TIMESTAMP",
    "STRUCT": "ROW",
}
_ALIASES = ("STRING", "BYTES", "INTEGER", "NUMERIC", "DEC", "BOOL")
_NAMES = (*(root.value for root in TypeRoot), *_ALIASES, *_SPARK_NAMES)
_NEEDS_LENGTH = {"VARCHAR": "STRING", "VARBINARY": "BYTES"}


def parse_columns(text: str) -> tuple[DataField, ...]:
    """Returns the columns that the text lists. Ids start at 0, and a ROW gets its id before its sub-fields, as in
    Paimon.

    Raises OptionError for text that is no list of columns and for types that Paimon does not have. The message says
    where in the text the fault is.
    """
    return _Parser(list(_tokens(text)), count()).columns()


def columns_text(fields: Sequence[DataField]) -> str:
    """Returns the columns as SQL text that `parse_columns` reads, with their comments and defaults."""
    return ", ".join(map(_field_text, fields))


def quoted_name(name: str) -> str:
    """Returns a name as SQL text: in backticks, unless it has only letters, digits and underscores."""
    return name if _WORD.fullmatch(name) else in_backticks(name)


def in_backticks(name: str) -> str:
    """Returns a name in backticks, whether or not it needs them."""
    return f"`{name.replace('`', '``')}`"


def quoted_text(text: str) -> str:
    """Returns a string as an SQL literal, in single quotes."""
    return f"'{text.replace(chr(39), chr(39) * 2)}'"


def type_text(data_type: DataType, quote: Callable[[str], str] = quoted_name) -> str:
    """Returns the type as SQL text that `parse_columns` reads, with NOT NULL if the type is not nullable.

    `quote` is the function that writes the names of sub-fields.
    """
    return _text_without_null(data_type, quote) + ("" if data_type.nullable else " NOT NULL")


def _text_without_null(data_type: DataType, quote: Callable[[str], str]) -> str:
    root = data_type.root
    if data_type.element is not None:
        length = f", {data_type.length}" if root is TypeRoot.VECTOR else ""
        return f"{root.value}<{type_text(data_type.element, quote)}{length}>"
    if data_type.key is not None and data_type.value is not None:
        return f"MAP<{type_text(data_type.key, quote)}, {type_text(data_type.value, quote)}>"
    if root is TypeRoot.ROW:
        return f"ROW<{', '.join(_field_text(f, quote) for f in data_type.fields)}>"
    return str(data_type.as_nullable())


def _field_text(field: DataField, quote: Callable[[str], str] = quoted_name) -> str:
    comment = "" if field.description is None else f" COMMENT {quoted_text(field.description)}"
    default = "" if field.default_value is None else f" DEFAULT {default_in_sql(field)}"
    return f"{quote(field.name)} {type_text(field.type, quote)}{default}{comment}"


def default_in_sql(field: DataField) -> str:
    """Returns a column's default as SQL text. A string or a time is put in quotes, even if the schema stores it without
    quotes.
    """
    text = str(field.default_value)
    is_plain = text[:1] == "'" or not field.type.is_atomic or field.type.root in _UNQUOTED
    return text if is_plain else quoted_text(text)


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of the text. `kind` is 'quoted', 'text', 'word', 'sign', 'other' (only in a DEFAULT) or 'end'.

    `text` is the token without its quotes, `source` is the token with them.
    """

    kind: str
    text: str
    source: str = field(default="", compare=False)


def _tokens(text: str) -> Iterator[_Token]:
    at, depth, default_depth = 0, 0, -1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None and default_depth >= 0 and _IN_DEFAULT.match(text, at):
            yield _Token("other", text[at], text[at])
            at += 1
            continue
        if match is None:
            raise _refused(f"cannot read {text[at : at + 20]!r}; write a name with special characters in `backticks`")
        at = match.end()
        kind = match.lastgroup
        if kind in ("quoted", "text"):
            quote = match[kind][0]
            yield _Token(kind, match[kind][1:-1].replace(quote * 2, quote), match[kind])
        elif kind is not None:
            sign = match[kind]
            depth += (sign in "(<") - (sign in ")>")
            if sign == "," and depth <= default_depth:
                default_depth = -1
            elif sign.upper() == "DEFAULT":
                default_depth = depth
            yield _Token(kind, sign, sign)
    yield _Token("end", "the end")


@dataclass(slots=True)
class _Parser:
    tokens: list[_Token]
    ids: Iterator[int]
    at: int = 0
    depth: int = 0

    def columns(self) -> tuple[DataField, ...]:
        if self._next.kind == "end":
            raise _refused("no columns are given")
        fields = self._fields()
        if self._next.kind != "end":
            raise _refused(f"expected ',' after column '{fields[-1].name}', found {self._next.text!r}")
        return fields

    def _fields(self) -> tuple[DataField, ...]:
        fields = [self._field()]
        while self._take_sign(","):
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> DataField:
        token = self._next
        if token.kind not in ("word", "quoted"):
            raise _refused(f"expected the name of a column, found {token.text!r}")
        if token.kind == "word" and self._is_constraint():
            raise _refused(
                f"{token.text.upper()} ... cannot stand in the list of columns; set the options primary-key and "
                "partition instead"
            )
        self.at += 1
        field_id = next(self.ids)
        self._take_sign(":")
        data_type = self._type(f"column '{token.text}'")
        place, given = f"column '{token.text}'", dict[str, str | None]()
        while self._next.kind == "word":
            clause = self._next.text.upper()
            if clause not in ("COMMENT", "DEFAULT") or clause in given or (clause == "DEFAULT" and self.depth):
                raise _refused(f"{place}: {clause} is not supported here; a column takes a COMMENT and a DEFAULT")
            self.at += 1
            given[clause] = self._default(place) if clause == "DEFAULT" else self._comment(place)
            if clause == "DEFAULT" and self._take_words("NOT", "NULL"):
                data_type = data_type.not_null()
        return DataField(field_id, token.text, data_type, given.get("COMMENT"), given.get("DEFAULT"))

    def _comment(self, place: str) -> str:
        if self._next.kind != "text":
            raise _refused(f"{place}: COMMENT needs a string in single quotes, as in COMMENT 'a text'")
        return self._pass().text

    def _default(self, place: str) -> str | None:
        """Reads the literal after DEFAULT, and returns it in the form in which Paimon stores it; None for NULL."""
        parts, depth = list[_Token](), 0
        while self._next.kind != "end":
            token = self._next
            if depth == 0 and (token.text in (",", ")", ">") and token.kind == "sign"):
                break
            if depth == 0 and parts and token.kind == "word" and token.text.upper() in ("COMMENT", "NOT"):
                break
            depth += (token.text in "(<") - (token.text in ")>") if token.kind == "sign" else 0
            parts.append(self._pass())
        return _default_text([part.source for part in parts], place)

    def _is_constraint(self) -> bool:
        following = self.tokens[self.at + 1]
        words = (self._next.text.upper(), following.text.upper())
        return following.kind == "word" and words in (("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("PARTITIONED", "BY"))

    def _type(self, place: str) -> DataType:
        if self._next.kind != "word":
            raise _refused(f"{place}: expected a type, found {self._next.text!r}")
        if self.depth >= MAX_DEPTH:
            raise _refused(f"{place}: more than {MAX_DEPTH} types are nested in each other; nest fewer types")
        self.depth += 1
        written = self._pass().text.upper()
        name = _SPARK_NAMES.get(written, written)
        data_type = self._constructed(name, place) if name in _CONSTRUCTED else self._atomic(name, place)
        self.depth -= 1
        if self._take_words("NOT", "NULL"):
            return data_type.not_null()
        self._take_words("NULL")
        return data_type

    def _constructed(self, name: str, place: str) -> DataType:
        opened = self._pass().text
        if opened != "<" and (name, opened) != ("ROW", "("):
            raise _refused(f"{place}: {name} needs its parts in angle brackets, as in {_CONSTRUCTED[name]}")
        if name == "ROW":
            data_type = DataType(TypeRoot.ROW, fields=self._fields())
        elif name == "MAP":
            key = self._type(place)
            self._expect(",", place)
            data_type = DataType(TypeRoot.MAP, key=key, value=self._type(place))
        elif name == "VECTOR":
            element = self._type(place)
            self._expect(",", place)
            data_type = DataType(TypeRoot.VECTOR, element=element, length=self._number(place))
        else:
            data_type = DataType(TypeRoot[name], element=self._type(place))
        self._expect(">" if opened == "<" else ")", place)
        return data_type

    def _atomic(self, name: str, place: str) -> DataType:
        if name not in _NAMES:
            raise _refused(f"{place}: no type {name}{did_you_mean(name, _NAMES)}")
        text = name
        numbers = []
        if self._take_sign("("):
            numbers.append(self._number(place))
            while self._take_sign(","):
                numbers.append(self._number(place))
            self._expect(")", place)
            text += f"({', '.join(map(str, numbers))})"
        elif name == "BINARY":
            text = "BYTES"  # as in Spark
        elif name in _NEEDS_LENGTH:
            raise _refused(f"{place}: {name} needs a length, as in {name}(20); or use {_NEEDS_LENGTH[name]}")
        if self._take_words("WITH", "LOCAL", "TIME", "ZONE") and name == "TIMESTAMP":
            text += " WITH LOCAL TIME ZONE"
        elif self._take_words("WITH", "TIME", "ZONE"):
            raise _refused(f"{place}: no type {name} WITH TIME ZONE; use TIMESTAMP WITH LOCAL TIME ZONE, or TIMESTAMP")
        else:
            self._take_words("WITHOUT", "TIME", "ZONE")
        if name == "DOUBLE":
            self._take_words("PRECISION")
        try:
            data_type = parse_type_text(text)
        except CorruptFileError as e:
            raise _refused(f"{place}: {e.message}") from e
        _check(data_type, numbers, text, place)
        return data_type

    @property
    def _next(self) -> _Token:
        return self.tokens[self.at]

    def _pass(self) -> _Token:
        """Returns the next token and moves on. At the end of the text, each call returns the end token."""
        token = self._next
        if token.kind != "end":
            self.at += 1
        return token

    def _take_sign(self, sign: str) -> bool:
        comes = self._next == _Token("sign", sign)
        self.at += comes
        return comes

    def _take_words(self, *words: str) -> bool:
        following = self.tokens[self.at : self.at + len(words)]
        if [t.text.upper() for t in following if t.kind == "word"] != list(words):
            return False
        self.at += len(words)
        return True

    def _expect(self, sign: str, place: str) -> None:
        if not self._take_sign(sign):
            raise _refused(f"{place}: expected {sign!r}, found {self._next.text!r}")

    def _number(self, place: str) -> int:
        text = self._pass().text
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LENGTH))):
            raise _refused(f"{place}: expected a number up to {MAX_LENGTH}, found {text!r}")
        return int(text)


def _default_text(parts: Sequence[str], place: str) -> str | None:
    """Takes the tokens of a literal, and returns the string that Paimon stores as a column's default; None for NULL.
    Raises OptionError for anything but a literal.

    Paimon removes the quotes and casts the string to the column's type. So a string with a quote inside is refused, and
    the letter after a number, as in `10L`, is left out.
    """
    text = "".join(parts)
    first = parts[0].upper() if parts else ""
    if len(parts) == 2 and first in _TYPED and parts[1][:1] in "'\"":
        text = parts[1]
    if text[:1] in ("'", '"') and len(parts) <= 2:
        inner = text[1:-1]
        if "'" in inner or '"' in inner or "\\" in inner:
            raise _refused(
                f"{place}: the string in DEFAULT {text} has a quote or a backslash inside, and engines read these in "
                "different ways; choose a default without them"
            )
        return f"'{inner}'"
    number = _NUMBER.fullmatch(text)
    if number is not None:
        return number["number"]
    if len(parts) == 1 and first in ("TRUE", "FALSE"):
        return first.lower()
    if first == "NULL" and len(parts) == 1:
        return None
    if first in ("ARRAY", "MAP", "STRUCT") and parts[-1] == ")":
        bare = (number["number"] if (number := _NUMBER.fullmatch(part)) else part for part in parts)
        return "".join(bare).replace('"', "'").replace(",", ", ")
    raise _refused(f"{place}: DEFAULT needs a literal, or ARRAY, MAP or STRUCT of literals, found {text or 'nothing'}")


_TYPED = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME")
_NUMBER = re.compile(r"(?P<number>[-+]?\d+(\.\d*)?(E[-+]?\d+)?)(L|S|Y|D|F|BD)?", re.IGNORECASE)
_UNQUOTED = frozenset(
    {
        TypeRoot.BOOLEAN,
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
    }
)
_CONSTRUCTED = {
    "ARRAY": "ARRAY<STRING>",
    "MULTISET": "MULTISET<STRING>",
    "MAP": "MAP<STRING, INT>",
    "ROW": "ROW<a INT, b STRING>",
    "VECTOR": "VECTOR<FLOAT, 3>",
}
_MOST_NUMBERS = {
    TypeRoot.DECIMAL: 2,
    TypeRoot.CHAR: 1,
    TypeRoot.VARCHAR: 1,
    TypeRoot.BINARY: 1,
    TypeRoot.VARBINARY: 1,
    TypeRoot.TIME: 1,
    TypeRoot.TIMESTAMP: 1,
    TypeRoot.TIMESTAMP_LTZ: 1,
}


def _check(data_type: DataType, numbers: list[int], text: str, place: str) -> None:
    """Raises OptionError if a column cannot have the type, or if the `numbers` in the type's parentheses are out of
    range. `text` is the type as it was written, and `place` says where in the columns the type is, for the error.
    """
    problem = None
    if data_type.root in (TypeRoot.VARIANT, TypeRoot.BLOB):
        problem = "is not supported by this release"
    elif len(numbers) > _MOST_NUMBERS.get(data_type.root, 0) or (numbers and text.startswith(("STRING", "BYTES"))):
        problem = "has more numbers in parentheses than the type takes"
    else:
        problem = range_problem(data_type)
    if problem is not None:
        raise _refused(f"{place}: {text} {problem}")


def _refused(why: str) -> OptionError:
    return OptionError(f"schema text: {why}", key="schema")
