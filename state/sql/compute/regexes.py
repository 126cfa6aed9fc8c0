"""Converts Java's regular expressions, which RLIKE, regexp_extract, regexp_replace and split use, to those of RE2,
Arrow's library.

A pattern that RE2 does not support, or that has another meaning in RE2, is refused. `.`, `\\s` and a `$` at the end are
written out, because Java knows more line terminators.
Source: java.util.regex.Pattern; RE2's syntax.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.calls import Evaluate, Function, FunctionCall, literal
from bucketline.state.sql.compute.moments import by_array
from bucketline.state.sql.compute.numbers import Value
from bucketline.state.sql.compute.texts import text_of
from bucketline.state.types.if_else import if_else

_SPACE = r"\t\n\x0B\f\r "
_ANY = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_IN_CLASS = {"d": "0-9", "w": "a-zA-Z_0-9", "s": _SPACE}
_CLASSES = {**{k: f"[{v}]" for k, v in _IN_CLASS.items()}, **{k.upper(): f"[^{v}]" for k, v in _IN_CLASS.items()}}
_SIGNS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_LITERAL = set("\\.[]{}()*+?^$|-/'\"#&~,:;=<>!@% _`")
_QUANTIFIER = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")


_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"


@lru_cache(maxsize=256)
def re2_of(pattern: str, group: int | None = None) -> str:
    """Returns the pattern for RE2. If `group` is given, the result has only this group, with the name `g`. Group 0 is
    the whole match.

    Raises OptionError for a pattern that is not supported.
    """
    inner, ends = (pattern[:-1], True) if _ends(pattern) else (pattern, False)
    parts = list(_parts(inner, group))
    if group and "(?P<g>" not in parts:
        raise OptionError(f"pattern {pattern!r} has no group {group}", key="expression")
    whole = "".join(parts)
    if ends and "|" in parts:
        raise _refused(pattern, "$ together with |; put the alternatives in parentheses: (a|b)$")
    whole = f"(?P<g>{whole})" if group == 0 else whole
    whole += _END if ends else ""
    try:
        pc.match_substring_regex(pa.array([""]), whole)
    except pa.ArrowInvalid as e:
        raise _refused(pattern, str(e)) from e
    return whole


def _ends(pattern: str) -> bool:
    """Returns True if a pattern ends with a `$` that means the end of the string."""
    before = pattern[:-1]
    return pattern.endswith("$") and (len(before) - len(before.rstrip("\\"))) % 2 == 0


def _parts(pattern: str, group: int | None) -> Iterator[str]:
    at, count, can_repeat = 0, 0, False
    while at < len(pattern):
        sign, quantifier = pattern[at], _QUANTIFIER.match(pattern, at)
        if quantifier and can_repeat:
            at = quantifier.end()
            lazy = pattern[at : at + 1] == "?"
            if pattern[at : at + 1] == "+" or _QUANTIFIER.match(pattern, at + lazy):
                raise _refused(pattern, "a quantifier after another quantifier")
            yield quantifier[0] + ("?" if lazy else "")
            at, can_repeat = at + lazy, False
            continue
        can_repeat = sign not in "^|("
        if sign == "\\":
            yield _escaped(pattern, at)
            at += 2
        elif sign == "[":
            text, at = _class(pattern, at)
            yield text
        elif sign == "(":
            is_plain = not pattern.startswith("(?", at)
            if not is_plain and not pattern.startswith("(?:", at):
                raise _refused(pattern, pattern[at : at + 3])
            count += is_plain
            yield "(?:" if not is_plain or (group is not None and count != group) else "(?P<g>" if group else "("
            at += 1 if is_plain else 3
        elif sign in "*+?{}]$":
            raise _refused(pattern, f"{sign} at position {at + 1}")
        else:
            yield _ANY if sign == "." else sign if sign in "^|)" else re.escape(sign)
            at += 1


def _escaped(pattern: str, at: int) -> str:
    sign = pattern[at + 1 : at + 2]
    known = _CLASSES.get(sign) or _SIGNS.get(sign) or (re.escape(sign) if sign and sign in _LITERAL else None)
    if known is None:
        raise _refused(pattern, f"\\{sign}")
    return known


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Returns the character class in brackets that begins at position `at` of the pattern, and the position after its
    end.
    """
    parts, first = ["["], at
    at += 1
    if pattern[at : at + 1] == "^":
        parts.append("^")
        at += 1
    begin = len(parts)
    while at < len(pattern) and pattern[at] != "]":
        sign = pattern[at]
        if sign == "\\":
            letter = pattern[at + 1 : at + 2]
            inner = _IN_CLASS.get(letter) or _SIGNS.get(letter)
            inner = inner or (f"\\{letter}" if letter and letter in _LITERAL else None)
            if inner is None:
                raise _refused(pattern, f"\\{letter} in brackets")
            parts.append(inner)
            at += 2
        elif sign == "[" or pattern.startswith("&&", at):
            raise _refused(pattern, "brackets in brackets")
        else:
            parts.append("-" if sign == "-" else re.escape(sign))
            at += 1
    if at >= len(pattern) or len(parts) == begin:
        raise _refused(pattern, f"the bracket at position {first + 1}")
    return "".join([*parts, "]"]), at + 1


def _refused(pattern: str, why: str) -> OptionError:
    return OptionError(f"the regular expression {pattern!r} is not supported: {why}", key="expression")


def _rlike(call: FunctionCall, value: Evaluate) -> Value:
    pattern = re2_of(literal(call.arguments[1], str))
    return pc.match_substring_regex(text_of(call.arguments[0], value), pattern)


def _regexp_extract(call: FunctionCall, value: Evaluate) -> Value:
    group = literal(call.arguments[2], int) if len(call.arguments) > 2 else 1
    pattern = re2_of(literal(call.arguments[1], str), group)

    def extracted(texts: pa.Array) -> pa.Array:
        found = pc.struct_field(pc.extract_regex(texts, pattern), "g")
        return if_else(texts.is_valid(), pc.fill_null(found, ""), pa.scalar(None, pa.string()))

    return by_array(text_of(call.arguments[0], value), extracted)


def _regexp_replace(call: FunctionCall, value: Evaluate) -> Value:
    given, new = literal(call.arguments[1], str), literal(call.arguments[2], str)
    if _ends(given):
        raise _refused(given, "$ in a pattern that is replaced")
    pattern = re2_of(given)
    if re.search(r"\\[^$\\]|\\$|\$(?!\d)|\$\d\d", new):
        raise OptionError(f"{call.text!r}: the replacement is not supported; write $1 for a group", key="expression")
    unescaped = re.sub(r"\\(.)|\$(\d)", lambda m: f"\\{m[2]}" if m[2] else m[1].replace("\\", "\\\\"), new)
    return pc.replace_substring_regex(text_of(call.arguments[0], value), pattern, unescaped)


def _split(call: FunctionCall, value: Evaluate) -> Value:
    given = literal(call.arguments[1], str)
    pattern = re2_of(given)
    if pc.match_substring_regex(pa.array([""]), f"^(?:{pattern})$")[0].as_py():
        raise _refused(given, "it can match an empty string, which split does not support")
    return by_array(text_of(call.arguments[0], value), lambda texts: pc.split_pattern_regex(texts, pattern))


REGEX_FUNCTIONS: Mapping[str, Function] = {
    "rlike": Function(2, 2, _rlike),
    "regexp": Function(2, 2, _rlike),
    "regexp_like": Function(2, 2, _rlike),
    "regexp_extract": Function(2, 3, _regexp_extract),
    "regexp_replace": Function(3, 3, _regexp_replace),
    "split": Function(2, 2, _split),
}
