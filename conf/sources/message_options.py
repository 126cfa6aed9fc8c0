"""Job options for the messages of a source: facts about the source that the messages do not contain."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_given_text

_PATTERN = "regex:"
_HEX = "hex:"
_DECIMAL = re.compile(r"DECIMAL ?\( ?(\d{1,2}) ?(?:, ?(\d{1,2}) ?)?\)", re.IGNORECASE)
_MOST_DIGITS = 38


UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default text in place of a large value that an update did not change."""


class BytesForm(Enum):
    """How messages write bytes."""

    BASE64 = "base64"
    BASE64_URL = "base64-url"
    HEX = "hex"


class SourceKind(Enum):
    """The type of a column in the source (such as BIGINT UNSIGNED), or the form in which the source writes its values
    (such as epoch-millis). If messages do not contain this type, the job must set it.
    """

    DECIMAL = "DECIMAL(p, s)"
    TEXT = "STRING"
    SIGNED = "BIGINT"
    UNSIGNED = "BIGINT UNSIGNED"
    BITS = "BITS"
    EPOCH_DAYS = "epoch-days"
    EPOCH_MILLIS = "epoch-millis"
    EPOCH_MICROS = "epoch-micros"
    EPOCH_NANOS = "epoch-nanos"
    DAY_MILLIS = "millis-of-day"
    DAY_MICROS = "micros-of-day"
    DAY_NANOS = "nanos-of-day"


@dataclass(frozen=True, slots=True)
class SourceType:
    """The type of a column in the source; `precision` and `scale` are set only for a decimal."""

    kind: SourceKind
    precision: int = 0
    scale: int = 0


class Truncate(Enum):
    """What happens in the table when the source's table is truncated."""

    REJECT = "reject"
    SKIP = "skip"
    APPLY = "apply"


class TypeMapping(Enum):
    """Rules that give a new column another type than its column in the source has. The values are spelled as in
    Paimon.
    """

    TINYINT1_NOT_BOOL = "tinyint1-not-bool"
    TO_NULLABLE = "to-nullable"
    TO_STRING = "to-string"
    CHAR_TO_STRING = "char-to-string"
    LONGTEXT_TO_BYTES = "longtext-to-bytes"
    BIGINT_UNSIGNED_TO_BIGINT = "bigint-unsigned-to-bigint"
    DECIMAL_NO_CHANGE = "decimal-no-change"


TypeMappings = frozenset[TypeMapping]
SAME_TYPES: TypeMappings = frozenset()
"""No rules: new columns get the types that the messages contain."""


class Unavailable(Enum):
    """What happens to an update if its record does not contain a large value, because the update did not change it."""

    REJECT = "reject"
    KEEP = "keep"


class Infinity(Enum):
    """What happens to the date or time `infinity` of Postgres, which has no counterpart in other systems."""

    REJECT = "reject"
    NULL = "null"
    TEXT = "text"


class Shards(Enum):
    """The values of the option `shards`, for a job that writes several source tables into one table. DISTINCT_KEYS
    states that no key occurs in two of these source tables.
    """

    DISTINCT_KEYS = "distinct-keys"


def parse_source_table(text: str) -> str:
    """Returns the text unchanged if it is a name or a valid pattern. Raises OptionError for a pattern that is not
    valid.
    """
    name = parse_given_text(text)
    if name.startswith(_PATTERN):
        try:
            re.compile(name.removeprefix(_PATTERN))
        except re.error as e:
            raise OptionError(f"the pattern is no valid regular expression: {e}", value=text) from e
    return name


def parse_placeholder(text: str) -> str:
    """Returns the text of Debezium's placeholder for values that an update did not change. The placeholder may be given
    in hexadecimal digits after `hex:`, as in Debezium's own option.
    """
    given = parse_given_text(text)
    if not given.startswith(_HEX):
        return given
    try:
        return bytes.fromhex(given.removeprefix(_HEX)).decode()
    except ValueError as e:
        raise OptionError(f"after 'hex:' there must be UTF-8 text in hexadecimal digits: {e}", value=text) from e


def parse_source_type(text: str) -> SourceType:
    """Parses the name of a source type, for example `DECIMAL(12, 2)`. Raises OptionError for any other text."""
    name = " ".join(parse_given_text(text).split())
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        if not 0 < precision <= _MOST_DIGITS or scale > precision:
            raise OptionError(
                f"DECIMAL must have 1 to {_MOST_DIGITS} digits, and not more digits after the point than in total",
                value=text,
            )
        return SourceType(SourceKind.DECIMAL, precision, scale)
    for kind in SourceKind:
        if kind is not SourceKind.DECIMAL and kind.value.lower() == name.lower():
            return SourceType(kind)
    raise OptionError(f"must be one of {', '.join(kind.value for kind in SourceKind)}", value=text)


