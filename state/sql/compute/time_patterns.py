"""Formats and parses dates and times with Spark's patterns, such as `yyyy-MM-dd HH:mm:ss`.

When a column is formatted, each distinct day and each distinct second of a day is formatted once, not every row. A
pattern with a letter that is not supported is refused.
Source: Spark 4.0 docs/sql-ref-datetime-pattern, DateTimeFormatterHelper; Java's DateTimeFormatter in English.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.state.types.if_else import if_else

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DAY_US, SECOND_US = 86_400_000_000, 1_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_MONTHS = [date(2000, month, 1).strftime("%B") for month in range(1, 13)]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_DIGITS = {
    "y": (4, 9999),
    "M": (2, 12),
    "d": (2, 31),
    "H": (2, 23),
    "h": (2, 12),
    "m": (2, 59),
    "s": (2, 59),
    "D": (3, 366),
}
"""Letters of a pattern that stand for numbers that can be parsed, each with the largest number of digits and the
largest value.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a pattern: a letter and how often it is repeated, or literal text (then `letter` is empty)."""

    letter: str
    count: int
    text: str = ""

    @property
    def room(self) -> str:
        """Returns which part of a time this piece of the pattern shows: `day`, `second` (the second of the day) or
        `fraction`. Returns an empty string if the piece is literal text, such as the `:` in `HH:mm`.
        """
        if not self.letter:
            return ""
        return "second" if self.letter in _OF_SECOND else "fraction" if self.letter == "S" else "day"


@lru_cache(maxsize=256)
def pieces_of(pattern: str) -> tuple[Piece, ...]:
    """Splits a pattern of times into pieces: repeated letters, and literal texts. For example, the pieces of `yyyy-MM`
    are `yyyy`, the text `-`, and `MM`. Raises OptionError, which names the letter, for a letter that is not supported.
    """
    found = list[Piece]()
    for match in re.finditer(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])|(')", pattern):
        quoted, letter, sign, open_quote = match.groups()
        if open_quote or (sign is not None and sign in "[]{}#"):
            raise OptionError(f"pattern {pattern!r}: {match[0]} is not supported", key="expression")
        if letter is not None:
            found.append(_checked(Piece(letter, len(match[0])), pattern))
        else:
            text = sign if quoted is None else quoted.replace("''", "'") or "'"
            found.append(Piece("", 0, text))
    return tuple(found)


def _checked(piece: Piece, pattern: str) -> Piece:
    most = {**_WRITTEN, "S": 9}.get(piece.letter)
    if most is None or piece.count > (most if isinstance(most, int) else most[0]):
        raise OptionError(
            f"pattern {pattern!r}: {piece.letter * piece.count} is not supported; supported letters are "
            f"{', '.join((*_WRITTEN, 'S'))}",
            key="expression",
        )
    return piece


def written(local_us: pa.Array, pattern: str) -> pa.Array:
    """Formats local times, given in microseconds since 1970 (int64), as strings. Nulls stay nulls.

    Raises ArrowInvalid for a year that does not have four digits, and OptionError for a pattern that is not supported.
    """
    pieces = pieces_of(pattern)
    moments: Longs = np.asarray(local_us.fill_null(0), np.int64)
    is_null: Bools | None = np.asarray(local_us.is_null()) if local_us.null_count else None
    texts = []
    for room, run in _runs(pieces):
        if room == "fraction":
            texts.append(_fractions(moments, run[0].count))
            continue
        units = moments // DAY_US if room == "day" else moments // SECOND_US % 86_400
        distinct, places = distinct_places(units)
        values = pa.array([_text_of(int(unit), room, run) for unit in distinct], pa.string())
        texts.append(values.take(pa.array(places)))
    if not texts:
        texts = [pa.repeat(pa.scalar(""), len(moments))]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "")
    return joined if is_null is None else if_else(pa.array(is_null), pa.scalar(None, pa.string()), joined)


def distinct_places(values: Longs) -> tuple[Longs, Longs]:
    """Returns the distinct values in ascending order, and for each value its index in these distinct values."""
    if not len(values):
        return values, values
    first, last = int(values.min()), int(values.max())
    if last - first > 4 * len(values) + 100_000:
        distinct, places = np.unique(values, return_inverse=True)
        return distinct, places
    steps = values - first
    is_there = np.zeros(last - first + 1, np.bool_)
    is_there[steps] = True
    return np.flatnonzero(is_there) + first, (np.cumsum(is_there) - 1)[steps]


def _runs(pieces: tuple[Piece, ...]) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """Divides the pieces (fields and literal texts) of a time pattern into groups: the pieces of a group follow each
    other and show the same part of a time, for example the day or the second. Yields for each group the name of this
    part, and the pieces. Literal text belongs to the group before it.
    """
    rooms = list[str]()
    for at, piece in enumerate(pieces):
        after = next((p.room for p in pieces[at:] if p.room), "day")
        before = rooms[-1] if rooms else after
        own = piece.room or (before if before != "fraction" else ("second" if after == "fraction" else after))
        rooms.append(own)
    for room, run in groupby(zip(rooms, pieces, strict=True), key=lambda item: item[0]):
        yield room, tuple(piece for _, piece in run)


def _fractions(moments: Longs, count: int) -> pa.Array:
    micros = moments % SECOND_US
    digits = pa.array(micros + SECOND_US).cast(pa.string())
    text = pc.utf8_slice_codeunits(digits, 1, 1 + min(count, 6))
    return text if count <= 6 else pc.utf8_rpad(text, width=count, padding="0")


@lru_cache(maxsize=1 << 16)
def _text_of(unit: int, room: str, run: tuple[Piece, ...]) -> str:
    if room == "day":
        ordinal = unit + _EPOCH
        if not 1 <= ordinal <= date.max.toordinal():
            raise pa.ArrowInvalid("a date outside of the years 1 to 9999 cannot be formatted with a pattern")
        day = date.fromordinal(ordinal)
        return "".join(p.text or _of_day(day, p) for p in run)
    return "".join(p.text or _of_second(unit, p) for p in run)


def _of_day(day: date, piece: Piece) -> str:
    letter, count = piece.letter, piece.count
    if letter == "y":
        return f"{day.year % 100:02}" if count == 2 else f"{day.year:0{count}}"
    if letter in "ML":
        return _MONTHS[day.month - 1][: 3 if count == 3 else None] if count > 2 else f"{day.month:0{count}}"
    if letter == "E":
        return _DAYS[day.weekday()][: 3 if count <= 3 else None]
    if letter == "D":
        return f"{day.timetuple().tm_yday:0{count}}"
    number = day.day if letter == "d" else (day.month + 2) // 3
    return f"{number:0{count}}"


def _of_second(second: int, piece: Piece) -> str:
    hour = second // 3600
    if piece.letter == "a":
        return "AM" if hour < 12 else "PM"
    number = {
        "H": hour,
        "k": hour or 24,
        "K": hour % 12,
        "h": hour % 12 or 12,
        "m": second // 60 % 60,
        "s": second % 60,
    }[piece.letter]
    return f"{number:0{piece.count}}"


_OF_SECOND = "HhKkmsa"
_WRITTEN: Mapping[str, int] = {
    **dict.fromkeys("yMLE", 4),
    "D": 3,
    **dict.fromkeys("dQHhKkms", 2),
    "a": 1,
}
"""Letters of a pattern that can be formatted, and how often each may be repeated."""


def read(texts: pa.Array, pattern: str) -> tuple[Longs, Bools]:
    """Parses strings with a pattern. Returns local times in microseconds since 1970, and a mask of the strings that
    match the pattern.

    Raises OptionError for a pattern that is not supported.
    """
    matched = pc.extract_regex(texts, _regex(pattern))
    is_read = np.asarray(matched.is_valid())
    parts = {f.name: matched.field(i) for i, f in enumerate(matched.type)}

    def number(name: str, default: int) -> Longs:
        if name not in parts:
            return np.full(len(texts), default, np.int64)
        digits = if_else(pa.array(is_read), parts[name], pa.scalar(str(default)))
        return np.asarray(digits.cast(pa.int64()), np.int64)

    year = number("y", 1970) + (2000 if Piece("y", 2) in pieces_of(pattern) else 0)
    month = number("M", 1) if "N" not in parts else _named_month(parts["N"])
    hour = number("H", 0)
    if "h" in parts:
        hour = number("h", 12) % 12 + 12 * np.asarray(pc.fill_null(pc.equal(pc.utf8_upper(parts["a"]), "PM"), False))
        is_read &= (number("h", 12) >= 1) & (number("h", 12) <= 12)
    days, is_day = days_of(year, month, number("d", 1))
    fraction = np.zeros(len(texts), np.int64)
    if "f" in parts:
        digits = pc.utf8_slice_codeunits(pc.fill_null(parts["f"], "0"), 0, 6)
        fraction = np.asarray(pc.utf8_rpad(digits, width=6, padding="0").cast(pa.int64()), np.int64)
    minute, second = number("m", 0), number("s", 0)
    is_read &= is_day & (hour <= 23) & (minute <= 59) & (second <= 59)
    return days * DAY_US + ((hour * 60 + minute) * 60 + second) * SECOND_US + fraction, is_read


def _named_month(names: pa.Array) -> Longs:
    known = pa.array([name[:3] for name in _MONTHS])
    return np.asarray(pc.index_in(pc.utf8_slice_codeunits(names, 0, 3), value_set=known).fill_null(0), np.int64) + 1


@lru_cache(maxsize=256)
def _regex(pattern: str) -> str:
    parts, pieces = ["^"], pieces_of(pattern)
    letters = [p.letter for p in pieces if p.letter]
    if len(set(letters)) < len(letters) or ("h" in letters) != ("a" in letters) or {"h", "H"} <= set(letters):
        raise OptionError(f"pattern {pattern!r} is not supported for parsing strings", key="expression")
    for piece in pieces:
        letter, count = piece.letter, piece.count
        if not letter:
            parts.append(re.escape(piece.text))
        elif letter == "S":
            parts.append(f"(?P<f>[0-9]{{1,{count}}})")
        elif letter == "a":
            parts.append("(?P<a>(?i:AM|PM))")
        elif letter in "ML" and count > 2:
            names = _MONTHS if count > 3 else [name[:3] for name in _MONTHS]
            parts.append(f"(?P<N>{'|'.join(names)})")
        elif letter in _DIGITS and letter != "D" and (letter != "y" or count in (2, 4)):
            most = _DIGITS[letter][0] if count == 1 else count
            parts.append(f"(?P<{letter}>[0-9]{{{count},{most}}})")
        else:
            raise OptionError(
                f"pattern {pattern!r}: {letter * count} is not supported for parsing strings", key="expression"
            )
    return "".join([*parts, "$"])


def days_of(year: Longs, month: Longs, day: Longs) -> tuple[Longs, Bools]:
    """Returns the number of days since 1970 of dates in the Gregorian calendar, and a mask of the dates that exist and
    are in the years 1 to 9999.
    """
    is_day = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (year >= 1) & (year <= 9999)
    first = (np.where(is_day, year, 1970) - 1970).astype("M8[Y]").astype("M8[M]")
    months = first + np.where(is_day, month - 1, 0).astype("m8[M]")
    days = months.astype("M8[D]") + np.where(is_day, day - 1, 0).astype("m8[D]")
    return days.astype(np.int64), is_day & (days.astype("M8[M]") == months)


_STAMP = (
    r"^[\x00-\x20]*(?P<y>[0-9]{4,6})(?:-(?P<M>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})"
    r"(?:[ T](?P<H>[0-9]{1,2}):(?P<m>[0-9]{1,2})(?::(?P<s>[0-9]{1,2})(?:\.(?P<f>[0-9]{0,9}))?)?"
    r"(?P<z> ?(?:Z|UTC|GMT|[+-][0-9]{1,2}(?::[0-9]{1,2})?))?)?)?)?[\x00-\x20]*$"
)
_DATE = r"^[\x00-\x20]*(?P<y>[0-9]{4,7})(?:-(?P<M>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})(?:[ T].*)?)?)?[\x00-\x20]*$"

_CLOCK = r"(?:[01]?[0-9]|2[0-3]):[0-5]?[0-9](?::[0-5]?[0-9](?:\.[0-9]*)?)?"
_ZONE = r" ?(?:[A-Z][A-Za-z]*(?:[/_+-][A-Za-z0-9:]+)*|[+-][0-9][0-9:]*)"
_SIGNED = r"[+-][0-9]{4,7}(?:-[0-9].*)?"
SIGNED_YEAR = rf"^[\x00-\x20]*{_SIGNED}[\x00-\x20]*$"
OTHER_STAMP = (
    rf"^[\x00-\x20]*(?:T?{_CLOCK}(?:{_ZONE})?|[0-9]{{4,6}}-[0-9]{{1,2}}-[0-9]{{1,2}}[ T]{_CLOCK}{_ZONE}"
    rf"|{_SIGNED})[\x00-\x20]*$"
)
"""Matches strings that Spark parses as dates or times, but this module does not support."""


@dataclass(frozen=True, slots=True)
class Stamps:
    """Strings parsed as times. For each string, `moments` has the time as it is written, in microseconds, and `is_read`
    says whether the string is a time. If `has_zone` is true for a string, the string contains an offset from UTC, and
    `offsets` has this offset in microseconds.
    """

    moments: Longs
    is_read: Bools
    offsets: Longs
    has_zone: Bools


def read_stamps(texts: pa.Array) -> Stamps:
    """Parses strings as CAST(... AS TIMESTAMP) does. Offsets from UTC are supported, but names of time zones are
    not.
    """
    parts, is_read = _parts(texts, _STAMP)
    days, is_day = days_of(_numbers(parts["y"]), _numbers(parts["M"], 1), _numbers(parts["d"], 1))
    hour, minute, second = (_numbers(parts[name]) for name in "Hms")
    fraction = np.asarray(
        pc.utf8_rpad(pc.utf8_slice_codeunits(parts["f"], 0, 6), width=6, padding="0").cast(pa.int64()), np.int64
    )
    is_read &= is_day & (hour <= 23) & (minute <= 59) & (second <= 59)
    zone = pc.utf8_trim(parts["z"], characters=" ")
    has_zone = np.asarray(pc.not_equal(zone, ""))
    signed = pc.extract_regex(zone, r"^(?P<sign>[+-])(?P<h>[0-9]{1,2})(?::(?P<m>[0-9]{1,2}))?$")
    sign = np.where(np.asarray(pc.fill_null(pc.equal(signed.field(0), "-"), False)), -1, 1)
    offsets = sign * (_numbers(signed.field(1)) * 3600 + _numbers(signed.field(2)) * 60) * SECOND_US
    is_read &= np.abs(offsets) <= 18 * 3600 * SECOND_US
    moments = days * DAY_US + ((hour * 60 + minute) * 60 + second) * SECOND_US + fraction
    return Stamps(moments, is_read, offsets, has_zone)


def refuse_beyond(texts: pa.Array, is_read: Bools, pattern: str) -> None:
    """Raises ArrowInvalid for strings that Spark can parse and this module cannot, because such strings must not become
    null. The error names the string. `is_read` marks the strings that were parsed. Every other string that matches the
    regular expression `pattern` is refused.

    An example is a time without a date. Its date would be the present day, which may be another day when a batch is
    repeated.
    """
    unread = texts.filter(pa.array(~is_read & np.asarray(texts.is_valid())))
    beyond = unread.filter(pc.match_substring_regex(unread, pattern)) if len(unread) else unread
    if len(beyond):
        raise pa.ArrowInvalid(
            f"{beyond[0].as_py()[:80]!r} cannot be parsed: a time without a date, a year with a sign, or the name of "
            "a zone "
            "is not supported"
        )


def read_dates(texts: pa.Array) -> tuple[Longs, Bools]:
    """Parses strings as CAST(... AS DATE) does. Returns days since 1970, and a mask of the strings that are dates."""
    parts, is_read = _parts(texts, _DATE)
    days, is_day = days_of(_numbers(parts["y"]), _numbers(parts["M"], 1), _numbers(parts["d"], 1))
    return days, is_read & is_day


def _parts(texts: pa.Array, regex: str) -> tuple[Mapping[str, pa.Array], Bools]:
    matched = pc.extract_regex(texts, regex)
    names = [f.name for f in matched.type]
    return {name: pc.fill_null(pc.struct_field(matched, name), "") for name in names}, np.asarray(matched.is_valid())


def _numbers(digits: pa.Array, default: int = 0) -> Longs:
    given = if_else(pc.fill_null(pc.equal(digits, ""), True), pa.scalar(str(default)), digits)
    return np.asarray(given.cast(pa.int64()), np.int64)
