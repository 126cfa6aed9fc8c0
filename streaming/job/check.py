"""Checks a job before Spark starts: settings, source, table and sink must fit together.

`check_job` reads the table and tries its storage; `check_settings` reads only the settings.
"""

from collections.abc import Mapping

from bucketline.conf.catalog_options import MetastoreKind
from bucketline.conf.column_options import NO_COLUMN_OPTIONS, SELECT, WHERE
from bucketline.conf.errors import OptionError
from bucketline.conf.job import (
    BAD_RECORDS_TOPIC,
    CREATE_SCHEMA,
    SOURCE_READER,
    Create,
    JobConfig,
    ReaderChoice,
    RecordFormat,
)
from bucketline.conf.option import did_you_mean
from bucketline.conf.resolve import effective_options
from bucketline.conf.sink_options import (
    BAD_RECORDS_MAX,
    BAD_RECORDS_PATH,
    KEY_ORDER,
    refuse_unknown_options,
    sink_options,
    split_options,
)
from bucketline.conf.sources.message_options import TRUNCATE, TYPES, Truncate
from bucketline.conf.sources.reader_choice import check_reader
from bucketline.conf.sources.source_options import KAFKA, kafka_source, source_options
from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.conf.table.expiry_options import refuse_unregistered
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.new_schema import check_table_path, plan_schema
from bucketline.state.store.storage.plain_io import check_uri
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.warehouse.catalog import catalog_of
from bucketline.state.store.write.modes import plan_write
from bucketline.streaming.decode.avro.registry_client import require_package
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.step_for_table import check_reading, decode_step
from bucketline.streaming.job.job_table import check_name, has_table, no_table, open_existing, require_publish


def check_job(config: JobConfig, *, world: World = SYSTEM_WORLD) -> TableSchema | None:
    """Checks a job, and returns the schema with which it writes: the schema of its table, or of the table that it would
    create; None if the records will declare the schema.

    No file is left behind; an object store is tried with an object that is removed again (`require_publish`). Raises
    the BucketlineError with which the job would fail before its first batch.
    """
    _check_source(config)
    require_publish(config)
    schema = job_schema(config, world=world)
    if schema is None:
        _check_without(config)
    else:
        check_with(config, schema)
    return schema


def check_settings(config: JobConfig, *, world: World = SYSTEM_WORLD) -> TableSchema | None:
    """Checks the settings of a job. Returns the schema of the table that the section `create` describes; None if it
    describes none.

    The check reads no file and sends no request, so it knows neither the table nor the defaults of a catalog's server.
    Raises BucketlineError if the settings alone are wrong.
    """
    _check_source(config)
    if config.catalog is None:
        check_uri(config.table)
    if config.create is None or config.create.schema is None:
        _check_without(config)
        return None
    schema = new_schema(config, config.create, {} if config.catalog is None else config.catalog.table_defaults, world)
    check_with(config, schema)
    return schema


def check_without_table(config: JobConfig) -> None:
    """Checks the settings of a job whose table has no name yet. Reads nothing but the settings."""
    _check_file_reader(config)
    check_reader(config.source, source_options(config.source).options)
    _check_key_order(config)
    _check_bad_topic(config)
    _check_truncate(config)
    if config.create is not None and config.create.schema is not None:
        check_with(config, new_schema(config, config.create, {}, SYSTEM_WORLD))
    else:
        _check_without(config)


def _check_source(config: JobConfig) -> None:
    _check_file_reader(config)
    check_reader(config.source, source_options(config.source).options)
    check_name(config)
    _check_key_order(config)
    _check_bad_topic(config)
    _check_truncate(config)
    if config.registry is not None and config.source.decode.is_avro:
        require_package()


def _check_file_reader(config: JobConfig) -> None:
    """Raises OptionError if the job requires that tasks read files themselves, although Spark has to compute
    columns.
    """
    is_asked = config.source.reader is ReaderChoice.NATIVE and config.source.decode is RecordFormat.NONE
    if is_asked and config.columns != NO_COLUMN_OPTIONS:
        raise OptionError(
            f"{SOURCE_READER.key} is native, but Spark must read the rows to compute {SELECT.key} and {WHERE.key}; "
            f"remove {SOURCE_READER.key}",
            key=SOURCE_READER.key,
        )


