"""Finds, opens and creates the tables of a job of several tables, each as a job of only this table would."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CREATE, JobConfig
from bucketline.conf.routes.route_options import TABLES
from bucketline.conf.routes.routed_job import Left, Resolved, RoutedJob
from bucketline.conf.sources.message_options import TYPES
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.table.table import handle_of
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.step_for_table import decode_step, step_for
from bucketline.streaming.job.check import check_with, sink_options_of
from bucketline.streaming.job.create_declared import created_as, declared_in
from bucketline.streaming.job.job_table import has_table, no_table, open_existing, open_or_create
from bucketline.streaming.tasks.many.split import Origin

_HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class JobTableOpener:
    """Finds, opens and creates the tables of a job of several tables. `zone` is the session's time zone, `registry` has
    the schemas of Avro records, and `has_headers` says whether records come with their headers.
    """

    routed: RoutedJob
    zone: str
    registry: RegistrySchemas | None = None
    has_headers: bool = False
    _configs: dict[Resolved, JobConfig] = field(default_factory=dict)

    @property
    def at_once(self) -> int:
        """Returns how many tables threads may open at the same time; 1 for a catalog, because its client can be used by
        one thread only.
        """
        return 1 if self.routed.common.catalog is not None else self.routed.commit_parallelism

    def resolve(self, origin: Origin) -> Resolved | Left:
        """Returns the table to which the routes of the job send records of an origin (source table and topic).
        Returns a Left with the reason if the routes send these records to no table.
        """
        return self.routed.resolve(origin.name, origin.topic)

    def config(self, to: Resolved) -> JobConfig:
        """Returns the settings of one table: the settings of the job together with the settings of the table's route.
        The settings of a table are merged only once.
        """
        if to not in self._configs:
            self._configs[to] = self.routed.config_of(to)
        return self._configs[to]

    def open(self, config: JobConfig, sample: pa.Table | None, *, may_create: bool) -> TableHandle | None:
        """Returns the table of these settings; None if it is missing and `may_create` is false.

        A missing table is created with the columns of its route, or else with the columns that its first records
        (`sample`) declare. Raises BucketlineError for a table that cannot be used or created.
        """
        is_declared = config.create is not None and config.create.schema is None
        if has_table(config):
            handle = handle_of(open_existing(config))
            if is_declared and may_create and sample is not None and handle.snapshot_store.latest_id() is None:
                # Another program has created the table meanwhile: it has to be what the records declare.
                handle = self._declared(config, sample)
        elif not may_create:
            return None
        elif config.create is None:
            raise no_table(config)
        else:
            handle = self._declared(config, sample) if is_declared else handle_of(open_or_create(config))
        check_with(self._fitting(config, [f.name for f in handle.table_schema.fields]), handle.table_schema)
        return handle

    def _fitting(self, config: JobConfig, columns: Collection[str]) -> JobConfig:
        """Returns the settings of a table. Column types at the top of the job file are left out if they name columns
        that the table lacks. Column types in a route stay, because they are meant for the route's table.
        """
        own = {key.split(".", 3)[-1] for key in self.routed.settings if key.startswith(TABLES) and f".{TYPES}" in key}
        kept = tuple(of for of in config.messages.types if of[0] in columns or of[0] in own)
        return (
            config if kept == config.messages.types else replace(config, messages=replace(config.messages, types=kept))
        )

    def _declared(self, config: JobConfig, sample: pa.Table | None) -> TableHandle:
        declared = None if sample is None else declared_in(config, sample)
        if declared is None or sample is None:
            raise OptionError(
                f"create: auto: the first records for {config.table} declare no columns; write the columns of the "
                "table in create.schema",
                key=CREATE.key,
            )
        return handle_of(created_as(self._fitting(config, declared.columns.names), declared, sample))

    def options(self, config: JobConfig) -> Mapping[str, str]:
        """Returns the options of the table's sink."""
        return sink_options_of(config)

    def step(self, config: JobConfig, table: TableHandle) -> DecodeStep:
        """Returns the step that turns the table's records into rows.

        Raises the errors of `decode_step`, and OptionError for a column that is filled from headers, if records come
        without headers.
        """
        schema = table.table_schema
        step = decode_step(
            config.source.decode, schema, config.bad_records, config.messages, config.registry, config.columns, now_us=0
        )
        assert step is not None, "records of several tables are decoded"
        step = step_for(replace(step, zone=self.zone, registry=self.registry), schema)
        if _HEADERS in replace(step, kept=()).input_columns and not self.has_headers:
            raise OptionError(
                f"{config.table} has a column that is filled from the headers of records: set "
                "source.options.includeHeaders to true",
                key="source.options.includeHeaders",
            )
        return step
