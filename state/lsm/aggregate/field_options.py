"""The `fields.*` options of a table's schema, read and checked against its columns.

Source: Paimon 2.0 CoreOptions (fields.*), SchemaValidation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bucketline.conf.errors import OptionError
from bucketline.conf.option import UNLIMITED, Option, parse_bool, parse_choice, parse_int, parse_names

PREFIX = "fields."
DEFAULT_FUNCTION = "fields.default-aggregate-function"
SEQUENCE_GROUP = "sequence-group"
FUNCTION = "aggregate-function"
SUFFIXES = (
    SEQUENCE_GROUP,
    FUNCTION,
    "ignore-retract",
    "list-agg-delimiter",
    "distinct",
    "nested-key",
    "nested-sequence-field",
    "nested-key-null-strategy",
    "count-limit",
    "ts-field",
    "stats-mode",
)


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The parameters of one column's aggregate function; names are those of a ROW's fields inside the column."""

    ignores_retracts: bool = False
    delimiter: str = ","
    distinct: bool = False
    nested_key: tuple[str, ...] = ()
    nested_sequence: tuple[str, ...] = ()
    null_key_strategy: str = "merge"
    count_limit: int = UNLIMITED
    time_field: str | None = None


@dataclass(frozen=True, slots=True)
class SequenceGroupOption:
    """One `fields.<sequence>.sequence-group` = columns, as written."""

    key: str
    sequence: tuple[str, ...]
    columns: tuple[str, ...]


def field_options(options: Mapping[str, str], column: str) -> FieldOptions:
    """The parameters of a column's function. Raises OptionError naming the key that cannot be read."""

    def key(suffix: str) -> str:
        return f"{PREFIX}{column}.{suffix}"

    return FieldOptions(
        ignores_retracts=Option(key("ignore-retract"), parse_bool, False, "").get(options),
        # Blank text is a delimiter like any other, so nothing is trimmed.
        delimiter=options.get(key("list-agg-delimiter"), ","),
        distinct=Option(key("distinct"), parse_bool, False, "").get(options),
        nested_key=parse_names(options.get(key("nested-key"), "")),
        nested_sequence=parse_names(options.get(key("nested-sequence-field"), "")),
        null_key_strategy=Option(
            key("nested-key-null-strategy"), parse_choice("merge", "ignore", "error"), "merge", ""
        ).get(options),
        count_limit=Option(key("count-limit"), parse_int, UNLIMITED, "").get(options),
        time_field=options.get(key("ts-field")),
    )


def function_of(options: Mapping[str, str], column: str) -> tuple[str, str] | None:
    """The aggregate function set for a column, or for all, and the key that sets it."""
    for key in (f"{PREFIX}{column}.{FUNCTION}", DEFAULT_FUNCTION):
        if key in options:
            return options[key].strip(), key
    return None


def sequence_groups(options: Mapping[str, str]) -> tuple[SequenceGroupOption, ...]:
    """The sequence groups as written, in the order of their keys."""
    return tuple(
        SequenceGroupOption(key, names, parse_names(options[key]))
        for key, names, suffix in sorted(_parsed(options))
        if suffix == SEQUENCE_GROUP
    )


def check_field_options(options: Mapping[str, str], columns: Sequence[str]) -> None:
    """Returns when every `fields.*` option names columns of the table. Raises OptionError naming key and column."""
    for key, names, _ in _parsed(options):
        for name in names:
            if name not in columns:
                raise OptionError(
                    f"'{key}': Field {name} can not be found in table schema; "
                    f"the option names one of {', '.join(columns)}",
                    key=key,
                    column=name,
                )
    for group in sequence_groups(options):
        for name in group.columns:
            if name not in columns:
                raise OptionError(
                    f"'{group.key}' = '{options[group.key]}': Field {name} can not be found in table schema; "
                    f"a sequence group protects some of {', '.join(columns)}",
                    key=group.key,
                    column=name,
                )


def _parsed(options: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Key, columns and suffix of every option of a known suffix. Others belong to other features."""
    for key in options:
        suffix = next((s for s in SUFFIXES if key.endswith("." + s)), None)
        if suffix is not None and key.startswith(PREFIX):
            yield key, parse_names(key[len(PREFIX) : -len(suffix) - 1]), suffix
