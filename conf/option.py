"""Defines an option: its key, type, default and meaning, and how its text is parsed.

Sizes and durations are written as in Paimon: `128 mb`, `10 s`. A number without a unit means bytes, or milliseconds.
Source: Paimon 2.0 ConfigOption, MemorySize, TimeUtils, OptionsUtils.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from bucketline.conf.errors import OptionError
from bucketline.conf.wording import shortened

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

UNLIMITED = 2**63 - 1
"""The number that `unlimited` stands for in sizes, durations and counts: Java's Long.MAX_VALUE."""


class StoredText(str):
    """The text of an option that was read from the file at `path`, so that an error about the option can name the
    file.
    """

    path: str

    @staticmethod
    def of(text: str, path: str) -> "StoredText":
        stored = StoredText(text)
        stored.path = path
        return stored


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """An option. If `default` is None, the option has no default. `fallback_keys` are older names of the option, which
    are tried in this order.
    """

    key: str
    parse: Callable[[str], T]
    default: T | None
    doc: str
    fallback_keys: tuple[str, ...] = ()

    def find(self, options: Mapping[str, str]) -> T | None:
        """Returns the value that is set in `options`, or the default, which may be None.

        Raises OptionError, which names the option, if the text cannot be parsed.
        """
        for key in (self.key, *self.fallback_keys):
            text = options.get(key)
            if text is not None:
                return self._read(key, text)
        return self.default

    def get(self, options: Mapping[str, str]) -> T:
        """Returns the value that is set in `options`, or the default. This method is for options that must have a
        value.

        Raises OptionError if the option is not set and has no default, or if its text cannot be parsed.
        """
        value = self.find(options)
        if value is None:
            raise OptionError(f"option '{self.key}' is required and not set: {self.doc}", key=self.key)
        return value

    def shown(self) -> str:
        """Returns the default as text; an empty string if the option has no default."""
        return self.text_of(self.default)

    def text_of(self, value: T | None) -> str:
        """Returns a value as text, in the largest unit that gives a whole number; an empty string for None."""
        return _text_of(value, self.parse)

    def is_set(self, options: Mapping[str, str]) -> bool:
        return any(key in options for key in (self.key, *self.fallback_keys))

    def _read(self, key: str, text: str) -> T:
        try:
            return self.parse(text)
        except OptionError as e:
            message = f"option '{key}' = {shortened(text)!r}: {e.message}"
            if isinstance(text, StoredText):
                raise OptionError(f"{message} ({text.path})", key=key, value=str(text), path=text.path) from e
            raise OptionError(message, key=key, value=text) from e


_MOST_SIGNS = 100
"""The largest number of characters in the text of a number. It is more than 64 bits need, to allow for zeros and
spaces.
"""

_NUMBER_AND_UNIT = re.compile(r"^\s*(\d+)\s*([a-zµ]*)\s*$")

_SIZE_UNITS = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}

_NANOS_OF_UNIT = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}


def parse_size(text: str) -> int:
    """Parses a size such as `128 mb`, and returns the size in bytes. Units are powers of 1024, and a number without a
    unit means bytes.

    Raises OptionError for any other text.
    """
    return _scaled(text, _SIZE_UNITS, "a size such as '128 mb' (units b, kb, mb, gb, tb)")


def parse_duration(text: str) -> int:
    """Parses a duration such as `10 s`, and returns the duration in milliseconds, rounded down. A number without a unit
    means milliseconds.

    Paimon reads stored options in this way. For options from users, `parse_given_duration` requires a unit. Raises
    OptionError for any other text.
    """
    nanos = _scaled(text, _NANOS_OF_UNIT, "a duration such as '10 s' (units d, h, min, s, ms, us, ns)")
    return nanos if nanos == UNLIMITED else nanos // 1_000_000


