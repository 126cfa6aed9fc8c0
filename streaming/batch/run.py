"""The one Spark action of a batch: route, shuffle the sealed runs, write; what comes back is a few rows a task."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from bucketline.streaming.batch.plan import BatchPlan
from bucketline.streaming.tasks.outcome import BatchOutcome, bound_arrow, read_outcome
from bucketline.streaming.tasks.wire import (
    RESULT_DDL,
    ROUTED_DDL,
)
from bucketline.streaming.tasks.worker import in_worker

ADAPTIVE = "spark.sql.adaptive.enabled"
"""Spark 4.1 and later leave it on in streams without state. A batch knows its tasks before they start, so that planning
anew between them brings a second job and nothing else."""


def run_batch(batch: Any, plan: BatchPlan) -> BatchOutcome:
    """Runs a batch's DataFrame through its tasks. Errors of tasks arrive as Spark's; nothing is committed then."""
    spark = batch.sparkSession
    bound_arrow(spark)
    with planned_once(spark):
        return _run(batch, plan)


def _run(batch: Any, plan: BatchPlan) -> BatchOutcome:
    if plan.in_place:
        route, write = plan.route, plan.write

        def route_and_write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return write.run(route(batches), shard=None)

        return read_outcome(batch.mapInArrow(in_worker(route_and_write), RESULT_DDL).collect())
    routed = batch.mapInArrow(in_worker(plan.route), ROUTED_DDL)
    if plan.place is not None:
        shares = routed.repartition(plan.route.shard_count, "shard_key")
        routed = shares.mapInArrow(in_worker(plan.place), ROUTED_DDL)
    placed = routed.repartition(plan.shard_count, "shard_key")
    return read_outcome(placed.mapInArrow(in_worker(plan.write), RESULT_DDL).collect())


@contextmanager
def planned_once(spark: Any) -> Iterator[None]:
    """Actions inside keep the plan that they start with; what the session said before holds again afterwards."""
    before = spark.conf.get(ADAPTIVE)
    spark.conf.set(ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(ADAPTIVE, before)
