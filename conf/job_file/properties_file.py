"""Parses files with the syntax of Java's .properties files.

Source: java.util.Properties.load: comments `#` and `!`, separators `=`, `:` or blanks, continuation and escapes by
backslash.
"""

import re
from collections.abc import Iterator

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"(?:[^\\=:\s]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"\s*[=:]?\s*")
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> list[tuple[str, str]]:
    """Returns pairs of key and value, in the order of the text. A key may occur more than once. White space at the end
    of a value is removed.
    """
    pairs = []
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "the pattern matches the empty text"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "the pattern matches the empty text"
        pairs.append((_unescape(key.group()), _unescape(line[separator.end() :]).strip()))
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2 == 1:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _character(match.group(1)), text)


def _character(escaped: str) -> str:
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    return _NAMED.get(escaped, escaped)
