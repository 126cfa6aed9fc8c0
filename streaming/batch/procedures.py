"""Procedures over Spark: planned and committed on the driver, done in tasks, one a bucket."""

from collections.abc import Mapping, Sequence
from typing import Any

from bucketline.state.bucket.mode import BucketMode, bucket_mode
from bucketline.state.determinism import SYSTEM_IDS
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.table.local_compact import commit_compaction, plan_compaction, plan_postpone_table
from bucketline.state.store.table.rescale import commit_rescale, plan_rescale
from bucketline.streaming.batch.classic import require_classic
from bucketline.streaming.batch.failure import explained_in_one_line
from bucketline.streaming.tasks.compact_task import compact_over_spark
from bucketline.streaming.tasks.rebucket_task import rebucket_over_spark, rescale_over_spark


def compact(
    spark: Any,
    path: str,
    strategy: str = "full",
    partitions: Sequence[Mapping[str, object]] | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> int | None:
    """Compacts a table in Spark tasks; the new snapshot's id, None when there was nothing to do.

    `strategy` is "full" or "minor"; `partitions` are mappings from partition column to value; `options` override the
    table's for this run; `storage_options` say how its storage is reached. Postponed rows are moved to their buckets
    on the way; a partition without a bucket count gets `postpone.default-bucket-num`, or as many as Spark has cores.
    Raises as `Table.compact` does; SparkFailedError for what Spark fails of.
    """
    require_classic(spark)
    with explained_in_one_line():
        return repeat_if_gone(lambda: _compact_once(spark, path, strategy, partitions, options, storage_options))


def _compact_once(
    spark: Any,
    path: str,
    strategy: str,
    partitions: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, str] | None,
    storage_options: Mapping[str, str] | None,
) -> int | None:
    handle, user = open_handle(path, storage_options), SYSTEM_IDS.new_uuid()
    if bucket_mode(handle.table_schema) is BucketMode.POSTPONE:
        parallelism = spark.sparkContext.defaultParallelism
        session, work = plan_postpone_table(handle, strategy, partitions, options or {}, new_buckets=parallelism)
        sink = session.plan.sink
        messages = rebucket_over_spark(
            spark, work, buffer_bytes=sink.merge_memory_bytes, directory=sink.local_directory
        )
        return commit_compaction(session, messages, user=user)
    session, write, found = plan_compaction(handle, strategy, partitions, options=options)
    return commit_compaction(session, compact_over_spark(spark, write, found), user=user)


def rescale(
    spark: Any,
    path: str,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> int | None:
    """Gives partitions another number of buckets, in Spark tasks. Arguments and errors as of `compact` and
    `Table.rescale`."""
    require_classic(spark)
    with explained_in_one_line():
        return repeat_if_gone(lambda: _rescale_once(spark, path, bucket_num, partitions, options, storage_options))


def _rescale_once(
    spark: Any,
    path: str,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, str] | None,
    storage_options: Mapping[str, str] | None,
) -> int | None:
    handle = open_handle(path, storage_options)
    session, work = plan_rescale(handle, bucket_num, partitions, options=options)
    sink = session.plan.sink
    messages = rescale_over_spark(spark, work, buffer_bytes=sink.merge_memory_bytes, directory=sink.local_directory)
    return commit_rescale(handle, session, work, messages, bucket_num, partitions is None, user=SYSTEM_IDS.new_uuid())
