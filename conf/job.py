"""The settings of a job as objects, and the keys that a job file may have.

Nested keys are joined with dots: `source: {format: kafka}` and `source.format=kafka` are the same setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from bucketline.conf.catalog_options import CatalogSettings, catalog_settings
from bucketline.conf.column_options import COLUMN_OPTIONS, EXPECT, NO_COLUMN_OPTIONS, ColumnOptions, column_options
from bucketline.conf.durations import check_given_durations
from bucketline.conf.errors import OptionError
from bucketline.conf.job_file.references import refuse_unknown_references
from bucketline.conf.option import (
    Option,
    parse_enum,
    parse_given_duration,
    parse_given_text,
    parse_names,
    parse_text,
)
from bucketline.conf.routes.route_options import MANY_OPTIONS
from bucketline.conf.secrets import MaskedOptions
from bucketline.conf.sink_options import BAD_RECORDS_MAX, BAD_RECORDS_PATH, BAD_RECORDS_TABLE, KEY_ORDER, KeyOrder
from bucketline.conf.sources.message_options import (
    MESSAGE_OPTIONS,
    NO_MESSAGE_OPTIONS,
    TYPES,
    MessageOptions,
    message_options,
)
from bucketline.conf.sources.registry_options import REGISTRY_OPTIONS, RegistryOptions, registry_options
from bucketline.conf.storage_options import check_storage_options


class RecordFormat(Enum):
    """The message format of a source: how the bytes of its `value` column become rows."""

    JSON = "json"
    DEBEZIUM_JSON = "debezium-json"
    DEBEZIUM_FLAT_JSON = "debezium-flat-json"
    AVRO = "avro"
    DEBEZIUM_AVRO = "debezium-avro"
    CANAL_JSON = "canal-json"
    MAXWELL_JSON = "maxwell-json"
    NONE = "none"

    @property
    def has_row_kinds(self) -> bool:
        """Returns True if records say whether a row was inserted, updated or deleted. Otherwise each record is an
        insert.
        """
        return self not in (RecordFormat.JSON, RecordFormat.AVRO, RecordFormat.NONE)

    @property
    def is_debezium(self) -> bool:
        """Returns True if Debezium writes the records."""
        return self in (RecordFormat.DEBEZIUM_JSON, RecordFormat.DEBEZIUM_FLAT_JSON, RecordFormat.DEBEZIUM_AVRO)

    @property
    def is_avro(self) -> bool:
        """Returns True if records are in Avro and refer to a schema in a schema registry."""
        return self in (RecordFormat.AVRO, RecordFormat.DEBEZIUM_AVRO)

    @property
    def declares_columns(self) -> bool:
        """Returns True if the types of columns are known from the records, or from the job's `types` setting."""
        return self not in (RecordFormat.NONE, RecordFormat.MAXWELL_JSON)

    @property
    def names_tables(self) -> bool:
        """Returns True if each record names the source table to which it belongs."""
        return self.has_row_kinds

    @property
    def key_order(self) -> KeyOrder | None:
        """Returns the default of the option `key-order` for this format. None means that the job does not check
        whether the rows of a key come from several Kafka partitions.
        """
        if self is RecordFormat.NONE:
            return None
        return KeyOrder.FAIL if self.has_row_kinds else KeyOrder.WARN

    @property
    def reads_keys(self) -> bool:
        """Returns True if the key of a record is read too, because the key may have fields that the value lacks."""
        return self.is_debezium


