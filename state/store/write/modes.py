"""Makes the plan for writing a table, from the table's schema and a job's options. No other module chooses code by
bucket mode.

Options that cannot be honoured are refused here, before a row is read.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

from bucketline.conf.plan_options import refuse_unused_plans
from bucketline.conf.sink_options import refuse_unknown_options, sink_options, split_options
from bucketline.conf.storage_options import refuse_storage_keys
from bucketline.conf.table.fixed_options import check_job_options
from bucketline.conf.table.table_options import check_write_options
from bucketline.state.bucket.defaults import check_defaults
from bucketline.state.bucket.mode import BucketMode, bucket_mode, total_buckets
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_age import check_row_time
from bucketline.state.store.datafile.file_settings import check_files
from bucketline.state.store.write.write_plan import Mode, WritePlan

_OBJECTS = {
    BucketMode.FIXED: "fixed:Fixed",
    BucketMode.DYNAMIC: "dynamic:Dynamic",
    BucketMode.CROSS_PARTITION: "cross.cross_partition:CrossPartition",
    BucketMode.POSTPONE: "postponed.postpone:Postpone",
    BucketMode.UNAWARE: "unaware:Unaware",
}
"""The module and the class of each bucket mode. A mode is imported only when a table has it, because only one of them
needs RocksDB.
"""


def mode_of(schema: TableSchema) -> Mode:
    """Returns the object with the rules of writing in the table's bucket mode. Raises OptionError as `bucket_mode`
    does.
    """
    module, _, name = _OBJECTS[bucket_mode(schema)].partition(":")
    mode = getattr(import_module(f"bucketline.state.store.write.{module}"), name)()
    assert isinstance(mode, Mode)
    return mode


def plan_write(
    uri: str,
    schema: TableSchema,
    job_options: Mapping[str, str],
    *,
    is_stream: bool = False,
    world: World = SYSTEM_WORLD,
) -> WritePlan:
    """Returns the plan for writing a table with a job's options. `is_stream` is True if the job writes more batches
    after the first. Nothing is written.

    Raises OptionError for options that are unknown, do not fit or are not honoured. Raises UnsupportedTableError for a
    table that this release cannot write.
    """
    refuse_storage_keys(job_options, "the job's options")
    refuse_unknown_options(job_options)
    ours, paimons = split_options(job_options)
    check_job_options(paimons, schema.options)
    effective = replace(schema, options={**schema.options, **paimons}) if paimons else schema
    check_write_options(effective.options, effective.primary_keys, effective.partition_keys)
    check_files(effective)
    check_row_time(effective)
    mode = mode_of(effective)
    check_defaults(schema)
    sink = sink_options({**effective.options, **ours})
    if is_stream:
        refuse_unused_plans(ours, sink.compaction)
    if not effective.settings.compaction.waits_for_lookup:
        sink = replace(sink, visibility_timeout_ms=0)
    return WritePlan(uri, effective, sink, mode, total_buckets(effective), is_stream, world)
