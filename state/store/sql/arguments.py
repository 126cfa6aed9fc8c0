"""Reads the arguments of a CALL as values. Messages that Paimon's users know are kept word for word."""

from collections.abc import Mapping
from datetime import datetime

from bucketline.conf.errors import OptionError
from bucketline.conf.option import parse_given_duration, whole_number
from bucketline.state.sql.dialect import parse_one
from bucketline.state.store.sql.partitions import partitions_of_text, partitions_where
from bucketline.state.store.table.table import Table

Arguments = Mapping[str, str]


def chosen_partitions(table: Table, arguments: Arguments) -> list[Mapping[str, object]] | None:
    """Returns the partitions that the arguments choose; None for all partitions. Raises OptionError if both arguments,
    `partitions` and `where`, are given.
    """
    if "partitions" in arguments and "where" in arguments:
        raise wrong_argument("partitions and where cannot be used together.", "where")
    if "partitions" in arguments:
        return partitions_of_text(table, arguments["partitions"])
    if "where" in arguments:
        return partitions_where(table, parse_one(f"SELECT 1 WHERE {arguments['where']}").args["where"].this, None)
    return None


def options_of(arguments: Arguments) -> dict[str, str]:
    """Returns the options in the argument `options`, which has the form `k=v,k=v`; an empty mapping if the argument is
    left out. Raises OptionError for another form.
    """
    options = {}
    for part in arguments["options"].split(",") if "options" in arguments else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise wrong_argument(f"options {arguments['options']!r} must have the form key=value,key=value", "options")
        options[key.strip()] = value.strip()
    return options


def number_of(arguments: Arguments, name: str) -> int:
    """Returns the value of an argument that must be an integer. Raises OptionError for any other value."""
    try:
        return whole_number(arguments[name].strip())
    except ValueError as e:
        raise wrong_argument(f"{name} must be a number, not {arguments[name]!r}", name) from e


def duration_ms_of(arguments: Arguments, name: str) -> int:
    """Returns the value of an argument that must be a duration, in milliseconds. Raises OptionError for any other
    value.
    """
    try:
        return parse_given_duration(arguments[name])
    except OptionError as e:
        raise wrong_argument(f"{name} = {arguments[name]!r}: {e.message}", name) from e


def flag_of(arguments: Arguments, name: str) -> bool:
    """Returns the value of an argument that must be true or false; False if the argument is left out. Raises
    OptionError for any other value.
    """
    text = arguments.get(name, "false").strip().lower()
    if text not in ("true", "false"):
        raise wrong_argument(f"{name} must be true or false, not {arguments[name]!r}", name)
    return text == "true"


def instant_ms(text: str, name: str) -> int:
    """Returns a local time in milliseconds since 1970. `name` is the argument that the error names. Raises OptionError
    for a string that is no time.
    """
    try:
        return round(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError) as e:
        raise wrong_argument(f"{name} must be a time such as '2026-01-31 12:00:00', not {text!r}", name) from e


def wrong_argument(message: str, argument: str) -> OptionError:
    """Returns an error with this message. The error's fields name the argument."""
    return OptionError(message, key=argument, argument=argument)