def parse_given_duration(text: str) -> int:
    """Parses a duration such as `10 s`, and returns the duration in milliseconds. Raises OptionError for any other
    text, and for a number without a unit.
    """
    duration_ms = parse_duration(text)
    if text.strip().isdigit():
        raise OptionError(f"{text.strip()} has no unit; write {with_units(text)}", value=text)
    return duration_ms


def with_units(text: str) -> str:
    """Returns suggestions for a duration without a unit, for an error message: `'5 ms', '5 s', '5 min', '5 h' or '5 d'`
    for the text `5`.
    """
    number = text.strip()
    return f"'{number} ms', '{number} s', '{number} min', '{number} h' or '{number} d'"


def _text_of(value: object, parse: Callable[[str], object]) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value == UNLIMITED:
        return "unlimited"
    if isinstance(value, int) and parse in _SHOWN_UNITS:
        unit, factor = next((u, f) for u, f in _SHOWN_UNITS[parse] if value % f == 0 and (value or f == 1))
        return f"{value // factor} {unit}"
    if isinstance(value, tuple):
        return ",".join(str(getattr(part, "value", part)) for part in value)
    if isinstance(value, dict):
        return ",".join(f"{k}:{getattr(v, 'value', v)}" for k, v in value.items())
    return str(getattr(value, "value", value))


_MILLISECONDS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))
_SHOWN_UNITS: Mapping[Callable[[str], object], tuple[tuple[str, int], ...]] = {
    parse_size: (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10), ("b", 1)),
    parse_duration: _MILLISECONDS,
    parse_given_duration: _MILLISECONDS,
}
"""The units of bytes and of milliseconds, each with the largest unit first."""


def _scaled(text: str, units: Mapping[str, int], expected: str) -> int:
    lowered = text.strip().lower()
    if lowered == "unlimited":
        return UNLIMITED
    match = _NUMBER_AND_UNIT.match(lowered)
    if match is None or match[2] not in units:
        raise OptionError(f"not {expected}", value=text)
    amount = whole_number(match[1]) * units[match[2]]
    if amount // max(1, units[""]) > UNLIMITED:
        raise OptionError("does not fit into 64 bits; write 'unlimited' if there should be no limit", value=text)
    return amount


