"""Options of single columns, `fields.<column>.<what>`: parses them, and checks them with the table's columns. Source:
Paimon 2.0 CoreOptions (fields.*), SchemaValidation.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from bucketline.conf.errors import OptionError
from bucketline.conf.option import UNLIMITED, Option, parse_bool, parse_enum, parse_int, parse_names
from bucketline.conf.table.choices import NullKeys
from bucketline.conf.table.index_options import rename_indexed
from bucketline.conf.table.stats_mode import StatsMode, parse_stats_mode

T = TypeVar("T")

PREFIX = "fields."
DEFAULT_FUNCTION = "fields.default-aggregate-function"
SEQUENCE_GROUP = "sequence-group"
FUNCTION = "aggregate-function"
IGNORE_RETRACT = "ignore-retract"
DELIMITER = "list-agg-delimiter"
DISTINCT = "distinct"
NESTED_KEY = "nested-key"
NESTED_SEQUENCE = "nested-sequence-field"
NULL_KEYS = "nested-key-null-strategy"
COUNT_LIMIT = "count-limit"
TIME_FIELD = "ts-field"
STATS_MODE = "stats-mode"
SUFFIXES = (
    SEQUENCE_GROUP,
    FUNCTION,
    IGNORE_RETRACT,
    DELIMITER,
    DISTINCT,
    NESTED_KEY,
    NESTED_SEQUENCE,
    NULL_KEYS,
    COUNT_LIMIT,
    TIME_FIELD,
    STATS_MODE,
)
_STATS_MODE_KEY = re.compile(rf"{re.escape(PREFIX)}.+\.{STATS_MODE}")


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The parameters of the aggregate function of one column. `nested_key`, `nested_sequence` and
    `time_field` name fields of the ROW type inside the column.
    """

    ignores_retracts: bool = False
    delimiter: str = ","
    distinct: bool = False
    nested_key: tuple[str, ...] = ()
    nested_sequence: tuple[str, ...] = ()
    null_keys: NullKeys = NullKeys.MERGE
    count_limit: int = UNLIMITED
    time_field: str | None = None


@dataclass(frozen=True, slots=True)
class SequenceGroupOption:
    """An option `fields.<sequence>.sequence-group`. `sequence` are the columns in its key, and `columns` are the
    columns in its value.
    """

    key: str
    sequence: tuple[str, ...]
    columns: tuple[str, ...]


class ColumnSettings:
    """The `fields.*` options of a table. Each option is parsed when it is first used."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._parameters: dict[str, FieldOptions] = {}

    def parameters(self, column: str) -> FieldOptions:
        """Returns the parameters of a column's function. Raises OptionError, which names the option, for a value that
        cannot be parsed.
        """
        if column not in self._parameters:
            self._parameters[column] = _parameters(self._options, column)
        return self._parameters[column]

    def function_of(self, column: str) -> tuple[str, str] | None:
        """Returns the name of a column's aggregate function, and the key of the option that sets the function: the
        column's own option, or the option for all columns. Returns None if neither is set.
        """
        for key in (f"{PREFIX}{column}.{FUNCTION}", DEFAULT_FUNCTION):
            if key in self._options:
                return self._options[key].strip(), key
        return None

    def own_function_key(self, column: str) -> str | None:
        """Returns the key of the option that sets an aggregate function for this column only; None if it is not set."""
        key = f"{PREFIX}{column}.{FUNCTION}"
        return key if key in self._options else None

    def stats_mode(self, column: str) -> StatsMode | None:
        """Returns the stats mode of a column, which says which statistics of its values are stored; None if the column
        has no own mode.
        """
        return _option(column, STATS_MODE, parse_stats_mode, None).find(self._options)

    @cached_property
    def sequence_groups(self) -> tuple[SequenceGroupOption, ...]:
        """Returns the sequence group options, sorted by their keys."""
        return tuple(
            SequenceGroupOption(key, names, parse_names(self._options[key]))
            for key, names, suffix in sorted(_parsed(self._options))
            if suffix == SEQUENCE_GROUP
        )

    def check(self, columns: Sequence[str]) -> None:
        """Raises OptionError for the first name in a `fields.*` option that is not a column of the table."""
        for problem in self.problems(columns):
            raise problem

    def problems(self, columns: Sequence[str]) -> Iterator[OptionError]:
        """Yields an error for each name in a `fields.*` option that is not a column of the table. The error has the key
        of the option and the name.
        """
        for key, names, _ in _parsed(self._options):
            for name in names:
                if name not in columns:
                    yield OptionError(
                        f"'{key}': Field {name} can not be found in table schema; "
                        f"the option must name one of {', '.join(columns)}",
                        key=key,
                        column=name,
                    )
        for group in self.sequence_groups:
            for name in group.columns:
                if name not in columns:
                    yield OptionError(
                        f"'{group.key}' = '{self._options[group.key]}': Field {name} can not be found in table schema; "
                        f"the columns are {', '.join(columns)}",
                        key=group.key,
                        column=name,
                    )


def check_stats_modes(options: Mapping[str, str]) -> None:
    """Raises OptionError, which names the option, if the stats mode of a column cannot be parsed."""
    for key in options:
        if _STATS_MODE_KEY.fullmatch(key):
            Option(key, parse_stats_mode, None, "").find(options)


def rename_in_options(options: Mapping[str, str], old: str, new: str, *, naming: Collection[str]) -> dict[str, str]:
    """Returns the options with a column renamed from `old` to `new`. `naming` has the keys of the options whose value
    is a list of columns.
    """
    renamed = {}
    for key, value in options.items():
        if key in naming and old in parse_names(value):
            value = ",".join(new if n == old else n for n in parse_names(value))
        parts = key.split(".")
        if key.startswith(PREFIX) and len(parts) > 2:
            # `fields.a,b.sequence-group` = `c,d`: both sides name columns.
            names = ".".join(parts[1:-1]).split(",")
            key = ".".join([parts[0], ",".join(new if n.strip() == old else n for n in names), parts[-1]])
            if parts[-1] == SEQUENCE_GROUP:
                value = ",".join(new if n.strip() == old else n for n in value.split(","))
        key, value = rename_indexed(key, value, old, new)
        renamed[key] = value
    return renamed


def _parameters(options: Mapping[str, str], column: str) -> FieldOptions:
    def read(suffix: str, parse: Callable[[str], T], default: T) -> T:
        return _option(column, suffix, parse, default).get(options)

    return FieldOptions(
        ignores_retracts=read(IGNORE_RETRACT, parse_bool, False),
        # A delimiter may consist of spaces, so the text is not trimmed.
        delimiter=read(DELIMITER, str, ","),
        distinct=read(DISTINCT, parse_bool, False),
        nested_key=read(NESTED_KEY, parse_names, ()),
        nested_sequence=read(NESTED_SEQUENCE, parse_names, ()),
        null_keys=read(NULL_KEYS, parse_enum(NullKeys), NullKeys.MERGE),
        count_limit=read(COUNT_LIMIT, parse_int, UNLIMITED),
        time_field=_option(column, TIME_FIELD, str, None).find(options),
    )


def _option(column: str, suffix: str, parse: Callable[[str], T], default: T | None) -> Option[T]:
    return Option(f"{PREFIX}{column}.{suffix}", parse, default, "")


def _parsed(options: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yields the key, the columns and the suffix of each `fields.*` option that has a known suffix."""
    for key in options:
        suffix = next((s for s in SUFFIXES if key.endswith("." + s)), None)
        if suffix is not None and key.startswith(PREFIX):
            yield key, parse_names(key[len(PREFIX) : -len(suffix) - 1]), suffix
