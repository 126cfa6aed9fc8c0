"""Makes the decode step that fits a table, from the job's `source.decode` and the table's schema."""

from collections.abc import Collection
from dataclasses import replace
from typing import NoReturn

from bucketline.conf.column_options import NO_COLUMN_OPTIONS, RESCUED, ColumnOptions, Otherwise
from bucketline.conf.errors import OptionError
from bucketline.conf.job import SOURCE_DECODE, BadRecords, RecordFormat
from bucketline.conf.option import UNLIMITED
from bucketline.conf.sink_options import BAD_RECORDS_PATH
from bucketline.conf.sources.message_options import (
    INFINITY,
    NO_MESSAGE_OPTIONS,
    SHARDS,
    SOURCE_BYTES,
    SOURCE_TABLE,
    TRUNCATE,
    TYPE_MAPPING,
    UNAVAILABLE_KEY,
    UNAVAILABLE_VALUE,
    MessageOptions,
    Truncate,
    TypeMapping,
    Unavailable,
)
from bucketline.conf.sources.registry_options import URL as REGISTRY_URL
from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.determinism import SystemIds
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.sql.compute.calls import Context
from bucketline.state.sql.compute.selection import names_in
from bucketline.state.types.logical import TypeRoot
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.columns.plan_columns import plan_columns
from bucketline.streaming.decode.columns.rescued import IMAGES, Rescued
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.moves.key_moves import Asking
from bucketline.streaming.decode.rejects import RECORD_COLUMNS
from bucketline.streaming.decode.row_changes import UpdateBefore
from bucketline.streaming.decode.schema_needs import WatchFor
from bucketline.streaming.decode.source_metadata import SOURCE_METADATA
from bucketline.streaming.decode.unavailable import KEEPS_NOTHING, Keeping, LeftOut

_WITH_TRUNCATES = (
    RecordFormat.DEBEZIUM_JSON,
    RecordFormat.DEBEZIUM_AVRO,
    RecordFormat.CANAL_JSON,
    RecordFormat.MAXWELL_JSON,
)
_MAY_BE_LEFT_OUT = frozenset(
    (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY, TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW)
)
"""Types whose large values Postgres stores outside of the row."""
_MOST_REJECTS = 1 << 31


def decode_step(
    decode: RecordFormat,
    schema: TableSchema,
    bad_records: BadRecords,
    messages: MessageOptions = NO_MESSAGE_OPTIONS,
    registry: RegistryOptions | None = None,
    columns: ColumnOptions = NO_COLUMN_OPTIONS,
    *,
    now_us: int | None = None,
) -> DecodeStep | None:
    """Returns the step that turns records into rows of the table; None if the records are rows already.

    `now_us` is the time of the batch, in microseconds since 1970; it may be any time if each batch will set the time
    again. Raises OptionError, SchemaMismatchError and UnsupportedTableError if no record could become a row of this
    table.
    """
    check_reading(decode, bad_records, messages, registry, columns)
    if decode is RecordFormat.NONE:
        return None
    schemas = None if registry is None else RegistrySchemas(registry, SystemIds().new_uuid())
    limit = _MOST_REJECTS if bad_records.max_count == UNLIMITED else bad_records.max_count + 1
    kept = RECORD_COLUMNS if bad_records.has_place else ()
    step = DecodeStep(decode, (), reject_limit=limit, messages=messages, registry=schemas, columns=columns, kept=kept)
    step = replace(step, now_us=now_us)
    return step_for(step, schema)


def check_reading(
    decode: RecordFormat,
    bad_records: BadRecords,
    messages: MessageOptions,
    registry: RegistryOptions | None,
    columns: ColumnOptions = NO_COLUMN_OPTIONS,
) -> None:
    """Checks that these settings of a job fit together, whatever its table is. Raises OptionError if they do not."""
    if bad_records.max_count > 0 and not bad_records.has_place:
        raise OptionError(
            "bad-records.max allows bad records, but bad-records.path, the folder that stores them, is not set; set "
            "bad-records.path, or remove bad-records.max",
            key=BAD_RECORDS_PATH.key,
        )
    if columns.rescued is not None and decode not in IMAGES:
        raise OptionError(
            f"{RESCUED.key} needs records in one of the formats {', '.join(f.value for f in IMAGES)}, but "
            f"source.decode is {decode.value}; remove {RESCUED.key}",
            key=RESCUED.key,
        )
    _check_messages(decode, messages)
    _check_registry(decode, registry)
    _check_expectations(columns, bad_records, decode)


