"""What `ingest --print-config` prints: each setting in force once, with where it comes from."""

from collections.abc import Mapping

import pyarrow as pa

from bucketline.conf.job import (
    CREATE_OPTIONS,
    OPTIONS,
    SOURCE_DECODE,
    SOURCE_OPTIONS,
    SOURCE_READER,
    JobConfig,
    Setting,
)
from bucketline.conf.reader_choice import who_reads
from bucketline.conf.resolve import DEFAULT, effective_options, show_settings
from bucketline.conf.sink_options import BAD_RECORDS_MAX, BAD_RECORDS_PATH
from bucketline.conf.source_options import find_option, source_options
from bucketline.streaming.job.check import check_job
from bucketline.streaming.job.job_table import has_table

_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), ("origin", pa.string())])
_CREATE = "create."
_IN_A_JOB = (BAD_RECORDS_PATH.key, BAD_RECORDS_MAX.key)
"""Options of the sink that a job file sets in a section of its own."""


def settings_table(config: JobConfig) -> pa.Table:
    """Every setting in force, and those of `create` that are not; defaults come last. Raises as `check_job`."""
    schema = check_job(config)
    table_exists = has_table(config)
    options = effective_options(config.settings, schema.options)
    if not table_exists:
        # They are shown as what they are: options of the section `create`.
        options = {k: s for k, s in options.items() if CREATE_OPTIONS + k not in config.settings or s.origin != "table"}
    job = {
        key: _shown(key, setting, table_exists)
        for key, setting in config.settings.items()
        if not key.startswith(OPTIONS)
    }
    sink = {OPTIONS + key: setting for key, setting in options.items() if key not in _IN_A_JOB}
    settings = {**_defaults(config), **job, **sink}
    who = who_reads(config.source, source_options(config.source).options)
    if who:
        reader = settings[SOURCE_READER.key]
        settings[SOURCE_READER.key] = Setting(reader.text, f"{reader.origin}; {who}")
    shown = sorted(show_settings(settings), key=lambda row: row[2].startswith(DEFAULT))
    return pa.Table.from_pylist([dict(zip(_SCHEMA.names, row, strict=True)) for row in shown], schema=_SCHEMA)


def _shown(key: str, setting: Setting, table_exists: bool) -> Setting:
    if not table_exists or not key.startswith(_CREATE):
        return setting
    return Setting(setting.text, f"{setting.origin}; without effect: there is a table")


def _defaults(config: JobConfig) -> Mapping[str, Setting]:
    """The defaults that the job fills in."""
    defaults = {o.key: Setting(o.shown(), DEFAULT) for o in (SOURCE_DECODE, SOURCE_READER, BAD_RECORDS_MAX)}
    for key, text in source_options(config.source).options.items():
        if find_option(config.source.options, key) is None:
            defaults[SOURCE_OPTIONS + key] = Setting(text, DEFAULT)
    return defaults
