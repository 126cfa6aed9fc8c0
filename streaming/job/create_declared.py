"""`create: auto`: creates the job's table as the records of its source declare it.

The first records of the source are read once before the query starts. If there are none yet, the job waits for them;
with the trigger availableNow it ends. Only one of two jobs creates the table, because a new table begins with one file
that no second job can create. A job that dies before its first batch finds the table again. An existing table must fit:
as long as it has no snapshot, its keys must be the declared keys, and its columns must hold what the records declare.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CREATE, CREATE_SCHEMA, JobConfig
from bucketline.conf.sources.source_options import (
    EARLIEST,
    KAFKA,
    SourceOptions,
    begins_at_latest,
    first_records,
    start_at,
)
from bucketline.conf.wording import counted
from bucketline.state.commit.widen import misfit
from bucketline.state.determinism import SYSTEM_WORLD, SystemIds
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.table.table import Table, handle_of
from bucketline.state.store.warehouse.catalog import catalog_of
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import columns_text
from bucketline.streaming.batch.inputs.registry_wait import when_registry_answers
from bucketline.streaming.decode.avro.avro_reader import AvroReader
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.declared.declared_rows import declared_rows
from bucketline.streaming.decode.declared.declared_table import DeclaredTable, declared_table
from bucketline.streaming.decode.decode_step import framed_records
from bucketline.streaming.decode.source_tables import without_other_tables
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.check import check_with, new_schema
from bucketline.streaming.job.job_table import has_table, open_existing, open_or_create
from bucketline.streaming.job.source import read_first

_LOG = logging.getLogger("bucketline.job")
_MOST_RECORDS = 1000
_SHOWN_TABLES = 3
_PAUSE_S, _STEP_S = 2.0, 0.2


def is_declared_later(config: JobConfig) -> bool:
    """Returns True if the records will declare the job's table: the table does not exist, or no writer has written to
    the table yet.
    """
    if config.create is None or config.create.schema is not None:
        return False
    return not has_table(config) or handle_of(open_existing(config)).snapshot_store.latest_id() is None


def create_declared(
    spark: Any, config: JobConfig, source: SourceOptions, is_ending: Callable[[], bool]
) -> tuple[Table, SourceOptions] | None:
    """Returns the job's table, and the source as the query must read it.

    Returns None if no record declares the table, because no more records will come or the job is asked to end. Raises
    OptionError for records that do not declare a table, and SchemaMismatchError for an existing table that does not
    fit.
    """
    options = first_records(config.source.format, source.options)
    has_waited = False
    while not is_ending():
        records = read_first(spark, config.source, options, _MOST_RECORDS)
        declared = when_registry_answers(partial(declared_in, config, records), _wait_ms(config))
        if declared is not None:
            table = created_as(config, declared, records)
            return table, _from_the_first(config, source) if has_waited else source
        if has_table(config):
            return open_existing(config), source
        if records.num_rows >= _MOST_RECORDS:
            raise OptionError(
                f"create: auto: none of the first {counted(_MOST_RECORDS, 'record')} of the source holds a row of the "
                f"table, so its columns are not known; write the columns in {CREATE_SCHEMA.key}",
                key=CREATE.key,
            )
        if config.trigger.interval_ms is None:
            _LOG.warning(
                "the source has no row yet that declares the table %s; the table is not created, and the job ends",
                config.table,
            )
            return None
        if not has_waited:
            _LOG.info("waiting for the first row of the source, which declares the table %s", config.table)
        has_waited = True
        _pause(is_ending)
    return None


def _wait_ms(config: JobConfig) -> int:
    return 0 if config.registry is None else config.registry.wait_ms


def _pause(is_ending: Callable[[], bool]) -> None:
    until = time.monotonic() + _PAUSE_S
    while time.monotonic() < until and not is_ending():
        time.sleep(_STEP_S)


def _from_the_first(config: JobConfig, source: SourceOptions) -> SourceOptions:
    """Returns the source. If the query would begin after the newest record, the source is changed to begin at its first
    record, because otherwise the records that came while the job waited would be skipped.
    """
    if config.source.format != KAFKA or not begins_at_latest(source.options):
        return source
    return replace(source, options=start_at(source.options, EARLIEST))


def declared_in(config: JobConfig, records: pa.Table) -> DeclaredTable | None:
    """Returns the table that records declare; None if no record declares one."""
    decode, messages, create = config.source.decode, config.messages, config.create
    assert create is not None
    schemas = None if config.registry is None else RegistrySchemas(config.registry, SystemIds().new_uuid())
    try:
        values, keys = framed_records(records, decode)
        if messages.source_table is not None:
            reader = None if schemas is None else AvroReader(schemas)
            values, _ = without_other_tables(values, decode, messages, reader)
        rows = declared_rows(values, keys, decode, messages, schemas)
        return declared_table(rows, decode, create.primary_key)
    finally:
        if schemas is not None:
            schemas.forget()


def created_as(config: JobConfig, declared: DeclaredTable, records: pa.Table) -> Table:
    """Creates the table as the records declare it, or opens the existing table. Returns the table. Raises
    SchemaMismatchError if the existing table does not fit what the records declare.
    """
    assert config.create is not None
    columns = columns_text(logical_fields(declared.columns))
    create = replace(config.create, schema=columns, primary_key=declared.primary_key)
    complete = replace(config, create=create)
    defaults = {} if config.catalog is None else catalog_of(config.catalog).table_defaults
    wanted = new_schema(complete, create, defaults, SYSTEM_WORLD)
    check_with(complete, wanted)
    _refuse_second_table(complete, wanted, records)
    is_new = not has_table(config)
    table = open_or_create(complete)
    why = misfit(handle_of(table).table_schema, wanted)
    if why is not None:
        raise SchemaMismatchError(
            f"create: auto: the table at {config.table} differs from the table that the records declare: {why}. Remove "
            "'create: auto' from the job, so that the job uses the existing table; or drop the table",
            path=config.table,
        )
    if is_new:
        key = f", primary key ({', '.join(declared.primary_key)})" if declared.primary_key else ""
        _LOG.info("created %s as its records declare it: %s%s", config.table, columns, key)
    return table


def _refuse_second_table(config: JobConfig, wanted: TableSchema, records: pa.Table) -> None:
    """Raises SchemaMismatchError if the records come from several tables of the source. (The batch of these records
    would raise the same error.)
    """
    step = decode_step(config.source.decode, wanted, config.bad_records, config.messages, config.registry)
    assert step is not None
    tables = sorted(step(records).seen.tables)
    if step.registry is not None:
        step.registry.forget()
    if len(tables) > 1 and not step.has_distinct_keys:
        raise SchemaMismatchError(
            f"create: auto: the records come from {counted(len(tables), 'table')} of the source, "
            f"{' and '.join(tables[:_SHOWN_TABLES])}: set source-table to the table to read; or, if no key is in two "
            "tables, set shards to distinct-keys",
            tables=tuple(tables),
        )
