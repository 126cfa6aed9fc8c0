"""Job options for columns and rows: which columns are computed, which rows are written, and which conditions rows must
meet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_given_text


class Otherwise(Enum):
    """What happens to a row that does not meet an expectation, which is a condition in the job file."""

    WARN = "warn"
    DROP = "drop"
    REJECT = "reject"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition in Spark SQL that rows must meet. If the result of the condition is null, the row meets it, as in
    SQL's CHECK.
    """

    name: str
    check: str
    otherwise: Otherwise = Otherwise.WARN


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """The job's options for columns and rows.

    `select` is the list of columns of a SELECT, and `where` is a condition on decoded rows. None means all columns, or
    all rows. `rescued` is the name of a column for the parts of a record that fit into no other column.
    """

    select: str | None = None
    where: str | None = None
    expect: tuple[Expectation, ...] = ()
    rescued: str | None = None


NO_COLUMN_OPTIONS = ColumnOptions()
"""The options of a job that writes all columns and rows as they are in the messages."""

SELECT = Option(
    "select",
    parse_given_text,
    None,
    "columns that are computed, in Spark's SQL: \"*, date_format(created, 'yyyy-MM-dd') AS dt\"",
)
WHERE = Option("where", parse_given_text, None, "condition in Spark's SQL; only rows that meet it are written")
RESCUED = Option(
    "rescued-data-column",
    parse_given_text,
    None,
    "name of a STRING column that holds, as JSON, the fields of a record that have no column or do not fit its type",
)
EXPECT = "expect."
_CHECK, _OTHERWISE = "check", "otherwise"
COLUMN_OPTIONS = (SELECT, WHERE, RESCUED)


def column_options(texts: Mapping[str, str]) -> ColumnOptions:
    """Returns the options for columns and rows that the settings of a job contain. Raises OptionError for an invalid
    value.
    """
    names = dict.fromkeys(_name_of(key) for key in texts if key.startswith(EXPECT))
    expect = tuple(_expectation(name, texts) for name in names)
    return ColumnOptions(SELECT.find(texts), WHERE.find(texts), expect, RESCUED.find(texts))


def _name_of(key: str) -> str:
    name, _, part = key.removeprefix(EXPECT).rpartition(".")
    if not name or part not in (_CHECK, _OTHERWISE):
        raise OptionError(
            f"{key}: an expectation needs a name and a check, and may have `otherwise`, which says what happens to "
            "rows that do not meet the check, as in expect: {valid_amount: {check: 'amount >= 0', otherwise: drop}}",
            key=key,
        )
    return name


def _expectation(name: str, texts: Mapping[str, str]) -> Expectation:
    check = Option(f"{EXPECT}{name}.{_CHECK}", parse_given_text, None, "a condition that rows must meet")
    otherwise = Option(f"{EXPECT}{name}.{_OTHERWISE}", parse_enum(Otherwise), Otherwise.WARN, "what happens otherwise")
    return Expectation(name, check.get(texts), otherwise.get(texts))
