"""What a job says about the messages of its source that the messages themselves do not say."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_given_text

_PATTERN = "regex:"
_HEX = "hex:"


UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium sends instead of a large value that an update did not change, unless its connector says otherwise."""


class Shards(Enum):
    """What is known of several source tables whose rows go into one table."""

    DISTINCT_KEYS = "distinct-keys"


def parse_source_table(text: str) -> str:
    """The text, if it is a name or a pattern that can be read."""
    name = parse_given_text(text)
    if name.startswith(_PATTERN):
        try:
            re.compile(name.removeprefix(_PATTERN))
        except re.error as e:
            raise OptionError(f"the pattern cannot be read: {e}", value=text) from e
    return name


def parse_placeholder(text: str) -> str:
    """The placeholder's text; bytes may be given in hexadecimal digits after `hex:`, as to Debezium."""
    given = parse_given_text(text)
    if not given.startswith(_HEX):
        return given
    try:
        return bytes.fromhex(given.removeprefix(_HEX)).decode()
    except ValueError as e:
        raise OptionError(f"not UTF-8 text in hexadecimal digits: {e}", value=text) from e


SOURCE_TABLE = Option(
    "source-table",
    parse_source_table,
    None,
    "records of this table only, as the messages name it: database.table, or schema.table; `regex:` begins a pattern",
)
SHARDS = Option(
    "shards",
    parse_enum(Shards),
    None,
    "several source tables go into one table: distinct-keys says that none of their keys is in two of them",
)
UNAVAILABLE_VALUE = Option(
    "unavailable-value",
    parse_placeholder,
    UNAVAILABLE,
    "what Debezium sends instead of a large value that an update did not change (its unavailable.value.placeholder)",
)

MESSAGE_OPTIONS = (SOURCE_TABLE, SHARDS, UNAVAILABLE_VALUE)


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """How the messages of a source are read. `source_table` is a name or a pattern (None: any table, but one only,
    unless `shards` says more)."""

    source_table: str | None = None
    shards: Shards | None = None
    unavailable_value: str = UNAVAILABLE

    def reads_table(self, *names: str) -> bool:
        """Whether records of a table with these names, short and full, are read."""
        wanted = self.source_table
        if wanted is None:
            return True
        if not wanted.startswith(_PATTERN):
            return wanted in names
        return any(re.fullmatch(wanted.removeprefix(_PATTERN), name) for name in names)


NO_MESSAGE_OPTIONS = MessageOptions()
"""A job that says nothing of its messages."""


def message_options(texts: Mapping[str, str]) -> MessageOptions:
    """The options among the settings of a job. Raises OptionError for an invalid value."""
    return MessageOptions(
        source_table=SOURCE_TABLE.find(texts),
        shards=SHARDS.find(texts),
        unavailable_value=UNAVAILABLE_VALUE.get(texts),
    )
