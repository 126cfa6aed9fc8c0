"""A Spark query whose first tasks get the rows of a DataFrame. Tasks send their messages to the tasks of the next
stage as rows with binary columns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketline.streaming.tasks.session_settings import held_setting
from bucketline.streaming.tasks.wire import (
    RESULT_DDL,
    ROUTED_DDL,
    Next,
    Routed,
    Sent,
    TaskResult,
    read_routed,
    result_row,
    routed_row,
)
from bucketline.streaming.worker import in_worker

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
"""The limit for the bytes that a write task receives at once. Without it ten thousand sealed runs would come in one
record batch.
"""

ARROW_BYTES_LIMIT = 64 << 20

ADAPTIVE = "spark.sql.adaptive.enabled"
"""The setting for adaptive execution, which is turned off. Spark 4.1 and later leave it on in streams without state.
The tasks are known before they start, so planning again between stages would only add a second job; and a task must get
exactly the buckets that belong to its number.
"""

Batches = Iterator[pa.RecordBatch]
FirstOfRows = Callable[[Batches], Iterator[Any]]
"""A task of the first stage. It yields Routed messages, or TaskResult if the query has only this stage."""


def frame_job(spark: Any, frame: Any, first: FirstOfRows, after: Sequence[tuple[int, Next]] = ()) -> list[TaskResult]:
    """Runs `first` in a Spark task for each partition of the DataFrame, then the further stages in `after`, one after
    the other. Each item of `after` has the number of tasks of a stage, and the function that these tasks run. The tasks
    get the messages that the stage before has sent; a message has the number of the task that receives it.

    Returns the results of the last stage, in the order of the tasks.
    """
    _bound_arrow(spark)
    # Adaptive execution is off for the actions inside of this block.
    with held_setting(spark, ADAPTIVE, "false"):
        task: FirstOfRows = first
        for count, next_task in after:
            frame = sent(frame, task, count)
            task = _Received(next_task)
        rows = _mapped(frame, _Results(task), RESULT_DDL).collect()
    return [TaskResult(row["kind"], bytes(row["payload"])) for row in rows]


def routed_frame(frame: Any, task: FirstOfRows, count: int) -> Any:
    """Takes a DataFrame of rows, and runs `task` on them. Returns a DataFrame of the messages that `task` sends to the
    tasks of the next stage. Each message has a key, which decides to which of the `count` tasks it goes.
    """
    return _mapped(frame, _Rows(task, count), ROUTED_DDL)


def sent(frame: Any, task: FirstOfRows, count: int) -> Any:
    """Returns a DataFrame with the messages of `task` (see `routed_frame`), sent by a shuffle to the `count` tasks of
    the next stage. A message has the number of the task that receives it.
    """
    return routed_frame(frame, task, count).repartition(count, "task_key")


def received(batches: Batches) -> Iterator[Sent]:
    """Unpacks the messages that the tasks of the stage before have sent to this task. Yields each message as a pair:
    its kind, and the sealed run (sorted, packed rows) or the note that it holds.
    """
    for batch in batches:
        yield from read_routed(batch)


def _mapped(frame: Any, task: Callable[[Batches], Batches], ddl: str) -> Any:
    """Runs `task` on the record batches of a DataFrame. Returns the rows that `task` yields, as a DataFrame with the
    columns `ddl`.

    PySpark's `mapInArrow` does not find a column whose name has a dot, because it looks for a field of a struct. So if
    a name has a dot or a backtick, all columns are sent under other names, and get their own names back in the task.
    """
    names = frame.columns
    if any("." in name or "`" in name for name in names):
        frame, task = frame.toDF(*(f"c{i}" for i in range(len(names)))), _Renamed(task, tuple(names))
    return frame.mapInArrow(in_worker(task), ddl)


@dataclass(frozen=True, slots=True)
class _Renamed:
    """Gives the columns of record batches the names `names`, and runs `task` on these record batches."""

    task: Callable[[Batches], Batches]
    names: Sequence[str]

    def __call__(self, batches: Batches) -> Batches:
        return self.task(batch.rename_columns(list(self.names)) for batch in batches)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Turns the messages that a task sends to tasks of the next stage into rows of a DataFrame, for Spark's shuffle."""

    task: FirstOfRows
    to_count: int

    def __call__(self, batches: Batches) -> Batches:
        routed: Routed
        for routed in self.task(batches):
            yield routed_row(routed, self.to_count)


@dataclass(frozen=True, slots=True)
class _Received:
    """A task of a later stage, which gets rows."""

    task: Next

    def __call__(self, batches: Batches) -> Iterator[Any]:
        return self.task(received(batches))


@dataclass(frozen=True, slots=True)
class _Results:
    """A task of the last stage: runs `task`, and yields each of its results as a row of a record batch for Spark."""

    task: FirstOfRows

    def __call__(self, batches: Batches) -> Batches:
        for result in self.task(batches):
            yield result_row(result)


def _bound_arrow(spark: Any) -> None:
    """Limits the bytes that a task of this session receives at once, unless a lower limit is set already."""
    current = spark.conf.get(ARROW_BYTES, None)
    if current is None or not current.isdigit() or int(current) > ARROW_BYTES_LIMIT:
        spark.conf.set(ARROW_BYTES, str(ARROW_BYTES_LIMIT))
