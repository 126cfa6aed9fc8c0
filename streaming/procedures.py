"""Procedures over Spark: planned and committed on the driver, done in tasks, one a bucket."""

from collections.abc import Mapping, Sequence
from typing import Any

from bucketline.state.determinism import SYSTEM_IDS
from bucketline.state.store.local_compact import commit_compaction, plan_compaction
from bucketline.state.store.table_handle import open_handle
from bucketline.streaming.compact_task import compact_over_spark


def compact(
    spark: Any,
    path: str,
    strategy: str = "full",
    partitions: Sequence[Mapping[str, object]] | None = None,
    options: Mapping[str, str] | None = None,
) -> int | None:
    """Compacts a table in Spark tasks; the new snapshot's id, None when there was nothing to do.

    `strategy` is "full" or "minor"; `partitions` are mappings from partition column to value; `options` override the
    table's for this run. Raises as `Table.compact` does, and Spark's own errors from tasks.
    """
    session, write, work = plan_compaction(open_handle(path), strategy, partitions, options=options)
    return commit_compaction(session, compact_over_spark(spark, write, work), user=SYSTEM_IDS.new_uuid())
