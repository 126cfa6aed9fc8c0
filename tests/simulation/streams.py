"""A stream of micro-batches, as Spark's foreachBatch calls the sink: each is written again until the checkpoint knows
that it is done. The sink is the product's; Spark's tasks run in this process (`tests/support/spark/tasks.py`).
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from pyspark import TaskContext

from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.batch.write_batch import Job, write_batch
from bucketline.streaming.decode.decoder import DecodedRows
from tests.simulation.scheduler import Process, current
from tests.support.spark import tasks
from tests.support.spark.tasks import Cluster

_contexts: dict[Process | None, Any] = {}


def as_is(records: Any) -> DecodedRows:
    """Records that are rows already."""
    return DecodedRows(records)


@dataclass
class Stream:
    """One run of a query's driver, which dies with its process. `target` is the table after the last batch."""

    path: str
    user: str
    run: str
    options: dict[str, str]
    target: Target | None = None

    def write(self, rows: Any, batch_id: int, cluster: Cluster) -> None:
        """Writes a batch, exactly once."""
        identity = BatchIdentity(
            self.user, batch_id, f"[{batch_id - 1}]", f"[{batch_id}]", f"digest {batch_id}", self.run,
            checkpoint=f"{self.path.rpartition('/')[0]}/checkpoint-{self.user}",
        )  # fmt: skip
        target = self.target
        self.target = None  # after an error nothing that is held is trusted
        if target is None:
            at = table_at(open_handle(self.path), self.options, is_stream=True)
            target = Target(at, self.user)
        frame = cluster.frame(rows, cluster.defaultParallelism)
        self.target, _ = write_batch(target, identity, frame, Job(as_is))


class _NoLock:
    def __enter__(self) -> None:
        return

    def __exit__(self, *error: object) -> None:
        return


@contextmanager
def tasks_of_processes() -> Iterator[None]:
    """While the block runs, tasks of several processes may run at the same time, each with a context of its own."""

    def get(kind: Any) -> Any:
        return _contexts.get(current())

    def put(kind: Any, context: Any) -> None:
        _contexts[current()] = context

    with (
        patch.object(tasks, "_one_at_a_time", _NoLock()),
        patch.object(TaskContext, "get", classmethod(get)),
        patch.object(TaskContext, "_setTaskContext", classmethod(put)),
    ):
        try:
            yield
        finally:
            _contexts.clear()


def cluster_of(draw: random.Random, *, twice: bool) -> Cluster:
    """A Spark session of one or two tasks."""
    return Cluster(draw, draw.choice((1, 1, 2)), unrest=1.0 if twice else 0.0)
