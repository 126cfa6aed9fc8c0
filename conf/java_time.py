"""Parses times in strings as Java's DateTimeFormatter does, with a pattern such as `yyyyMMdd HH` or without a pattern.

A time is returned in milliseconds since 1970-01-01, as if the string were in UTC.
Source: Java 17 DateTimeFormatter (resolver style SMART), Paimon 2.0 PartitionTimeExtractor.
"""

import re
from calendar import isleap, monthrange
from collections.abc import Mapping
from functools import cache

from bucketline.conf.errors import OptionError

_PLAIN = re.compile(
    r"(?P<y>-?[0-9]{1,10})-(?P<M>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
    r"(?: (?P<H>[0-9]{1,2}):(?P<m>[0-9]{1,2}):(?P<s>[0-9]{1,2})(?:\.(?P<S>[0-9]{1,9}))?)?"
)
_VALUES: Mapping[str, str] = {"M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}
_HIGHEST: Mapping[str, int] = {"M": 12, "d": 31, "H": 24, "m": 59, "s": 59}
_DAYS_OF_400_YEARS = 146_097
_DAY_MS = 86_400_000


def check_time_pattern(pattern: str) -> None:
    """Raises OptionError if the pattern cannot be used to parse times. The message names the letter that is not
    supported.
    """
    _compiled(pattern)


def read_time(text: str, pattern: str | None) -> int | None:
    """Parses a string with a pattern, and returns the time in milliseconds; None if the string does not fit the
    pattern. A date without a time means midnight.

    If `pattern` is None, the string must have the form `y-M-d` or `y-M-d H:m:s.S`. Then a month or day that is too high
    carries over into the next year or month.
    """
    if pattern is None:
        match = _PLAIN.fullmatch(text)
        return None if match is None else _lenient(match)
    match = _compiled(pattern).fullmatch(text)
    return None if match is None else _exact(match.groupdict())


def _lenient(match: re.Match[str]) -> int:
    years, months = divmod(int(match["M"]) - 1, 12)
    days = _days(int(match["y"]) + years, months + 1, 1) + int(match["d"]) - 1
    seconds = sum(int(match[unit] or 0) * scale for unit, scale in (("H", 3600), ("m", 60), ("s", 1)))
    return days * _DAY_MS + seconds * 1000 + int((match["S"] or "0").ljust(9, "0")) // 1_000_000


def _exact(texts: Mapping[str, str | None]) -> int | None:
    """Combines the parts of a time (year, month and so on) by the rules of Java's resolver style SMART, and returns the
    time in milliseconds; None if the parts are no valid time.

    A day up to 31 that the month does not have becomes the last day of the month, and 24:00 is the end of the day.
    """
    if any(texts.get(unit) is None for unit in ("y", "M", "d")):
        return None
    values = {unit: int(text) for unit, text in texts.items() if text is not None and unit in _HIGHEST}
    year = int(texts["y"] or 0) + (2000 if "yy" in texts else 0)
    if any(value > _HIGHEST[unit] for unit, value in values.items()) or year < 1:
        return None
    if values["M"] < 1 or values["d"] < 1:
        return None
    day = min(values["d"], monthrange(2000 if isleap(year) else 2001, values["M"])[1])
    hour, minute, second = (values.get(unit) for unit in ("H", "m", "s"))
    fraction = int((texts.get("S") or "0").ljust(9, "0")) // 1_000_000
    if hour is None or (minute is None and second is not None):
        hour = minute = second = fraction = 0
    if hour == 24 and (minute or second or fraction):
        return None
    seconds = hour * 3600 + (minute or 0) * 60 + (second or 0)
    return _days(year, values["M"], day) * _DAY_MS + seconds * 1000 + fraction


def _days(year: int, month: int, day: int) -> int:
    """Returns the number of days from 1970-01-01 to a date, which may be in any year."""
    shifted = year - (month <= 2)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * _DAYS_OF_400_YEARS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts: list[str] = []
    seen: set[str] = set()
    position, depth = 0, 0
    while position < len(pattern):
        letter = pattern[position]
        end = position + 1
        if letter == "'":
            literal, end = _quoted(pattern, position)
            parts.append(re.escape(literal))
        elif letter.isascii() and letter.isalpha():
            while end < len(pattern) and pattern[end] == letter:
                end += 1
            parts.append(_unit(pattern, letter, end - position, seen))
        elif letter in "[]":
            depth += 1 if letter == "[" else -1
            parts.append("(?:" if letter == "[" else ")?")
            if depth < 0:
                raise _unreadable(pattern, "a ']' has no '[' before it")
        elif letter in "{}#":
            raise _unreadable(pattern, f"{letter!r} is reserved")
        else:
            parts.append(re.escape(letter))
        position = end
    parts.append(")?" * depth)
    return re.compile("".join(parts))


def _unit(pattern: str, letter: str, count: int, seen: set[str]) -> str:
    name = {"u": "y", "L": "M"}.get(letter, letter)
    if name in seen:
        raise _unreadable(pattern, f"letter {letter!r} occurs twice")
    seen.add(name)
    if name == "y":
        if count == 2:
            return "(?P<yy>)(?P<y>[0-9]{2})"
        return f"(?P<y>[0-9]{{{count}}}|\\+[0-9]{{{count + 1},10}})" if count > 3 else f"(?P<y>[0-9]{{{count},10}})"
    if name == "S" and count <= 9:
        return f"(?P<S>[0-9]{{{count}}})"
    if name in _VALUES and count <= 2:
        return f"(?P<{name}>[0-9]{{{'1,10' if count == 1 else '2'}}})"
    raise _unreadable(
        pattern, f"{letter * count!r} is not supported; use y, M, d, H, m, s and S in their numeric forms"
    )


def _quoted(pattern: str, start: int) -> tuple[str, int]:
    """Returns the text between the quote at `start` and the next quote, and the index after the second quote. Two
    quotes in a row stand for one quote.
    """
    if pattern.startswith("''", start):
        return "'", start + 2
    match = re.compile(r"'((?:[^']|'')*)'").match(pattern, start)
    if match is None:
        raise _unreadable(pattern, "a quote is not closed")
    return match[1].replace("''", "'"), match.end()


def _unreadable(pattern: str, why: str) -> OptionError:
    return OptionError(f"this is no valid pattern for times: {why}", value=pattern)
