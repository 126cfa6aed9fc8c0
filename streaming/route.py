"""The one Spark action of a batch: route, shuffle the sealed runs, write; what comes back is a few rows a task."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.state.commit.message import CommitMessage, decode_messages
from bucketline.streaming.batch import BatchPlan
from bucketline.streaming.unseen import NO_NEED, UNSEEN, read_needs
from bucketline.streaming.wire import MESSAGES, NOTE, REJECTS, RESULT_DDL, ROUTED_DDL, STATS, TaskStats, read_stats
from bucketline.streaming.worker import in_worker

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""Bounds what a write task receives at once; without it ten thousand runs would come in one record batch."""

ARROW_BYTES_LIMIT = 64 << 20

ADAPTIVE = "spark.sql.adaptive.enabled"
"""Spark 4.1 and later leave it on in streams without state. A batch knows its tasks before they start, so that planning
anew between them brings a second job and nothing else."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What the tasks of a batch have written and told; `notes` are tokens of key-index notes.

    `need` is what the records need and the table does not have: not null, the batch is not to be committed.
    """

    messages: tuple[CommitMessage, ...]
    rejects: tuple[bytes, ...]
    stats: tuple[TaskStats, ...]
    notes: tuple[str, ...] = ()
    need: pa.DataType = NO_NEED

    @property
    def accepted_rows(self) -> int:
        return sum(s.accepted_rows for s in self.stats)


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


def read_outcome(rows: list[Any]) -> BatchOutcome:
    """The outcome in the result rows of tasks."""
    by_kind: dict[str, list[bytes]] = {MESSAGES: [], REJECTS: [], NOTE: [], STATS: [], UNSEEN: []}
    for row in rows:
        by_kind[row["kind"]].append(bytes(row["payload"]))
    return BatchOutcome(
        messages=tuple(m for payload in by_kind[MESSAGES] for m in decode_messages(payload)),
        rejects=tuple(by_kind[REJECTS]),
        stats=tuple(read_stats(payload) for payload in by_kind[STATS]),
        notes=tuple(payload.decode() for payload in by_kind[NOTE]),
        need=read_needs(by_kind[UNSEEN]),
    )


@contextmanager
def planned_once(spark: Any) -> Iterator[None]:
    """Actions inside keep the plan that they start with; what the session said before holds again afterwards."""
    before = spark.conf.get(ADAPTIVE)
    spark.conf.set(ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(ADAPTIVE, before)


def bound_arrow(spark: Any) -> None:
    """Sets how many bytes of runs a write task of this session receives at once, where nobody has set it lower."""
    current = spark.conf.get(ARROW_BYTES, None)
    if current is None or not current.isdigit() or int(current) > ARROW_BYTES_LIMIT:
        spark.conf.set(ARROW_BYTES, str(ARROW_BYTES_LIMIT))