def step_for(step: DecodeStep, schema: TableSchema, watch: WatchFor = WatchFor.NOTHING) -> DecodeStep:
    """Returns the step changed for another schema of the table. `watch` says which missing fields and types the step
    must look for. If nothing changes, the result is equal to `step`.

    Raises the errors of `decode_step`.
    """
    if step.decode.has_row_kinds:
        _check_takes_changes(step.decode, schema)
    if step.messages.truncate is Truncate.APPLY:
        _check_can_be_emptied(schema)
    whole, schema = schema, _without_rescued(step, schema)
    sequence = schema.settings.merge.sequence_fields
    # A cross-partition table finds a row by its key, whatever its partition.
    places = () if bucket_mode(schema).moves_keys else schema.partition_keys
    # Every other table keeps one row for each partition and key, so both identify the row that an update replaces.
    needed = {*schema.primary_keys, *places, *sequence}
    fitting = replace(
        step,
        fields=tuple(schema.fields),
        primary_key=tuple(dict.fromkeys((*schema.primary_keys, *(places if schema.primary_keys else ())))),
        loose=tuple(f.name for f in schema.fields if not f.type.nullable and f.name not in needed),
        update_before=_update_before(schema, step.decode),
        watch=watch,
        fixed=(*schema.primary_keys, *schema.partition_keys, *(schema.settings.bucket.key or ())),
        keeping=replace(_keeping(step, schema, whole), asks=isinstance(step.moves, Asking)),
    )
    computed = plan_columns(
        step.columns,
        schema,
        step.decode,
        step.messages.types,
        takes_back=merging_of(schema).takes_back(),
        grows=watch is not WatchFor.NOTHING,
        context=Context(step.zone, has_instants=True, now_us=step.now_us),
    )
    fitting = replace(fitting, computed=computed, rescued=None)
    fitting = replace(fitting, rescued=_rescued(fitting, whole, needed))
    if fitting != step:
        fitting.check()
    return fitting


def _without_rescued(step: DecodeStep, schema: TableSchema) -> TableSchema:
    """Returns the schema without the rescued-data column. Raises OptionError if the column cannot hold rescued data."""
    name = step.columns.rescued
    if name is None:
        return schema
    field = next((f for f in schema.fields if f.name == name), None)
    if field is None:
        raise OptionError(
            f"{RESCUED.key}: the table has no column {name!r}; add it with type STRING", key=RESCUED.key, column=name
        )
    keys = (*schema.primary_keys, *schema.partition_keys, *schema.settings.merge.sequence_fields)
    if field.type.root is not TypeRoot.VARCHAR or not field.type.nullable or name in keys:
        raise OptionError(
            f"{RESCUED.key}: column {name!r} {field.type} must be a nullable STRING outside of keys, "
            "partitions and sequence.field",
            key=RESCUED.key,
            column=name,
        )
    return replace(schema, fields=tuple(f for f in schema.fields if f.name != name))


def _rescued(step: DecodeStep, schema: TableSchema, needed: Collection[str]) -> Rescued | None:
    """Returns how the rescued-data column is filled: it takes the parts of a record that no other column takes. Returns
    None if the table has no such column. `needed` are the columns that identify a row.
    """
    at = next((i for i, f in enumerate(schema.fields) if f.name == step.columns.rescued), None)
    if at is None:
        return None
    plan, decoded = step.computed, tuple(f.name for f in step.decoding.fields)
    if plan is None:
        known, fixed = decoded, (*needed, *schema.partition_keys)
    else:
        of_needed = (o.expression for o in plan.outputs if o.is_needed and o.expression is not None)
        known, fixed = (*decoded, *plan.left_out), tuple({n for e in of_needed for n in names_in(e)})
    skipped = "__" if step.decode is RecordFormat.DEBEZIUM_FLAT_JSON else None
    return Rescued(schema.fields[at], at, known, fixed, skipped)


