"""The decode step that fits a table: chosen by the job's `source.decode` and the table's schema."""

from dataclasses import replace

from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_DECODE, BadRecords, RecordFormat
from bucketline.conf.message_options import (
    NO_MESSAGE_OPTIONS,
    SHARDS,
    SOURCE_BYTES,
    SOURCE_TABLE,
    TRUNCATE,
    UNAVAILABLE_VALUE,
    MessageOptions,
)
from bucketline.conf.option import UNLIMITED
from bucketline.conf.registry_options import URL as REGISTRY_URL
from bucketline.conf.registry_options import RegistryOptions
from bucketline.conf.sink_options import BAD_RECORDS_PATH
from bucketline.conf.table.choices import ChangelogProducer, MergeEngine
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.determinism import SystemIds
from bucketline.state.format.schema_json import TableSchema
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.row_changes import UpdateBefore
from bucketline.streaming.decode.schema_needs import Watch

_RETRACTING_ENGINES = (MergeEngine.AGGREGATION, MergeEngine.PARTIAL_UPDATE)
"""Merge engines that retract the old row of an update, and so need it."""

_WITH_TRUNCATES = (
    RecordFormat.DEBEZIUM_JSON,
    RecordFormat.DEBEZIUM_AVRO,
    RecordFormat.CANAL_JSON,
    RecordFormat.MAXWELL_JSON,
)
_MOST_REJECTS = 1 << 31


def decode_step(
    decode: RecordFormat,
    schema: TableSchema,
    bad_records: BadRecords,
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
    registry: RegistryOptions | None = None,
) -> DecodeStep | None:
    """The step that turns records into rows of the table; None when they are rows already.

    Raises OptionError, SchemaMismatchError and UnsupportedTableError when no record could become a row of this table.
    """
    if bad_records.max_count > 0 and bad_records.path is None:
        raise OptionError(
            "bad-records.max allows bad records, but bad-records.path, the folder for them, is not set",
            key=BAD_RECORDS_PATH.key,
        )
    _check_messages(decode, messages)
    _check_registry(decode, registry)
    if decode is RecordFormat.NONE:
        return None
    schemas = None if registry is None else RegistrySchemas(registry, SystemIds().new_uuid())
    limit = _MOST_REJECTS if bad_records.max_count == UNLIMITED else bad_records.max_count + 1
    return step_for(DecodeStep(decode, (), reject_limit=limit, messages=messages, registry=schemas), schema)


def step_for(step: DecodeStep, schema: TableSchema, watch: Watch = Watch.NOTHING) -> DecodeStep:
    """The step for another schema of the table; the same step if nothing changes.

    Raises as `decode_step`.
    """
    if step.decode.has_row_kinds:
        _check_takes_changes(step.decode, schema)
    sequence = schema.settings.merge.sequence_fields
    # A cross-partition table finds a row by its key in whatever partition it is.
    places = () if bucket_mode(schema).moves_keys else schema.partition_keys
    # Any other table keeps a row for each key and partition, so that both say which row an update replaces.
    needed = {*schema.primary_keys, *places, *sequence}
    fitting = replace(
        step,
        fields=tuple(schema.fields),
        primary_key=tuple(dict.fromkeys((*schema.primary_keys, *(places if schema.primary_keys else ())))),
        loose=tuple(f.name for f in schema.fields if not f.type.nullable and f.name not in needed),
        update_before=_update_before(schema, step.decode),
        watch=watch,
        fixed=(*schema.primary_keys, *schema.partition_keys, *(schema.settings.bucket.key or ())),
    )
    if fitting != step:
        fitting.check()
    return fitting


def _check_messages(decode: RecordFormat, messages: MessageOptions) -> None:
    """Raises OptionError for an option that says nothing of messages of this format."""
    if messages == NO_MESSAGE_OPTIONS:
        return
    if not decode.names_tables:
        for option, value in ((SOURCE_TABLE, messages.source_table), (SHARDS, messages.shards)):
            if value is not None:
                raise OptionError(
                    f"{option.key} is about messages that name the table they are of, which decode: {decode.value} "
                    "does not read; take it out, or use another decode",
                    key=option.key,
                )
    may_be_debezium = decode in (RecordFormat.JSON, RecordFormat.AVRO) or decode.is_debezium
    if not may_be_debezium or decode.is_avro:
        for key, is_set in ((SOURCE_BYTES.key, messages.bytes_form is not None), ("types", bool(messages.types))):
            if is_set:
                raise OptionError(
                    f"{key} is about JSON that does not say its types; decode: {decode.value} knows them, or does not "
                    "read JSON; take it out",
                    key=key,
                )
    if messages.truncate is not TRUNCATE.default and decode not in _WITH_TRUNCATES:
        raise OptionError(
            f"{TRUNCATE.key} is about messages that tell of truncates, which decode: {decode.value} does not have; "
            "take it out",
            key=TRUNCATE.key,
        )
    if messages.unavailable_value != UNAVAILABLE_VALUE.default and not may_be_debezium:
        raise OptionError(
            f"{UNAVAILABLE_VALUE.key} is about messages of Debezium, which decode: {decode.value} does not read; take "
            "it out",
            key=UNAVAILABLE_VALUE.key,
        )


def _check_registry(decode: RecordFormat, registry: RegistryOptions | None) -> None:
    """Raises OptionError where Avro has no registry, or a registry has no use."""
    if decode.is_avro and registry is None:
        raise OptionError(
            f"decode: {decode.value} needs the address of the schema registry: set {REGISTRY_URL.key}",
            key=REGISTRY_URL.key,
        )
    if registry is not None and not decode.is_avro:
        raise OptionError(
            f"source.registry is about messages in Avro, which decode: {decode.value} does not read; take it out",
            key=REGISTRY_URL.key,
        )


def _check_takes_changes(decode: RecordFormat, schema: TableSchema) -> None:
    if not schema.primary_keys:
        raise OptionError(
            f"decode: {decode.value} produces updates and deletes, but a table without a primary key takes inserts "
            "only; use a table with a primary key",
            key=SOURCE_DECODE.key,
        )
    row_kind = schema.settings.merge.row_kind_field
    if row_kind is not None:
        raise OptionError(
            f"decode: {decode.value} gives each row its row kind, but the table takes it from column {row_kind!r} "
            "(rowkind.field); use decode: json, or a table without rowkind.field",
            key=SOURCE_DECODE.key,
        )
    if any(f.name == ROW_KIND_COLUMN for f in schema.fields):
        raise OptionError(
            f"the table has a column {ROW_KIND_COLUMN}, a name that decode: {decode.value} uses for row kinds; rename "
            "the column",
            key=SOURCE_DECODE.key,
        )


def _update_before(schema: TableSchema, decode: RecordFormat) -> UpdateBefore:
    """-U rows cost as much as others: they are produced only if the table uses them. Where records do not have them,
    `partial-update` goes without unless columns are aggregated."""
    engine = schema.settings.merge.engine
    is_plain = (
        decode is RecordFormat.DEBEZIUM_FLAT_JSON
        and engine is MergeEngine.PARTIAL_UPDATE
        and not any(schema.settings.columns.function_of(f.name) for f in schema.fields)
    )
    if schema.settings.changelog.producer is ChangelogProducer.INPUT or (
        engine in _RETRACTING_ENGINES and not is_plain
    ):
        return UpdateBefore.EMIT
    return UpdateBefore.DROP