class ReaderChoice(Enum):
    """What reads a Kafka source or Parquet files: Spark's own source, or the job's tasks themselves. AUTO means the
    tasks if they can read the source, and otherwise Spark.
    """

    AUTO = "auto"
    SPARK = "spark"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches start: every `interval_ms` milliseconds. If `interval_ms` is None, the job reads everything that is
    available and then stops.
    """

    interval_ms: int | None


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """A Spark streaming source. `options` go to Spark unchanged.

    `reader` says whether Spark's own source or the job's tasks read Kafka's records and Parquet files. `token_provider`
    names the function that returns the tokens with which tasks log in to Kafka.
    """

    format: str
    options: Mapping[str, str]
    decode: RecordFormat
    reader: ReaderChoice = ReaderChoice.AUTO
    token_provider: str | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """How to create a table that does not exist. `schema` is the list of columns in SQL.

    Without `schema` the records declare the columns, and also the primary key if the job names none.
    """

    schema: str | None
    primary_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None


@dataclass(frozen=True, slots=True)
class BadRecords:
    """Where bad records (records that cannot be written) are stored: in a folder, a table or a Kafka topic. At most one
    of the three is set. If a batch has more than `max_count` bad records, the job stops.
    """

    path: str | None
    max_count: int
    table: str | None = None
    topic: str | None = None

    @property
    def has_place(self) -> bool:
        """Returns True if the job says where bad records are stored."""
        return any(place is not None for place in (self.path, self.table, self.topic))


@dataclass(frozen=True, slots=True)
class Setting:
    """The text of a setting, and its origin: `command line`, the name of a file, `table` or `default`.

    For the setting `source.reader`, `--print-config` adds to the origin whether Spark or the tasks read the source.
    `written` is the text of the setting before references were replaced; if it is set, it is shown instead of `text`.
    """

    text: str
    origin: str
    written: str | None = None

    @property
    def shown(self) -> str:
        return self.text if self.written is None else self.written


@dataclass(frozen=True, slots=True)
class JobConfig:
    """The configuration of a streaming job with one table.

    `options` are the options of sink and table, and `settings` says where each setting comes from. `table` is a name if
    there is a `catalog`, and otherwise a path. `storage` has the storage options of the table and of the bad records.
    If `key_order` is None, the message format determines the key order.

    There is one attribute for each section of the job file.
    """

    table: str
    source: SourceConfig
    checkpoint: str
    trigger: Trigger
    create: Create | None
    options: Mapping[str, str]
    bad_records: BadRecords
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False)
    storage: Mapping[str, str] = field(default_factory=dict)
    catalog: CatalogSettings | None = None
    messages: MessageOptions = NO_MESSAGE_OPTIONS
    key_order: KeyOrder | None = None
    registry: RegistryOptions | None = field(default=None, repr=False)
    columns: ColumnOptions = NO_COLUMN_OPTIONS


def parse_trigger(text: str) -> Trigger:
    """Parses `availableNow`, or an interval such as `30 seconds`. Raises OptionError for any other text."""
    if text.strip().lower() == "once":
        raise OptionError(
            "'once' would read everything in one batch of any size; use 'availableNow', which reads the same in "
            "bounded batches",
            value=text,
        )
    if text.strip().lower().replace("-", "") == "availablenow":
        return Trigger(None)
    try:
        return Trigger(parse_given_duration(text))
    except OptionError as e:
        raise OptionError(f"must be 'availableNow' or an interval: {e.message}", value=text) from e


def parse_auto(text: str) -> str:
    """Checks that a text is `auto`, and returns it in lower case. Raises OptionError for any other text."""
    if text.strip().lower() != "auto":
        raise OptionError("must be 'auto', or a section with schema, primary-key, ...", value=text)
    return "auto"


def parse_function_name(text: str) -> str:
    """Returns the name of a Python function, which must have the form `module:name`. Raises OptionError for any other
    text.
    """
    module, colon, name = text.strip().partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise OptionError("a function must be written as module:name, for example shop.tokens:kafka", value=text)
    return text.strip()


TABLE = Option(
    "table",
    parse_given_text,
    None,
    "path or URI of the table's directory; with `catalog` the table's name in the catalog",
)
SOURCE_FORMAT = Option("source.format", parse_given_text, None, "name of a Spark streaming source, like kafka")
SOURCE_DECODE = Option(
    "source.decode",
    parse_enum(RecordFormat),
    RecordFormat.NONE,
    "the format of the messages in the source's column `value`",
)
SOURCE_READER = Option(
    "source.reader",
    parse_enum(ReaderChoice),
    ReaderChoice.AUTO,
    (
        "who reads Kafka and Parquet files: Spark, or the tasks themselves (native); auto: native if it gives the "
        "same rows as Spark"
    ),
)
SOURCE_TOKEN_PROVIDER = Option(
    "source.token-provider",
    parse_function_name,
    None,
    "Python function, as module:name, that returns the OAUTHBEARER tokens for tasks that read Kafka",
)
CHECKPOINT = Option("checkpoint", parse_given_text, None, "directory where Spark keeps the job's progress")
TRIGGER = Option(
    "trigger", parse_trigger, Trigger(0), "interval between batches, or availableNow: read what is there, then stop"
)
BAD_RECORDS_TOPIC = Option(
    "bad-records.topic",
    parse_given_text,
    None,
    "topic in the source's Kafka cluster for records that cannot be written",
)
CREATE = Option(
    "create", parse_auto, None, "auto: the records declare the columns and the primary key of the new table"
)
CREATE_SCHEMA = Option("create.schema", parse_given_text, None, "columns of the new table, as in CREATE TABLE")
CREATE_PRIMARY_KEY = Option("create.primary-key", parse_names, None, "primary-key columns")
CREATE_PARTITION_BY = Option("create.partition-by", parse_names, None, "partition columns")
CREATE_COMMENT = Option("create.comment", parse_text, None, "comment that describes the table")

JOB_KEYS = tuple(
    option.key
    for option in (*globals().values(), *MESSAGE_OPTIONS, *COLUMN_OPTIONS, *REGISTRY_OPTIONS.values(), *MANY_OPTIONS)
    if isinstance(option, Option)
)
"""The keys of a job file that are no prefixes. `key-order` and the keys for bad records are also options of the
sink.
"""

SOURCE_OPTIONS, CREATE_OPTIONS, OPTIONS, STORAGE = "source.options.", "create.options.", "options.", "storage."
CATALOG = "catalog."
JOB_PREFIXES = (SOURCE_OPTIONS, CREATE_OPTIONS, OPTIONS, STORAGE, CATALOG, TYPES, EXPECT)
"""Prefixes of keys in a job file. After the prefix comes an option of the source, of the new table, of sink and table,
of the storage or of the catalog. After `types.` comes a column, and after `expect.` the name of an expectation.
"""


def job_config(settings: Mapping[str, Setting]) -> JobConfig:
    """Returns the configuration of a job from its settings. The caller must have checked the keys.

    Raises OptionError for an invalid value, and for a missing table, source format, checkpoint or schema.
    """
    texts = {key: setting.text for key, setting in settings.items()}
    for place in (TABLE, CHECKPOINT, BAD_RECORDS_PATH, BAD_RECORDS_TABLE):
        refuse_unknown_references(place.key, texts.get(place.key, ""))
    catalog, storage = _family(texts, CATALOG), check_storage_options(_family(texts, STORAGE))
    return JobConfig(
        table=TABLE.get(texts),
        source=SourceConfig(
            format=SOURCE_FORMAT.get(texts),
            options=_family(texts, SOURCE_OPTIONS),
            decode=SOURCE_DECODE.get(texts),
            reader=SOURCE_READER.get(texts),
            token_provider=SOURCE_TOKEN_PROVIDER.find(texts),
        ),
        checkpoint=CHECKPOINT.get(texts),
        trigger=TRIGGER.get(texts),
        create=_create(texts, SOURCE_DECODE.get(texts)),
        options=_family(texts, OPTIONS),
        bad_records=_bad_records(texts),
        settings=dict(settings),
        storage=storage,
        catalog=catalog_settings(catalog, storage) if catalog else None,
        messages=message_options(texts),
        key_order=KEY_ORDER.find(texts),
        registry=registry_options(texts),
        columns=column_options(texts),
    )


def _bad_records(texts: Mapping[str, str]) -> BadRecords:
    places = (BAD_RECORDS_PATH, BAD_RECORDS_TABLE, BAD_RECORDS_TOPIC)
    given = [option.key for option in places if option.find(texts) is not None]
    if len(given) > 1:
        raise OptionError(
            f"{given[0]} and {given[1]} cannot be set together, because bad records go to one place; remove one of "
            "them",
            key=given[1],
        )
    path, table, topic = (option.find(texts) for option in places)
    is_kafka = SOURCE_FORMAT.get(texts) == "kafka"
    if topic is not None and not is_kafka:
        raise OptionError(
            f"{BAD_RECORDS_TOPIC.key} names a topic of the Kafka cluster that the job reads, but source.format is "
            f"{SOURCE_FORMAT.get(texts)}; use {BAD_RECORDS_TABLE.key} or {BAD_RECORDS_PATH.key}",
            key=BAD_RECORDS_TOPIC.key,
        )
    return BadRecords(path, BAD_RECORDS_MAX.get(texts), table, topic)


def _create(texts: Mapping[str, str], decode: RecordFormat) -> Create | None:
    is_auto = CREATE.find(texts) is not None
    if not is_auto and not any(key.startswith("create.") for key in texts):
        return None
    options = _family(texts, CREATE_OPTIONS)
    check_given_durations(options, origin="create.options")
    schema = CREATE_SCHEMA.find(texts)
    if is_auto and schema is not None:
        raise OptionError(
            "with 'create' = 'auto' the records declare the columns: remove 'create' = 'auto' or create.schema",
            key=CREATE.key,
        )
    if schema is None and not decode.declares_columns:
        raise OptionError(
            f"option '{CREATE_SCHEMA.key}' is required and not set: {CREATE_SCHEMA.doc}; with "
            f"'{SOURCE_DECODE.key}' = '{decode.value}' the records do not declare their columns",
            key=CREATE_SCHEMA.key,
        )
    return Create(
        schema=schema,
        primary_key=CREATE_PRIMARY_KEY.find(texts) or (),
        partition_by=CREATE_PARTITION_BY.find(texts) or (),
        options=options,
        comment=CREATE_COMMENT.find(texts),
    )


def _family(texts: Mapping[str, str], prefix: str) -> MaskedOptions:
    return MaskedOptions({key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)})
