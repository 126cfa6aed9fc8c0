"""Checks a job before Spark starts: settings, source, table and sink must fit together."""

from bucketline.conf.catalog_options import Metastore
from bucketline.conf.job import JobConfig
from bucketline.conf.reader_choice import check_reader
from bucketline.conf.resolve import effective_options
from bucketline.conf.sink_options import BAD_RECORDS_MAX, BAD_RECORDS_PATH
from bucketline.conf.source_options import source_options
from bucketline.conf.table.expiry_options import refuse_unregistered
from bucketline.state.determinism import SYSTEM_CLOCK, Clock
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.catalog.new_schema import check_table_path, plan_schema
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.warehouse.catalog import catalog_of
from bucketline.state.store.write.modes import plan_write
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.job_table import check_name, has_table, no_table, open_existing, require_publish


def check_job(config: JobConfig, *, clock: Clock = SYSTEM_CLOCK) -> TableSchema:
    """The schema that the job writes with: that of its table, or of the table it would create.

    Nothing is left behind; an object store is tried with an object that is removed again (`require_publish`).
    Raises the BucketlineError with which the job would fail before its first batch.
    """
    check_reader(config.source, source_options(config.source).options)
    check_name(config)
    require_publish(config)
    schema = job_schema(config, clock=clock)
    decode_step(config.source.decode, schema, config.bad_records, config.messages)
    effective_options(config.settings, schema.options)
    plan = plan_write(config.table, schema, sink_options_of(config))
    if config.catalog is None or config.catalog.metastore is not Metastore.REST:
        refuse_unregistered(plan.schema.options, config.table)
    return schema


def job_schema(config: JobConfig, *, clock: Clock = SYSTEM_CLOCK) -> TableSchema:
    """The schema of the job's table; if it does not exist, the one that the section `create` describes."""
    if has_table(config):
        return handle_of(open_existing(config)).table_schema
    if config.create is None:
        raise no_table(config)
    if config.catalog is None:
        check_table_path(config.table)
    return plan_schema(
        config.create.schema,
        config.create.primary_key,
        config.create.partition_by,
        {**({} if config.catalog is None else catalog_of(config.catalog).table_defaults), **config.create.options},
        config.create.comment,
        storage_options=config.storage,
        time_ms=clock.now_ms(),
    )


def sink_options_of(config: JobConfig) -> dict[str, str]:
    """The options of the sink: the job's own, and the policy for bad records."""
    options = dict(config.options)
    if config.bad_records.path is not None:
        options[BAD_RECORDS_PATH.key] = config.bad_records.path
    if config.bad_records.max_count:
        options[BAD_RECORDS_MAX.key] = str(config.bad_records.max_count)
    return options