def parse_bool(text: str) -> bool:
    """Parses `true` or `false`, in upper or lower case. Raises OptionError for any other text."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise OptionError("must be 'true' or 'false'", value=text)
    return lowered == "true"


def parse_int(text: str) -> int:
    """Parses a whole number of at most 64 bits. Raises OptionError for any other text."""
    stripped = text.strip()
    try:
        return whole_number(stripped)
    except ValueError as e:
        raise OptionError("must be a whole number", value=text) from e


def whole_number(digits: str) -> int:
    """Converts digits, with or without a sign, to a number.

    Raises OptionError for a number that does not fit into 64 bits, and ValueError for a text that is no number.
    Python's own error for a number with thousands of digits would not name the option.
    """
    number = int(digits) if len(digits) <= _MOST_SIGNS else None
    if number is None or not -UNLIMITED - 1 <= number <= UNLIMITED:
        raise OptionError(f"{shortened(digits)} does not fit into 64 bits", value=shortened(digits))
    return number


def parse_count(text: str) -> int:
    """Parses a whole number that is not negative. `unlimited` means the largest number."""
    count = UNLIMITED if text.strip().lower() == "unlimited" else parse_int(text)
    if count < 0:
        raise OptionError("must not be negative", value=text)
    return count


def parse_float(text: str) -> float:
    """Parses a finite number. Raises OptionError for any other text."""
    try:
        number = float(text.strip())
    except ValueError as e:
        raise OptionError("must be a number", value=text) from e
    if number != number or number in (float("inf"), float("-inf")):
        raise OptionError("must be a finite number", value=text)
    return number


def parse_text(text: str) -> str:
    """Returns the text without spaces at its start and end."""
    return text.strip()


def parse_given_text(text: str) -> str:
    """Returns the text without spaces at its start and end. Raises OptionError for an empty text."""
    stripped = text.strip()
    if not stripped:
        raise OptionError("must not be empty", value=text)
    return stripped


def parse_name_part(text: str) -> str:
    """Returns the text, which becomes a part of a file name. Raises OptionError for a text that would make the name a
    path to another folder.
    """
    name = text.strip()
    if name in (".", "..") or "/" in name or "\0" in name:
        raise OptionError(
            "becomes part of a file's name, so it must not be '.' or '..' and must not contain '/'", value=text
        )
    return name


def parse_names(text: str) -> tuple[str, ...]:
    """Returns the names in a comma-separated list, in order, without spaces around them. Raises OptionError for
    `a,,b`.
    """
    if not text.strip():
        return ()
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise OptionError("has an empty name between commas", value=text)
    return names


def parse_hour(text: str) -> int:
    """Parses an hour of the day, 0 to 23. -1 means that no hour is set. Raises OptionError for any other text."""
    hour = parse_int(text)
    if not -1 <= hour <= 23:
        raise OptionError("must be an hour of the day (0 to 23), or -1 for off", value=text)
    return hour


def parse_map(text: str) -> dict[str, str]:
    """Parses `k1:v1,k2:v2`, the form in which Paimon writes maps, as a dict. Raises OptionError for a part without a
    colon.
    """
    pairs: dict[str, str] = {}
    for part in parse_names(text):
        key, colon, value = part.partition(":")
        if not colon:
            raise OptionError(f"{part!r} is not 'key:value'", value=text)
        pairs[key.strip()] = value.strip()
    return pairs


def parse_choice(*choices: str) -> Callable[[str], str]:
    """Returns a parser that accepts only the given words. Upper and lower case are the same and `_` counts as `-`, as
    in Paimon's enums.
    """

    def parse(text: str) -> str:
        lowered = text.strip().lower().replace("_", "-")
        if lowered not in choices:
            raise OptionError(f"must be one of {', '.join(choices)}{did_you_mean(lowered, choices)}", value=text)
        return lowered

    return parse


def parse_enum(kind: type[E]) -> Callable[[str], E]:
    """Returns a parser that returns the enum member whose value is the text. Upper and lower case are the same, and `_`
    counts as `-`.
    """
    members = {str(member.value).lower().replace("_", "-"): member for member in kind}
    word = parse_choice(*members)
    return lambda text: members[word(text)]


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Returns the known word that is most similar to `word`; None if no known word is similar. A word counts as similar
    if its similarity to `word`, from 0 to 1, is at least `cutoff`. If several known words are equally similar, the
    first in sorted order is returned.
    """
    matches = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def check_texts(options: Mapping[str, str], where: str) -> None:
    """Raises OptionError, which names the option, if a value is no string. Options are stored as strings. `where` says
    in the error where the options are.
    """
    for key, value in options.items():
        if not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else value
            remedy = "leave the option out" if value is None else f"write '{text}' in quotes"
            raise OptionError(f"'{key}' = {value!r} in {where} is no string; {remedy}", key=key, value=value)


def check_names(names: object, argument: str) -> None:
    """Raises OptionError, which names the argument, if an argument for several names is a single string. Each character
    of the string would be taken for a name.
    """
    if isinstance(names, str):
        raise OptionError(f"{argument} must be a list of names, not a single string; write ({names!r},)", key=argument)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of an error message, `; did you mean 'x'?`, with the most similar known word; an empty string if
    no known word is similar.
    """
    near = nearest(word, known)
    return "" if near is None else f"; did you mean '{near}'?"


def nearest_key(key: str, known: Iterable[str]) -> str:
    """Returns the end of an error message about an unknown key. The text suggests the most similar known key, as
    `did_you_mean` does. If no known key is similar enough for a suggestion, the text names the nearest known key.
    """
    keys = set(known)
    similar = did_you_mean(key, keys)
    near = None if similar else nearest(key, keys, cutoff=0.0)
    return similar if near is None else f"; the nearest known one is '{near}'"