def parse_type_mapping(text: str) -> TypeMappings:
    """Returns the type mappings in a comma-separated text. Raises OptionError for an unknown type mapping."""
    parse = parse_enum(TypeMapping)
    return frozenset(parse(part) for part in parse_given_text(text).split(","))


SOURCE_BYTES = Option(
    "source.bytes",
    parse_enum(BytesForm),
    None,
    "how messages without a schema write bytes; default: base64, and a text that could also be hex is refused",
)
SOURCE_TABLE = Option(
    "source-table",
    parse_source_table,
    None,
    (
        "only records of this table are read; the name as in the messages, database.table or schema.table; `regex:` "
        "begins a pattern"
    ),
)
SHARDS = Option(
    "shards",
    parse_enum(Shards),
    None,
    "for several source tables that go into one table; distinct-keys states that no key is in two of them",
)
TRUNCATE = Option(
    "truncate",
    parse_enum(Truncate),
    Truncate.REJECT,
    "what happens when the source's table is truncated: reject makes a bad record, skip does nothing, apply removes "
    "the rows (needs a topic with one partition)",
)
UNAVAILABLE_VALUE = Option(
    "unavailable-value",
    parse_placeholder,
    UNAVAILABLE,
    (
        "the text that Debezium sends in place of a large value that an update did not change (Debezium's option "
        "unavailable.value.placeholder)"
    ),
)
UNAVAILABLE_KEY = Option(
    "unavailable",
    parse_enum(Unavailable),
    Unavailable.REJECT,
    "what happens to an update that leaves out a large value which it did not change: reject makes a bad record, keep "
    "leaves the old value in the row",
)
TYPE_MAPPING = Option(
    "type-mapping",
    parse_type_mapping,
    None,
    (
        "rules by which the types of new columns differ from the source's types: "
        f"{', '.join(one.value for one in TypeMapping)}"
    ),
)
INFINITY = Option(
    "infinity",
    parse_enum(Infinity),
    Infinity.REJECT,
    "what Postgres' infinity becomes: a bad record (reject), a null (null), or a word in a STRING column (text)",
)

TYPES = "types."
MESSAGE_OPTIONS = (
    SOURCE_BYTES,
    SOURCE_TABLE,
    SHARDS,
    TRUNCATE,
    UNAVAILABLE_KEY,
    UNAVAILABLE_VALUE,
    INFINITY,
    TYPE_MAPPING,
)


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """How the messages of a source are read.

    `source_table` is the name of the source's table, or a pattern. If it is None, the messages may come from any table;
    they may come from several tables only if `shards` is set.
    `bytes_form` says how bytes are written as text, and `types` has the source's types by column. Both are needed for
    messages without a schema.
    """

    source_table: str | None = None
    shards: Shards | None = None
    unavailable_value: str = UNAVAILABLE
    bytes_form: BytesForm | None = None
    types: tuple[tuple[str, SourceType], ...] = ()
    truncate: Truncate = Truncate.REJECT
    infinity: Infinity = Infinity.REJECT
    unavailable: Unavailable = Unavailable.REJECT
    type_mapping: TypeMappings = SAME_TYPES

    def reads_table(self, *names: str) -> bool:
        """Returns True if the job reads the records of a source table. `names` are the spellings of this table's name,
        for example `orders` and `shop.orders`.
        """
        wanted = self.source_table
        if wanted is None:
            return True
        if not wanted.startswith(_PATTERN):
            return wanted in names
        return any(re.fullmatch(wanted.removeprefix(_PATTERN), name) for name in names)


NO_MESSAGE_OPTIONS = MessageOptions()
"""The values of these options in a job that sets none of them."""


def message_options(texts: Mapping[str, str]) -> MessageOptions:
    """Returns the options for messages that the settings of a job contain. Raises OptionError for an invalid value."""
    return MessageOptions(
        source_table=SOURCE_TABLE.find(texts),
        shards=SHARDS.find(texts),
        unavailable_value=UNAVAILABLE_VALUE.get(texts),
        bytes_form=SOURCE_BYTES.find(texts),
        types=tuple(_types(texts)),
        truncate=TRUNCATE.get(texts),
        infinity=INFINITY.get(texts),
        unavailable=UNAVAILABLE_KEY.get(texts),
        type_mapping=TYPE_MAPPING.find(texts) or SAME_TYPES,
    )


def _types(texts: Mapping[str, str]) -> Iterator[tuple[str, SourceType]]:
    for key in texts:
        if key.startswith(TYPES):
            option = Option(key, parse_source_type, None, "type of the column in the source")
            yield key.removeprefix(TYPES), option.get(texts)
