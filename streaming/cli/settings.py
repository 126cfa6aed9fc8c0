"""The output of `ingest --print-config`: each setting of the job once, with its origin.

Only the job file is read, so the output is the same if the table, the storage or Kafka cannot be reached.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa

from bucketline.conf.job import (
    OPTIONS,
    SOURCE_DECODE,
    SOURCE_OPTIONS,
    SOURCE_READER,
    JobConfig,
    Setting,
)
from bucketline.conf.job import TABLE as TABLE_KEY
from bucketline.conf.resolve import DEFAULT, TABLE, effective_options, show_settings
from bucketline.conf.routes.route_options import EXCLUDE, MANY_OPTIONS, TABLES
from bucketline.conf.routes.routed_job import Resolved, RoutedJob
from bucketline.conf.sink_options import BAD_RECORDS_MAX, BAD_RECORDS_PATH, BAD_RECORDS_TABLE, KEY_ORDER
from bucketline.conf.sources.reader_choice import who_reads
from bucketline.conf.sources.source_options import KAFKA, find_option, source_options
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.streaming.job.check import check_settings, check_without_table

_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), ("origin", pa.string())])
_IN_A_JOB = (BAD_RECORDS_PATH.key, BAD_RECORDS_TABLE.key, BAD_RECORDS_MAX.key, KEY_ORDER.key)
"""Keys of a job file outside of `options` that set an option of the sink."""


def settings_table(config: JobConfig | RoutedJob) -> pa.Table:
    """Returns a row for each setting of the job; settings that have their default value come last. Raises the errors of
    `check_settings`.
    """
    return _table(_settings(config) if isinstance(config, JobConfig) else _settings_of_routes(config))


def _settings_of_routes(job: RoutedJob) -> Mapping[str, Setting]:
    """Returns the settings of a job of several tables. If a setting belongs to a route, its key contains the number of
    the route.
    """
    for route in job.routes:
        check_without_table(job.config_of(Resolved(route.number, route.target)))
    given = {o.key: Setting(o.shown(), DEFAULT) for o in MANY_OPTIONS if o is not EXCLUDE} | dict(job.settings)
    of_one = _settings(job.common, check_without_table)
    of_one.pop(TABLE_KEY.key)
    return of_one | {_numbered(key): setting for key, setting in given.items()}


def _numbered(key: str) -> str:
    """Returns the key of a setting with the index of a list in brackets: `tables[0].source-table` instead of
    `tables.0.source-table`.
    """
    for name in (TABLES, f"{EXCLUDE.key}."):
        if key.startswith(name):
            number, dot, rest = key.removeprefix(name).partition(".")
            return f"{name.rstrip('.')}[{number}]{dot}{rest}"
    return key


def _table(settings: Mapping[str, Setting]) -> pa.Table:
    shown = sorted(show_settings(settings), key=lambda row: row[2].startswith(DEFAULT))
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in shown], schema=_SCHEMA)


def _settings(
    config: JobConfig, check: Callable[[JobConfig], TableSchema | None] = check_settings
) -> dict[str, Setting]:
    schema = check(config)
    options = effective_options(config.settings, None if schema is None else schema.options)
    # Options of a new table are shown in the section `create`, or in that of the catalog.
    options = {key: setting for key, setting in options.items() if setting.origin != TABLE}
    job = {key: setting for key, setting in config.settings.items() if not key.startswith(OPTIONS)}
    sink = {OPTIONS + key: setting for key, setting in options.items() if key not in _IN_A_JOB}
    settings = {**_defaults(config), **job, **sink}
    who = who_reads(config.source, source_options(config.source).options)
    if who:
        reader = settings[SOURCE_READER.key]
        settings[SOURCE_READER.key] = Setting(reader.text, f"{reader.origin}; {who}")
    return settings


def _defaults(config: JobConfig) -> Mapping[str, Setting]:
    """Returns the defaults of the settings that the job does not set."""
    defaults = {o.key: Setting(o.shown(), DEFAULT) for o in (SOURCE_DECODE, SOURCE_READER, BAD_RECORDS_MAX)}
    if config.source.format == KAFKA and config.source.decode.key_order is not None:
        defaults[KEY_ORDER.key] = Setting(config.source.decode.key_order.value, DEFAULT)
    for key, text in source_options(config.source).options.items():
        if find_option(config.source.options, key) is None:
            defaults[SOURCE_OPTIONS + key] = Setting(text, DEFAULT)
    return defaults
