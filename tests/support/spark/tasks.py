"""Spark's part of a job in this process: tasks, the shuffle between them, attempts that fail, and death at any step.

A `Cluster` stands where the sink expects a Spark session and makes frames that stand where it expects a DataFrame. What
a task is given has been pickled; attempts may be cut short and made again, or made twice; what a shuffle delivers comes
in any order. A run is what its seed says.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from threading import Lock
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from bucketline.state.store.storage.local_io import LocalIO
from bucketline.streaming.tasks.placement import spark_hash
from tests.support.spark.task_jvm import FakeJvm

Batches = Iterator[pa.RecordBatch]

_one_at_a_time = Lock()
"""The task that runs is known to the whole process."""

_STEPS = (
    "read", "read_optional", "write_new", "publish", "overwrite", "delete", "open_input", "open_output",
)  # fmt: skip


class KilledError(BaseException):
    """The process is dead; no handler of it runs any more, whatever the code says."""


@dataclass
class FakeBroadcast:
    """What is broadcast: each task can have it until it is destroyed."""

    value: bytes
    is_destroyed: bool = False

    @property
    def _jbroadcast(self) -> "FakeBroadcast":
        return self

    def destroy(self) -> None:
        assert not self.is_destroyed
        self.is_destroyed = True


@dataclass
class Cluster:
    """A Spark session, as far as the sink sees one. `unrest` is how likely an attempt of a task is made again.

    `actions` counts the actions of all frames; `after_action` is called after each.
    Of what tasks of a job of bytes say, so many items are handed over as `serves_at_most` says.
    """

    draw: random.Random
    defaultParallelism: int = 2
    unrest: float = 0.0
    tasks_run: int = 0
    actions: int = 0
    after_action: Callable[[], object] = lambda: None
    settings: dict[str, str] = field(default_factory=dict)
    serves_at_most: int | None = None
    broadcasts: "list[FakeBroadcast]" = field(default_factory=list)

    applicationId = "local-1"

    @property
    def _jsparkSession(self) -> int:
        return id(self)

    @property
    def sparkContext(self) -> "Cluster":
        return self

    def newSession(self) -> "Cluster":
        return self

    @property
    def conf(self) -> "Cluster":
        return self

    def get(self, key: str, default: Any = None) -> Any:
        return self.settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.settings[key] = value

    @property
    def _jvm(self) -> FakeJvm:
        return FakeJvm(self.draw, self._of_bytes, self._action, self.serves_at_most)

    @property
    def _jsc(self) -> FakeJvm:
        return self._jvm

    environment = property(lambda self: {})
    pythonExec, pythonVer, _javaAccumulator, _python_includes = "python", "3", None, ()

    @property
    def _pickled_broadcast_vars(self) -> Any:
        return {}

    def broadcast(self, value: bytes) -> "FakeBroadcast":
        self.broadcasts.append(FakeBroadcast(value))
        return self.broadcasts[-1]

    def _of_bytes(self, command: bytes, number: int, items: list[bytes]) -> list[bytes]:
        """What a task of a job of RDDs puts out."""

        def run(at_most: int | None) -> list[bytes]:
            told = cloudpickle.loads(command)
            function, _, taken, _ = cloudpickle.loads(told.value) if isinstance(told, FakeBroadcast) else told
            sent, ended = BytesIO(), []
            taken.dump_stream(items, sent)
            sent.seek(0)

            def arriving() -> Iterator[bytes]:
                yield from taken.load_stream(sent)
                ended.append(True)

            with _one_at_a_time, _task(number):
                output = function(number, arriving())
                found = list(islice(output, at_most))
                output.close()
            assert ended or at_most is not None, "a worker whose input is not read to its end is not used again"
            return found

        return self._attempts(run)

    def _action(self) -> None:
        self.actions += 1
        self.after_action()

    def _attempts(self, run: Callable[[int | None], list[Any]]) -> list[Any]:
        """What the attempt that counts has put out; others may have run before or after it."""
        self.tasks_run += 1
        if self.draw.random() < self.unrest:
            run(self.draw.choice((0, 1, 2, None)))
        found = run(None)
        if self.draw.random() < self.unrest / 2:
            run(self.draw.choice((1, None)))
        return found

    def range(self, start: int, end: int, step: int, tasks: int) -> "Frame":
        assert (start, end, step) == (0, tasks, 1), "one row a task"
        return Frame(self, [[pa.record_batch({"id": pa.array([t], pa.int64())})] for t in range(tasks)], ["id"])

    def createDataFrame(self, rows: Sequence[tuple[bytes]], ddl: str) -> "Frame":
        """Rows of one binary column, dealt out to two tasks."""
        name = ddl.split()[0]
        parts = [[pa.record_batch({name: pa.array([bytes(r[0])], pa.binary())}) for r in rows[t::2]] for t in range(2)]
        return Frame(self, parts, [name])

    def frame(self, rows: pa.Table, tasks: int, batch_rows: int = 1000) -> "Frame":
        """The rows in order, given to so many map tasks by one column, so that each key comes from one of them."""
        codes = np.array([hash(v) for v in rows.column(0).to_pylist()], np.int64) % tasks
        parts = [rows.filter(pa.array(codes == t)).to_batches(max_chunksize=batch_rows) for t in range(tasks)]
        return Frame(self, parts, rows.column_names)


@dataclass
class Frame:
    """Record batches by partition."""

    sparkSession: Cluster
    parts: list[list[pa.RecordBatch]]
    columns: list[str]

    def mapInArrow(self, task: Callable[[Batches], Batches], ddl: str) -> "Frame":
        packed = cloudpickle.dumps(task)
        found = [self._attempts(packed, number, part) for number, part in enumerate(self.parts)]
        return Frame(self.sparkSession, found, [c.split()[0] for c in ddl.split(", ")])

    def drop(self, *names: str) -> "Frame":
        """The rows without these columns."""
        parts = [[batch.drop_columns(list(names)) for batch in part] for part in self.parts]
        return Frame(self.sparkSession, parts, [c for c in self.columns if c not in names])

    def union(self, other: "Frame") -> "Frame":
        """Both, one after the other. Spark numbers the tasks of such a frame through, those of `other` higher."""
        return Frame(self.sparkSession, [*self.parts, *other.parts], self.columns)

    def repartition(self, count: int, column: str) -> "Frame":
        """Rows by Spark's hash of an int column; they arrive in any order, as record batches of any size."""
        draw = self.sparkSession.draw
        rows = [batch.slice(i, 1) for part in self.parts for batch in part for i in range(batch.num_rows)]
        draw.shuffle(rows)
        parts: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
        for row in rows:
            key = np.asarray(row.column(column)).astype(np.int32)
            parts[int(spark_hash(key)[0]) % count].append(row)
        size = draw.choice((1, 3, 1000))
        grouped = [[pa.concat_batches(p[i : i + size]) for i in range(0, len(p), size)] for p in parts]
        return Frame(self.sparkSession, grouped, self.columns)

    def collect(self) -> list[dict[str, Any]]:
        found = self._rows()
        self.sparkSession._action()
        return found

    def _rows(self) -> list[dict[str, Any]]:
        return [row for part in self.parts for batch in part for row in batch.to_pylist()]

    def _attempts(self, packed: bytes, number: int, part: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        def run(at_most: int | None) -> list[pa.RecordBatch]:
            with _one_at_a_time, _task(number):
                output = cloudpickle.loads(packed)(iter(part))
                found = list(islice(output, at_most))
                output.close()
            return found

        return self.sparkSession._attempts(run)


@contextmanager
def _task(number: int) -> Iterator[None]:
    """Makes `TaskContext.get()` tell of this task."""
    context = object.__new__(TaskContext)
    context._partitionId = number
    before = TaskContext.get()
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._setTaskContext(before)


@dataclass
class Death:
    """Counts calls to storage and ends the process at one: before it, right after it, or half way through a write."""

    at: int | None
    way: str = "before"
    calls: int = 0

    @property
    def is_dead(self) -> bool:
        return self.at is not None and self.calls >= self.at


@contextmanager
def killed_at(at: int | None, way: str = "before") -> Iterator[Death]:
    """Inside, the process dies at call number `at` to local storage (None: never); afterwards nothing works any more.

    `way` is "before", "after" or "torn". The block is left in any case; `Death.is_dead` says whether it came so far.
    """
    death = Death(at, way)
    with _patched(death), suppress(KilledError):
        yield death


@contextmanager
def _patched(death: Death) -> Iterator[None]:
    originals = {name: getattr(LocalIO, name) for name in _STEPS}

    def dying(name: str) -> Callable[..., Any]:
        original = originals[name]

        def call(self: LocalIO, path: str, *args: Any) -> Any:
            was_dead = death.is_dead
            death.calls += 1
            if not death.is_dead:
                return original(self, path, *args)
            if not was_dead and death.way == "after":
                original(self, path, *args)
            elif not was_dead and death.way == "torn" and name == "write_new":
                original(self, path, args[0][: len(args[0]) // 2])
            raise KilledError(f"{name} {path}")

        return call

    steps: dict[str, Any] = {name: dying(name) for name in _STEPS}
    with patch.multiple(LocalIO, **steps):
        yield
