"""Checks a job before Spark starts: settings, source, table and sink must fit together.

`check_job` looks at the table and tries its storage; `check_settings` looks at nothing but the settings.
"""

from collections.abc import Mapping

from bucketline.conf.catalog_options import Metastore
from bucketline.conf.errors import OptionError
from bucketline.conf.job import Create, JobConfig
from bucketline.conf.message_options import TYPES
from bucketline.conf.option import did_you_mean
from bucketline.conf.reader_choice import check_reader
from bucketline.conf.resolve import effective_options
from bucketline.conf.sink_options import (
    BAD_RECORDS_MAX,
    BAD_RECORDS_PATH,
    KEY_ORDER,
    refuse_unknown_options,
    sink_options,
    split_options,
)
from bucketline.conf.source_options import KAFKA, source_options
from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.conf.table.expiry_options import refuse_unregistered
from bucketline.state.determinism import SYSTEM_CLOCK, Clock
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.catalog.new_schema import check_table_path, plan_schema
from bucketline.state.store.storage.plain_io import check_uri
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.warehouse.catalog import catalog_of
from bucketline.state.store.write.modes import plan_write
from bucketline.streaming.decode.avro.registry_client import require_package
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.job_table import check_name, has_table, no_table, open_existing, require_publish


def check_job(config: JobConfig, *, clock: Clock = SYSTEM_CLOCK) -> TableSchema:
    """The schema that the job writes with: that of its table, or of the table it would create.

    Nothing is left behind; an object store is tried with an object that is removed again (`require_publish`).
    Raises the BucketlineError with which the job would fail before its first batch.
    """
    _check_source(config)
    require_publish(config)
    schema = job_schema(config, clock=clock)
    _check_with(config, schema)
    return schema


def check_settings(config: JobConfig, *, clock: Clock = SYSTEM_CLOCK) -> TableSchema | None:
    """The schema of the table that the section `create` describes; None without that section.

    Reads no file and sends no request, so it knows neither the table nor what a catalog's server sets for new ones.
    Raises the BucketlineError that the settings alone give reason for.
    """
    _check_source(config)
    if config.catalog is None:
        check_uri(config.table)
    if config.create is None:
        options = sink_options_of(config)
        refuse_unknown_options(options)
        sink_options(split_options(options)[0])
        return None
    schema = _new_schema(config, config.create, {} if config.catalog is None else config.catalog.table_defaults, clock)
    _check_with(config, schema)
    return schema


def _check_source(config: JobConfig) -> None:
    check_reader(config.source, source_options(config.source).options)
    check_name(config)
    _check_key_order(config)
    if config.registry is not None and config.source.decode.is_avro:
        require_package()


def _check_with(config: JobConfig, schema: TableSchema) -> None:
    """Returns if the job can write to a table of that schema."""
    decode_step(config.source.decode, schema, config.bad_records, config.messages, config.registry)
    effective_options(config.settings, schema.options)
    plan = plan_write(config.table, schema, sink_options_of(config))
    if plan.sink.schema_evolution is not EvolutionPolicy.EVOLVE:
        _check_types(config, schema)
    if config.catalog is None or config.catalog.metastore is not Metastore.REST:
        refuse_unregistered(plan.schema.options, config.table)


def _check_types(config: JobConfig, schema: TableSchema) -> None:
    """Raises OptionError for a type of a column that no row will have."""
    known = [f.name for f in schema.fields]
    for name, _ in config.messages.types:
        if name not in known:
            raise OptionError(
                f"types names a column {name!r}, which the table does not have{did_you_mean(name, known)}",
                key=f"{TYPES}{name}",
            )


def job_schema(config: JobConfig, *, clock: Clock = SYSTEM_CLOCK) -> TableSchema:
    """The schema of the job's table; if it does not exist, the one that the section `create` describes."""
    if has_table(config):
        return handle_of(open_existing(config)).table_schema
    if config.create is None:
        raise no_table(config)
    defaults = {} if config.catalog is None else catalog_of(config.catalog).table_defaults
    return _new_schema(config, config.create, defaults, clock)


def _new_schema(config: JobConfig, create: Create, defaults: Mapping[str, str], clock: Clock) -> TableSchema:
    if config.catalog is None:
        check_table_path(config.table)
    return plan_schema(
        create.schema,
        create.primary_key,
        create.partition_by,
        {**defaults, **create.options},
        create.comment,
        storage_options=config.storage,
        time_ms=clock.now_ms(),
    )


def sink_options_of(config: JobConfig) -> dict[str, str]:
    """The options of the sink: the job's own, and what a job file says elsewhere of bad records and of keys."""
    options = dict(config.options)
    if config.bad_records.path is not None:
        options[BAD_RECORDS_PATH.key] = config.bad_records.path
    if config.bad_records.max_count:
        options[BAD_RECORDS_MAX.key] = str(config.bad_records.max_count)
    if config.key_order is not None:
        options[KEY_ORDER.key] = config.key_order.value
    return options


def _check_key_order(config: JobConfig) -> None:
    """Raises OptionError where a job says what to do about keys of several partitions, and reads no partitions."""
    if config.key_order is not None and config.source.format != KAFKA:
        raise OptionError(
            f"{KEY_ORDER.key} is about partitions of Kafka topics, and source.format is {config.source.format}; take "
            "it out",
            key=KEY_ORDER.key,
        )
