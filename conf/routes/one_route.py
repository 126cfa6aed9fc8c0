"""Turns a job of one table into a job of several tables with one route. Then the job can continue the checkpoint of a
job of several tables.
"""

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CHECKPOINT, SOURCE_DECODE, TABLE, JobConfig, RecordFormat, Setting
from bucketline.conf.routes.route import PATTERN
from bucketline.conf.routes.route_options import TABLES, TOPIC, UNMATCHED, Unmatched
from bucketline.conf.routes.routed_job import RoutedJob, routed_job
from bucketline.conf.sources.message_options import SOURCE_TABLE
from bucketline.conf.sources.source_options import KAFKA

_ORIGIN = "the checkpoint of a job with 'tables'"
_EVERY = f"{PATTERN}.*"


def as_routed(job: JobConfig) -> RoutedJob:
    """Returns the job as a job of several tables with one route, which takes the same records. If the job names its
    source table, records of other source tables are skipped.

    Raises OptionError for a job that does not decode records (`source.decode` is none), because a job with 'tables'
    decodes records to decide to which table they go.
    """
    if job.source.decode is RecordFormat.NONE:
        raise OptionError(
            f"{job.checkpoint} is the checkpoint of a job with 'tables', which decodes records, but "
            f"{SOURCE_DECODE.key} is none: give this job a checkpoint of its own",
            key=CHECKPOINT.key,
        )
    settings = {k: s for k, s in job.settings.items() if k not in (TABLE.key, SOURCE_TABLE.key)}
    settings[f"{TABLES}0.{TABLE.key}"] = job.settings[TABLE.key]
    own = job.settings.get(SOURCE_TABLE.key)
    if own is not None:
        settings[f"{TABLES}0.{SOURCE_TABLE.key}"] = own
        settings[UNMATCHED.key] = Setting(Unmatched.SKIP.value, _ORIGIN)
    else:
        pattern = TOPIC if job.source.format == KAFKA else SOURCE_TABLE
        settings[f"{TABLES}0.{pattern.key}"] = Setting(_EVERY, _ORIGIN)
    return routed_job(settings)
