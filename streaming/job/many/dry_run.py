"""`ingest --dry-run`: shows what a job would do with the first records of its source. Nothing is written.

The first records of each partition are read once, split by table as a batch would split them, and decoded for the
existing table, or for the table that would be created.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.job import CREATE_SCHEMA, SOURCE_DECODE, JobConfig, RecordFormat
from bucketline.conf.routes.route import SourceName
from bucketline.conf.routes.routed_job import Left, Resolved, RoutedJob
from bucketline.conf.sources.source_options import KAFKA, first_records, source_options, with_headers
from bucketline.state.determinism import SYSTEM_WORLD, SystemIds
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.warehouse.catalog import catalog_of
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import columns_text
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.decode.avro.avro_reader import AvroReader
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from bucketline.streaming.job.check import new_schema
from bucketline.streaming.job.create_declared import declared_in
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.job_table import has_table, no_table, open_existing
from bucketline.streaming.job.kafka.kafka_failure import kafka_failures
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.run import look_around
from bucketline.streaming.job.source import read_sample
from bucketline.streaming.job.start.silence import broken_silence
from bucketline.streaming.tasks.many.split import Origin, Part, Splitter

RECORDS_EACH = 100
"""The number of records to read from each topic partition, or from each split of another source."""

SHOWN = pa.schema(
    [
        ("source", pa.string()),
        ("records", pa.int64()),
        ("table", pa.string()),
        ("is", pa.string()),
        ("rows", pa.int64()),
        ("bad", pa.int64()),
        ("reason", pa.string()),
        ("columns", pa.string()),
    ]
)
"""The columns that are shown for each source table or topic: the number of records read, the table that they go to,
whether this table exists, the number of rows, the number of bad records with the first reason, and the columns.
"""


def dry_run(job: JobConfig | RoutedJob, spark: Any | None, ending: Ending, log: SparkLog) -> pa.Table:
    """Returns a row (SHOWN) for each source table or topic, which says what the job would do with its first records.

    Raises OptionError for a job without records to decode, and the errors of the start of a job.
    """
    common = job if isinstance(job, JobConfig) else job.common
    if common.source.decode is RecordFormat.NONE:
        raise OptionError(
            f"--dry-run shows how messages are decoded, but {SOURCE_DECODE.key} is none: rows are written unchanged; "
            "--print-config shows the settings",
            key=SOURCE_DECODE.key,
        )
    options = first_records(common.source.format, source_options(common.source).options)
    if common.source.format == KAFKA and common.source.decode.is_avro:
        options = dict(with_headers(options))
    with broken_silence("looking at the source") as silence, explained():
        look_around(common, source_options(common.source), spark, silence)
        with (
            open_session("bucketline dry run", spark, ending, log, silence) as session,
            kafka_failures(options if common.source.format == KAFKA else None),
            explained(),
        ):
            silence.doing("reading the first records")
            records = read_sample(session, common.source, options, RECORDS_EACH)
    registry = None if common.registry is None else RegistrySchemas(common.registry, SystemIds().new_uuid())
    try:
        return shown(job, records, registry)
    finally:
        if registry is not None:
            registry.forget()


def shown(job: JobConfig | RoutedJob, records: pa.Table, registry: RegistrySchemas | None = None) -> pa.Table:
    """Returns a row (SHOWN) for each source table or topic of these records, which says what the job would do with
    them.
    """
    routes = job if isinstance(job, RoutedJob) else _OneTable(job)
    reader = None if registry is None else AvroReader(registry)
    splitter = Splitter(routes, routes.decode, reader)
    found: dict[Origin, _Found] = {}
    for part in _parts(splitter, records):
        found.setdefault(part.origin, _Found(part)).records.append(part.records)
    return pa.Table.from_pylist([_row(one, routes.config_of, registry) for one in found.values()], schema=SHOWN)


@dataclass(frozen=True, slots=True)
class _OneTable:
    """The routes of a job of one table: each record goes to the job's table, or is excluded by `source-table`."""

    job: JobConfig

    @property
    def decode(self) -> RecordFormat:
        return self.job.source.decode

    @property
    def asks_names(self) -> bool:
        return self.decode.names_tables

    def resolve(self, name: SourceName | None, topic: str | None) -> Resolved | Left:
        reads = name is None or self.job.messages.reads_table(*name.texts)
        return Resolved(0, self.job.table) if reads else Left.EXCLUDED

    def config_of(self, to: Resolved) -> JobConfig:
        return self.job


@dataclass(slots=True)
class _Found:
    """The records of one origin (source table and topic). `part` says to which table they go."""

    part: Part
    records: list[pa.Table] = field(default_factory=list)


def _parts(splitter: Splitter, records: pa.Table) -> Iterator[Part]:
    try:
        yield from splitter.parts(records)
    except OptionError as e:
        raise e.reworded(f"a record of the sample has a table name that no table can have: {e.message}") from e


def _row(found: _Found, config_of: Callable[[Resolved], JobConfig], registry: RegistrySchemas | None) -> dict[str, Any]:
    origin, to = found.part.origin, found.part.to
    records = pa.concat_tables(found.records)
    row: dict[str, Any] = {"source": str(origin), "records": records.num_rows}
    if isinstance(to, Left):
        return {**row, "is": to.value}
    row["table"] = to.table
    try:
        config = config_of(to)
        there, schema = _schema(config, [records])
        row |= {"is": "there" if there else "to be made", "columns": columns_text(schema.fields)}
        return row | _decoded(config, schema, records, registry)
    except BucketlineError as e:
        return {**row, "is": row.get("is", "refused"), "reason": e.message}


def _schema(config: JobConfig, sample: Sequence[pa.Table]) -> tuple[bool, TableSchema]:
    """Returns whether the table of the job exists, and the table's schema. If the table does not exist, returns the
    schema with which the job would create it. That schema may come from what the records in `sample` declare.
    """
    if has_table(config):
        return True, handle_of(open_existing(config)).table_schema
    create = config.create
    if create is None:
        raise no_table(config)
    if create.schema is None:
        declared = declared_in(config, pa.concat_tables(sample))
        if declared is None:
            raise OptionError(
                "the records of the sample have no schema that names columns, so no table can be created from them; "
                f"write the columns in {CREATE_SCHEMA.key}",
                key="create",
            )
        create = replace(
            create, schema=columns_text(logical_fields(declared.columns)), primary_key=declared.primary_key
        )
    defaults = {} if config.catalog is None else catalog_of(config.catalog).table_defaults
    return False, new_schema(config, create, defaults, SYSTEM_WORLD)


def _decoded(
    config: JobConfig, schema: TableSchema, records: pa.Table, registry: RegistrySchemas | None
) -> dict[str, Any]:
    """Decodes the records. Returns the number of rows, and the number of bad records with the first reason."""
    step = decode_step(
        config.source.decode, schema, config.bad_records, config.messages, config.registry, config.columns
    )
    assert step is not None, "records are decoded"
    if step.registry is not None:
        with suppress(OSError):
            step.registry.forget()
    decoded = step_for(replace(step, registry=registry, reject_limit=records.num_rows), schema)(records)
    if decoded.rejects is None:
        return {"rows": decoded.rows.num_rows, "bad": 0}
    rejects = pa.ipc.open_stream(decoded.rejects.blob).read_all()
    return {"rows": decoded.rows.num_rows, "bad": rejects.num_rows, "reason": rejects["reason"][0].as_py()}
