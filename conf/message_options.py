"""What a job says about the messages of its source that the messages themselves do not say."""

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
"""What Debezium sends instead of a large value that an update did not change, unless its connector says otherwise."""


class BytesForm(Enum):
    """How messages write bytes."""

    BASE64 = "base64"
    BASE64_URL = "base64-url"
    HEX = "hex"


class SourceKind(Enum):
    """What a column is in the source, or how the source writes its values, where messages do not say it."""

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
    """The type of a column in the source; `precision` and `scale` are those of a decimal."""

    kind: SourceKind
    precision: int = 0
    scale: int = 0


class Truncate(Enum):
    """What becomes of a truncate of the source's table."""

    REJECT = "reject"
    SKIP = "skip"
    APPLY = "apply"


class TypeMapping(Enum):
    """How new columns differ from the source's, by Paimon's names."""

    TINYINT1_NOT_BOOL = "tinyint1-not-bool"
    TO_NULLABLE = "to-nullable"
    TO_STRING = "to-string"
    CHAR_TO_STRING = "char-to-string"
    LONGTEXT_TO_BYTES = "longtext-to-bytes"
    BIGINT_UNSIGNED_TO_BIGINT = "bigint-unsigned-to-bigint"
    DECIMAL_NO_CHANGE = "decimal-no-change"


TypeMappings = frozenset[TypeMapping]
SAME_TYPES: TypeMappings = frozenset()
"""New columns have the types that the messages say."""


class Unavailable(Enum):
    """What becomes of a row of which the source leaves out a large value that an update did not change."""

    REJECT = "reject"
    KEEP = "keep"


class Infinity(Enum):
    """What becomes of a date or moment that the source calls infinite, which no calendar has."""

    REJECT = "reject"
    NULL = "null"
    TEXT = "text"


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


def parse_source_type(text: str) -> SourceType:
    """`DECIMAL(12, 2)`, or one of the other names."""
    name = " ".join(parse_given_text(text).split())
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2] or 0)
        if not 0 < precision <= _MOST_DIGITS or scale > precision:
            raise OptionError(f"DECIMAL has 1 to {_MOST_DIGITS} digits, and not more behind the point", value=text)
        return SourceType(SourceKind.DECIMAL, precision, scale)
    for kind in SourceKind:
        if kind is not SourceKind.DECIMAL and kind.value.lower() == name.lower():
            return SourceType(kind)
    raise OptionError(f"none of {', '.join(kind.value for kind in SourceKind)}", value=text)


def parse_type_mapping(text: str) -> TypeMappings:
    """The mappings in a text, with commas between them."""
    parse = parse_enum(TypeMapping)
    return frozenset(parse(part) for part in parse_given_text(text).split(","))


SOURCE_BYTES = Option(
    "source.bytes",
    parse_enum(BytesForm),
    None,
    "how messages without a schema write bytes; default: base64, but a text that may be hex as well is refused",
)
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
TRUNCATE = Option(
    "truncate",
    parse_enum(Truncate),
    Truncate.REJECT,
    "what becomes of a truncate of the source's table: a bad record (reject), nothing (skip), or the rows are removed "
    "(apply), which needs a topic of one partition",
)
UNAVAILABLE_VALUE = Option(
    "unavailable-value",
    parse_placeholder,
    UNAVAILABLE,
    "what Debezium sends instead of a large value that an update did not change (its unavailable.value.placeholder)",
)
UNAVAILABLE_KEY = Option(
    "unavailable",
    parse_enum(Unavailable),
    Unavailable.REJECT,
    "what becomes of an update that leaves out a large value which it did not change: a bad record (reject), or the "
    "value stays (keep)",
)
TYPE_MAPPING = Option(
    "type-mapping",
    parse_type_mapping,
    None,
    f"types of new columns that differ from the source's: {', '.join(one.value for one in TypeMapping)}",
)
INFINITY = Option(
    "infinity",
    parse_enum(Infinity),
    Infinity.REJECT,
    "what becomes of Postgres' infinity: a bad record (reject), a null (null), or a word in a column STRING (text)",
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
    """How the messages of a source are read. `source_table` is a name or a pattern (None: any table, but one only,
    unless `shards` says more). `bytes_form` and `types`, by column, say what messages without a schema do not."""

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
            option = Option(key, parse_source_type, None, "what a column is in the source")
            yield key.removeprefix(TYPES), option.get(texts)