def _check_messages(decode: RecordFormat, messages: MessageOptions) -> None:
    """Checks the message options. Raises OptionError for an option that has no effect on messages of this format."""
    if messages == NO_MESSAGE_OPTIONS:
        return
    if not decode.names_tables:
        for option, value in ((SOURCE_TABLE, messages.source_table), (SHARDS, messages.shards)):
            if value is not None:
                raise OptionError(
                    f"{option.key} needs messages that name their table, but 'decode: {decode.value}' does not read "
                    f"such messages; remove {option.key}, or set source.decode to another format",
                    key=option.key,
                )
    may_be_debezium = decode in (RecordFormat.JSON, RecordFormat.AVRO) or decode.is_debezium
    if not may_be_debezium or decode.is_avro:
        for key, is_set in ((SOURCE_BYTES.key, messages.bytes_form is not None), ("types", bool(messages.types))):
            if is_set:
                raise OptionError(
                    f"{key} needs JSON messages that do not say the types of their values, but 'decode: "
                    f"{decode.value}' reads messages that say them, or messages that are not JSON; remove {key}",
                    key=key,
                )
    if messages.truncate is not TRUNCATE.default and decode not in _WITH_TRUNCATES:
        raise OptionError(
            f"{TRUNCATE.key} needs messages about truncates, but the format 'decode: {decode.value}' has none; remove "
            f"{TRUNCATE.key}",
            key=TRUNCATE.key,
        )
    if messages.truncate is Truncate.APPLY and messages.shards is not None:
        _refuse_apply(
            f"with {SHARDS.key} several source tables go into the table, and the rows of the other ones would be "
            "removed too"
        )
    if messages.unavailable_value != UNAVAILABLE_VALUE.default and not may_be_debezium:
        raise OptionError(
            f"{UNAVAILABLE_VALUE.key} needs messages of Debezium, but 'decode: {decode.value}' does not read them; "
            f"remove {UNAVAILABLE_VALUE.key}",
            key=UNAVAILABLE_VALUE.key,
        )
    if messages.unavailable is not UNAVAILABLE_KEY.default and not decode.is_debezium:
        raise OptionError(
            f"{UNAVAILABLE_KEY.key} needs messages of Debezium, but 'decode: {decode.value}' does not read them; "
            f"remove {UNAVAILABLE_KEY.key}",
            key=UNAVAILABLE_KEY.key,
        )
    if messages.type_mapping and not decode.has_row_kinds:
        raise OptionError(
            (
                f"{TYPE_MAPPING.key} needs messages with types of a database, but 'decode: {decode.value}' does not "
                f"read such messages; remove {TYPE_MAPPING.key}"
            ),
            key=TYPE_MAPPING.key,
        )
    if TypeMapping.LONGTEXT_TO_BYTES in messages.type_mapping and decode is RecordFormat.MAXWELL_JSON:
        raise OptionError(
            f"{TYPE_MAPPING.key}: {TypeMapping.LONGTEXT_TO_BYTES.value} needs messages that name the type of a text "
            f"column, but messages of 'decode: {decode.value}' do not name it; remove "
            f"{TypeMapping.LONGTEXT_TO_BYTES.value}",
            key=TYPE_MAPPING.key,
        )
    if messages.infinity is not INFINITY.default and not decode.is_debezium:
        raise OptionError(
            f"{INFINITY.key} needs messages of Debezium, but 'decode: {decode.value}' does not read them; remove "
            f"{INFINITY.key}",
            key=INFINITY.key,
        )


def _check_expectations(columns: ColumnOptions, bad_records: BadRecords, decode: RecordFormat) -> None:
    """Raises OptionError if expectations cannot be checked, or if rejected records are not stored."""
    if columns.expect and decode is RecordFormat.NONE:
        raise OptionError(
            f"expect.{columns.expect[0].name} checks decoded records, but source.decode is none; remove the "
            "expectation, or let the NOT NULL columns of the table refuse rows",
            key=f"expect.{columns.expect[0].name}.check",
        )
    refusing = next((e for e in columns.expect if e.otherwise is Otherwise.REJECT), None)
    if refusing is not None and not bad_records.has_place:
        raise OptionError(
            f"expect.{refusing.name}.otherwise is reject, but {BAD_RECORDS_PATH.key}, the folder for rejected records, "
            f"is not set; set {BAD_RECORDS_PATH.key}",
            key=BAD_RECORDS_PATH.key,
        )


def _check_registry(decode: RecordFormat, registry: RegistryOptions | None) -> None:
    """Raises OptionError if the format is Avro and no registry is set, or if a registry is set and not needed."""
    if decode.is_avro and registry is None:
        raise OptionError(
            f"'decode: {decode.value}' needs the address of the schema registry: set {REGISTRY_URL.key}",
            key=REGISTRY_URL.key,
        )
    if registry is not None and not decode.is_avro:
        raise OptionError(
            f"source.registry needs messages in Avro, but 'decode: {decode.value}' does not read Avro; remove "
            "source.registry",
            key=REGISTRY_URL.key,
        )