def _check_without(config: JobConfig) -> None:
    """Checks the settings of a job while the columns of its table are not known."""
    if config.create is not None:
        check_reading(config.source.decode, config.bad_records, config.messages, config.registry, config.columns)
        if config.columns != NO_COLUMN_OPTIONS:
            raise OptionError(
                f"'{SELECT.key}', '{WHERE.key}' and 'expect' need a table with known columns: write the columns in "
                f"'{CREATE_SCHEMA.key}'",
                key=CREATE_SCHEMA.key,
            )
    options = sink_options_of(config)
    refuse_unknown_options(options)
    sink_options(split_options(options)[0])


def check_with(config: JobConfig, schema: TableSchema) -> None:
    """Checks that the job can write to a table with this schema."""
    step = decode_step(
        config.source.decode, schema, config.bad_records, config.messages, config.registry, config.columns, now_us=0
    )
    effective_options(config.settings, schema.options)
    plan = plan_write(config.table, schema, sink_options_of(config), is_stream=True)
    if plan.sink.schema_evolution is not EvolutionPolicy.EVOLVE:
        _check_types(config, schema, step)
    if config.catalog is None or config.catalog.metastore is not MetastoreKind.REST:
        refuse_unregistered(plan.schema.options, config.table)


def _check_types(config: JobConfig, schema: TableSchema, step: DecodeStep | None) -> None:
    """Raises OptionError if `types` contains a column that no row will have."""
    known = [f.name for f in (*schema.fields, *(() if step is None else step.decoding.fields))]
    for name, _ in config.messages.types:
        if name not in known:
            raise OptionError(
                f"'types' contains a column {name!r}, which the table does not have{did_you_mean(name, known)}",
                key=f"{TYPES}{name}",
            )


def job_schema(config: JobConfig, *, world: World = SYSTEM_WORLD) -> TableSchema | None:
    """Returns the schema of the job's table. If the table does not exist, returns the schema that the section `create`
    describes, or None if the records will declare it.
    """
    if has_table(config):
        return handle_of(open_existing(config)).table_schema
    if config.create is None:
        raise no_table(config)
    if config.create.schema is None:
        return None
    defaults = {} if config.catalog is None else catalog_of(config.catalog).table_defaults
    return new_schema(config, config.create, defaults, world)


def new_schema(config: JobConfig, create: Create, defaults: Mapping[str, str], world: World) -> TableSchema:
    """Returns the first schema of the table that `create` describes. `defaults` are the options that a new table of the
    catalog gets unless `create` sets them. Raises the errors of `plan_schema`.
    """
    if config.catalog is None:
        check_table_path(config.table)
    assert create.schema is not None, "the records do not declare the columns"
    return plan_schema(
        create.schema,
        create.primary_key,
        create.partition_by,
        {**defaults, **create.options},
        create.comment,
        storage_options=config.storage,
        time_ms=world.clock.now_ms(),
    )


def sink_options_of(config: JobConfig) -> dict[str, str]:
    """Returns the options of the sink: the job's `options`, and its settings for bad records and key order."""
    options = dict(config.options)
    if config.bad_records.path is not None:
        options[BAD_RECORDS_PATH.key] = config.bad_records.path
    if config.bad_records.max_count:
        options[BAD_RECORDS_MAX.key] = str(config.bad_records.max_count)
    if config.key_order is not None:
        options[KEY_ORDER.key] = config.key_order.value
    return options


def _check_bad_topic(config: JobConfig) -> None:
    """Raises OptionError if a job would read the bad records that it writes."""
    topic = config.bad_records.topic
    if topic is not None and kafka_source(config.source.options).reads(topic):
        raise OptionError(
            f"{BAD_RECORDS_TOPIC.key} = {topic!r} is a topic that the job reads: it would read its bad records again "
            "and again; name a topic that the job does not read",
            key=BAD_RECORDS_TOPIC.key,
        )


def _check_key_order(config: JobConfig) -> None:
    """Raises OptionError if a job sets `key-order` although it reads no Kafka topic."""
    if config.key_order is not None and config.source.format != KAFKA:
        raise OptionError(
            f"{KEY_ORDER.key} needs a Kafka source, but source.format is {config.source.format}; remove "
            f"{KEY_ORDER.key}",
            key=KEY_ORDER.key,
        )


def _check_truncate(config: JobConfig) -> None:
    """Raises OptionError if the job applies truncates although its source does not order the records."""
    if config.messages.truncate is Truncate.APPLY and config.source.format != KAFKA:
        raise OptionError(
            f"{TRUNCATE.key} = {Truncate.APPLY.value} needs a Kafka topic with one partition, but source.format is "
            f"{config.source.format}; set {TRUNCATE.key} to skip or reject",
            key=TRUNCATE.key,
        )
