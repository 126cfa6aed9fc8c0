"""What a job says of its columns and rows: which are computed, which rows are chosen, what is expected of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_given_text


class Otherwise(Enum):
    """What becomes of a row that is not as expected."""

    WARN = "warn"
    DROP = "drop"
    REJECT = "reject"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition, in Spark's SQL, that rows are to pass; null passes, as in SQL's CHECK."""

    name: str
    check: str
    otherwise: Otherwise = Otherwise.WARN


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """`select` is the list of a SELECT, `where` a condition over decoded rows (None: all columns, all rows); `rescued`
    is the column that gets what no column takes."""

    select: str | None = None
    where: str | None = None
    expect: tuple[Expectation, ...] = ()
    rescued: str | None = None


NO_COLUMN_OPTIONS = ColumnOptions()
"""Columns and rows as the messages have them."""

SELECT = Option(
    "select",
    parse_given_text,
    None,
    "columns that are computed, in Spark's SQL: \"*, date_format(created, 'yyyy-MM-dd') AS dt\"",
)
WHERE = Option("where", parse_given_text, None, "the rows that are written, a condition in Spark's SQL")
RESCUED = Option(
    "rescued-data-column",
    parse_given_text,
    None,
    "column of texts that gets, as JSON, what of a record has no column, or does not fit its type",
)
EXPECT = "expect."
_CHECK, _OTHERWISE = "check", "otherwise"
COLUMN_OPTIONS = (SELECT, WHERE, RESCUED)


def column_options(texts: Mapping[str, str]) -> ColumnOptions:
    """The options among the settings of a job. Raises OptionError for an invalid value."""
    names = dict.fromkeys(_name_of(key) for key in texts if key.startswith(EXPECT))
    expect = tuple(_expectation(name, texts) for name in names)
    return ColumnOptions(SELECT.find(texts), WHERE.find(texts), expect, RESCUED.find(texts))


def _name_of(key: str) -> str:
    name, _, part = key.removeprefix(EXPECT).rpartition(".")
    if not name or part not in (_CHECK, _OTHERWISE):
        raise OptionError(
            f"{key}: an expectation has a name, a check and what happens otherwise, as in "
            "expect: {valid_amount: {check: 'amount >= 0', otherwise: drop}}",
            key=key,
        )
    return name


def _expectation(name: str, texts: Mapping[str, str]) -> Expectation:
    check = Option(f"{EXPECT}{name}.{_CHECK}", parse_given_text, None, "a condition that rows are to pass")
    otherwise = Option(f"{EXPECT}{name}.{_OTHERWISE}", parse_enum(Otherwise), Otherwise.WARN, "what happens otherwise")
    return Expectation(name, check.get(texts), otherwise.get(texts))
