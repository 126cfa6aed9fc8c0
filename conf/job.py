"""The settings of a job as values, and the keys of a job file.

A job file is flat inside: `source: {format: kafka}` and `source.format=kafka` are the same setting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from bucketline.conf.catalog_options import CatalogSettings, catalog_settings
from bucketline.conf.column_options import COLUMN_OPTIONS, EXPECT, NO_COLUMN_OPTIONS, ColumnOptions, column_options
from bucketline.conf.durations import check_given_durations
from bucketline.conf.errors import OptionError
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
        """Whether records say what happened to a row. If not, each record is an insert."""
        return self not in (RecordFormat.JSON, RecordFormat.AVRO, RecordFormat.NONE)

    @property
    def is_debezium(self) -> bool:
        """Whether Debezium writes the records."""
        return self in (RecordFormat.DEBEZIUM_JSON, RecordFormat.DEBEZIUM_FLAT_JSON, RecordFormat.DEBEZIUM_AVRO)

    @property
    def is_avro(self) -> bool:
        """Whether records are in Avro and name a schema that a registry holds."""
        return self in (RecordFormat.AVRO, RecordFormat.DEBEZIUM_AVRO)

    @property
    def declares_columns(self) -> bool:
        """Whether the types of columns are known from the records, or from the job's `types` setting."""
        return self not in (RecordFormat.NONE, RecordFormat.MAXWELL_JSON)

    @property
    def names_tables(self) -> bool:
        """Whether records name the table of the source that they belong to."""
        return self.has_row_kinds

    @property
    def key_order(self) -> KeyOrder | None:
        """The default of `key-order` for this format; None: the order of keys is not checked."""
        if self is RecordFormat.NONE:
            return None
        return KeyOrder.FAIL if self.has_row_kinds else KeyOrder.WARN

    @property
    def reads_keys(self) -> bool:
        """Whether the key of a record may hold something that its value lacks."""
        return self.is_debezium


class ReaderChoice(Enum):
    """Who reads a Kafka source or Parquet files: Spark, or the tasks themselves."""

    AUTO = "auto"
    SPARK = "spark"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches start: every `interval_ms`, or (None) once over all that is available, then stop."""

    interval_ms: int | None


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """A Spark streaming source. `options` go to Spark unchanged.

    `reader` says whether Spark or the tasks read Kafka's records and Parquet files. `token_provider` names the function
    that returns the tokens with which tasks log in to Kafka.
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
    """Where bad records go (a folder, a table or a Kafka topic; at most one of them), and how many of them a batch
    tolerates.
    """

    path: str | None
    max_count: int
    table: str | None = None
    topic: str | None = None

    @property
    def has_place(self) -> bool:
        """Whether the job says where bad records go."""
        return any(place is not None for place in (self.path, self.table, self.topic))


@dataclass(frozen=True, slots=True)
class Setting:
    """The text of a setting, and where it comes from: `command line`, the name of a file, `table` or `default`.

    For `source.reader`, `--print-config` adds who reads the source. `written` is the text before its references were
    replaced; it is shown in place of `text`.
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

    `options` holds the options of sink and table; `settings` says where each text comes from. `table` is a name if
    there is a `catalog`, else a path. `storage` holds the storage options of the table and of the bad records. If
    `key_order` is None, the message format decides it.

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
    """The trigger that `availableNow`, or an interval like `30 seconds`, stands for. Raises OptionError for anything
    else.
    """
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
        raise OptionError(f"neither 'availableNow' nor an interval: {e.message}", value=text) from e


def parse_auto(text: str) -> str:
    """Checks that a text is `auto`, and returns it in lower case. Raises OptionError for any other text."""
    if text.strip().lower() != "auto":
        raise OptionError("'auto', or a section with schema, primary-key, ...", value=text)
    return "auto"


def parse_function_name(text: str) -> str:
    """The name of a function, as `module:name`. Raises OptionError for anything else."""
    module, colon, name = text.strip().partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise OptionError("a function is written module:name, as shop.tokens:kafka", value=text)
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
"""The single keys of a job file. `key-order` and the keys of bad records are options of the sink as well."""

SOURCE_OPTIONS, CREATE_OPTIONS, OPTIONS, STORAGE = "source.options.", "create.options.", "options.", "storage."
CATALOG = "catalog."
JOB_PREFIXES = (SOURCE_OPTIONS, CREATE_OPTIONS, OPTIONS, STORAGE, CATALOG, TYPES, EXPECT)
"""Prefixes of keys in a job file. The rest of such a key is an option of the source, of the new table, of sink and
table, of the storage or of the catalog; or a column, for `types.`; or the name of an expectation, for `expect.`.
"""


def job_config(settings: Mapping[str, Setting]) -> JobConfig:
    """The job that flat settings describe. The keys have been checked before.

    Raises OptionError for an invalid value, and for a missing table, source format, checkpoint or schema.
    """
    texts = {key: setting.text for key, setting in settings.items()}
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
        raise OptionError(f"{given[0]} and {given[1]} do not go together: bad records go to one of them", key=given[1])
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
            f"option '{CREATE_SCHEMA.key}' is required and not set: {CREATE_SCHEMA.doc}; with decode: {decode.value} "
            "the records do not declare their columns",
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
