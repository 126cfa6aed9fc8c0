"""The options that are only for jobs of several tables."""

from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_given_text
from bucketline.conf.sources.message_options import SOURCE_TABLE, parse_source_table

MOST_COMMITS = 256


class Unmatched(Enum):
    """What a job does with a record that no route takes."""

    FAIL = "fail"
    SKIP = "skip"
    BAD_RECORD = "bad-record"


class OnTableFailure(Enum):
    """What a job does when it cannot write one of its tables: it stops, or goes on without that table."""

    STOP = "stop"
    PARK = "park"


def _parse_parallelism(text: str) -> int:
    digits = parse_given_text(text)
    if not digits.isdigit() or not 1 <= int(digits) <= MOST_COMMITS:
        raise OptionError(f"must be a whole number from 1 to {MOST_COMMITS}", value=text)
    return int(digits)


TABLES = "tables."
"""The prefix of the settings of routes: `tables.0.source-table` belongs to the first route."""
TOPIC = Option(
    "topic", parse_source_table, None, "the route takes records of this Kafka topic; `regex:` begins a pattern"
)
EXCLUDE = Option(
    "exclude",
    parse_source_table,
    None,
    "records of these source tables are left out before any route is tried; names, or `regex:` and a pattern",
)
UNMATCHED = Option(
    "unmatched",
    parse_enum(Unmatched),
    Unmatched.FAIL,
    "what happens to a record that no route takes: the job stops (fail), the record is left out and counted (skip), "
    "or it becomes a bad record",
)
ON_TABLE_FAILURE = Option(
    "on-table-failure",
    parse_enum(OnTableFailure),
    OnTableFailure.STOP,
    "what happens when a table cannot be written: the job stops (stop), or goes on without that table (park)",
)
COMMIT_PARALLELISM = Option(
    "commit-parallelism",
    _parse_parallelism,
    8,
    f"how many tables a batch commits at the same time, 1 to {MOST_COMMITS}",
)
MANY_OPTIONS = (EXCLUDE, UNMATCHED, ON_TABLE_FAILURE, COMMIT_PARALLELISM)
"""The settings of a job of several tables that are at the top level of its file, next to `tables`."""
PATTERNS = (SOURCE_TABLE, TOPIC)
"""The settings of a route that say which records it takes."""
