"""Tasks of a join (MERGE), on executors. The keys are divided into groups, called shares. The rows of both sides are
sent to the task of their share; this task joins them and sends the results to the tasks that write.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bucketline.state.store.engine.joined import GIVEN, STORED, Joined, RowsPart, ShareOf, join_shares, share_runs
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import SealedRun, SealPlan
from bucketline.streaming.decode.decoder import Decoder
from bucketline.streaming.tasks.frame_job import received, routed_frame
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import decoded, drain, routed, task_number
from bucketline.streaming.tasks.wire import RUN, Routed


@dataclass(frozen=True, slots=True)
class StoredSideTask:
    """Reads a part of the table's rows for a join: task number i of n reads the i-th of every n `parts`.

    Spark passes the number i to the task as its only input row. The number that Spark itself gives to a task is of no
    use here, because it also counts the tasks that read the caller's rows in the same stage.
    """

    parts: Sequence[RowsPart]
    task_count: int
    share_of: ShareOf
    to_count: int
    budget_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Routed]:
        number = next(int(batch.column(0)[0].as_py()) for batch in batches if batch.num_rows)
        drain(batches)
        own = self.parts[number :: self.task_count]
        tables = (pa.Table.from_batches([batch]) for part in own for batch in part.batches())
        runs = share_runs(STORED, tables, self.share_of, origin=number, budget_bytes=self.budget_bytes)
        yield from _routed(runs, self.to_count)


@dataclass(frozen=True, slots=True)
class GivenSideTask:
    """Reads one part of the caller's rows, and sends each row to the task of its share (group of keys)."""

    decode: Decoder | None
    share_of: ShareOf
    to_count: int
    budget_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Routed]:
        tables = decoded(batches, self.decode)
        runs = share_runs(GIVEN, tables, self.share_of, origin=task_number(), budget_bytes=self.budget_bytes)
        yield from _routed(runs, self.to_count)


@dataclass(frozen=True, slots=True)
class JoinTask:
    """Joins the source rows of a merge with the table's rows, for some shares (groups of keys). The task gets the
    rows of both sides, and sends the rows to write to the tasks of the next stage.
    """

    joined: Joined
    seal: SealPlan
    to: Destination

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Routed]:
        joined = self.joined
        with RunBuffer(budget_bytes=joined.memory_bytes, directory=joined.directory) as buffer:
            for _, run in received(batches):
                buffer.add(run)
            for result in join_shares(joined, buffer, self.seal, origin=task_number()):
                yield routed(result, self.to)


def join_stage(tasks: Any, joined: Joined, seal: SealPlan, to: Destination, parallelism: int) -> tuple[Any, JoinTask]:
    """Returns a DataFrame and the function (`JoinTask`) to run on each of its partitions. The DataFrame has the rows of
    both sides of the merge, and all rows of one share (group of keys) are in the same partition. The `JoinTask` joins
    the rows of its partition, and addresses the results to the write tasks that `to` chooses.

    `tasks(n)` returns an empty DataFrame with n partitions.
    """
    count = min(joined.share_count, parallelism)
    readers = min(parallelism, len(joined.stored))
    given = joined.given
    given_side = GivenSideTask(given.decode, joined.given_share, count, seal.budget_bytes)
    frame = routed_frame(given.frame, given_side, count)
    if readers:
        stored = StoredSideTask(tuple(joined.stored), readers, joined.stored_share, count, seal.budget_bytes)
        frame = frame.union(routed_frame(tasks(readers), stored, count))
    # The tasks after the shuffle do not need the two sources any more.
    rest = replace(joined, stored=(), given=None)
    return frame.repartition(count, "task_key"), JoinTask(rest, seal, to)


def _routed(runs: Iterator[SealedRun], count: int) -> Iterator[Routed]:
    for run in runs:
        yield Routed(run.bucket % count, RUN, run)