def _check_takes_changes(decode: RecordFormat, schema: TableSchema) -> None:
    if not schema.primary_keys:
        raise OptionError(
            f"'decode: {decode.value}' produces updates and deletes, but a table without a primary key takes inserts "
            "only; use a table with a primary key",
            key=SOURCE_DECODE.key,
        )
    row_kind = schema.settings.merge.row_kind_field
    if row_kind is not None:
        raise OptionError(
            f"'decode: {decode.value}' gives each row its row kind, but the table takes row kinds from its column "
            f"{row_kind!r} (rowkind.field); use 'decode: json', or a table without rowkind.field",
            key=SOURCE_DECODE.key,
        )
    if any(f.name == ROW_KIND_COLUMN for f in schema.fields):
        raise OptionError(
            f"the table has a column {ROW_KIND_COLUMN}, a name that 'decode: {decode.value}' uses for row kinds; "
            "rename the column",
            key=SOURCE_DECODE.key,
        )


def _check_can_be_emptied(schema: TableSchema) -> None:
    """Raises OptionError if a truncate of the source's table cannot empty this table."""
    producer = schema.settings.changelog.producer
    if producer.writes_files:
        _refuse_apply(f"with changelog-producer = {producer.value} readers would not see that the rows are removed")
    if bucket_mode(schema).moves_keys:
        _refuse_apply("this is not supported if the key lacks partition columns (a cross-partition table)")
    of_source = next((name for name in schema.primary_keys if name in SOURCE_METADATA), None)
    if of_source is not None:
        _refuse_apply(
            f"its key has {of_source}, so several source tables may go into the table, and all their rows would be "
            "removed"
        )


def _refuse_apply(why: str) -> NoReturn:
    raise OptionError(
        f"{TRUNCATE.key} = {Truncate.APPLY.value} removes all rows of the table, and {why}; set {TRUNCATE.key} to skip "
        "or reject",
        key=TRUNCATE.key,
    )


def _keeping(step: DecodeStep, schema: TableSchema, whole: TableSchema) -> Keeping:
    """Returns what happens if the source leaves out a value of a row: how the table keeps the value that the row had
    before. Raises OptionError if the table cannot keep old values, for example because its merge engine keeps the first
    row.

    `whole` is the schema with all columns, and `schema` is the same schema without the rescued-data column.
    """
    if step.messages.unavailable is Unavailable.REJECT:
        return KEEPS_NOTHING
    settings = schema.settings
    engine = settings.merge.engine
    never = tuple(dict.fromkeys((*schema.primary_keys, *schema.partition_keys, *settings.merge.sequence_fields)))
    names = tuple(f.name for f in whole.fields)
    if merging_of(schema).null_keeps:
        for group in settings.columns.sequence_groups:
            for name in (*group.sequence, *group.columns):
                if schema.field(name).type.root in _MAY_BE_LEFT_OUT:
                    _refuse_keep(
                        f"column {name!r} is in a sequence group of the table, in which a null overwrites a value"
                    )
        # A null would become the default value, and overwrite the old one.
        defaults = (f.name for f in schema.fields if f.default_value is not None)
        return Keeping(LeftOut.NULL, (*never, *defaults), names)
    if not engine.keeps_newest:
        _refuse_keep(f"a table with merge-engine {engine.value} does not replace rows by newer rows")
    if settings.changelog.producer.logs_input:
        _refuse_keep("a table with changelog-producer = input logs rows as they come")
    mode = bucket_mode(schema)
    if mode.moves_keys or mode.postpones:
        why = "a table whose key lacks partition columns" if mode.moves_keys else "a table with postponed buckets"
        _refuse_keep(f"{why} does not read the old row when it writes")
    return Keeping(LeftOut.MARKED, never, names)


def _refuse_keep(why: str) -> NoReturn:
    raise OptionError(
        f"{UNAVAILABLE_KEY.key} = keep needs the old row, which has the values that the source left out, but {why}; "
        f"set {UNAVAILABLE_KEY.key} to reject, and REPLICA IDENTITY FULL on the source table",
        key=UNAVAILABLE_KEY.key,
    )


def _update_before(schema: TableSchema, decode: RecordFormat) -> UpdateBefore:
    """Returns whether updates produce -U rows.

    -U rows cost as much as other rows, so they are produced only if the table uses them. If the records of the format
    lack the old row of an update, `partial-update` works without -U rows unless columns are aggregated.
    """
    if schema.settings.changelog.producer.logs_input:
        return UpdateBefore.EMIT
    has_old_rows = decode is not RecordFormat.DEBEZIUM_FLAT_JSON
    is_used = schema.settings.merge.engine.builds_rows and (has_old_rows or merging_of(schema).takes_back())
    return UpdateBefore.EMIT if is_used else UpdateBefore.DROP
