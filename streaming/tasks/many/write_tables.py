"""The last stage of a job that writes many tables, on an executor: makes files and commit messages of each table from
the sealed runs (sorted, packed rows) of the table.

A task writes buckets of any table. Sealed runs come in any order, so the task collects all of them first, in memory up
to a budget and then on disk. Then the task writes one table after the other, as a job of that table alone would do. If
storage is slow, several tables are written at the same time and share the memory.
"""

import pickle
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.message import decode_messages
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.storage.parallel import AT_ONCE, answers_late
from bucketline.state.store.write.owned.owner_runs import OwnerRun
from bucketline.state.store.write.run_buffer import SpillFile
from bucketline.streaming.tasks.many.packing import unpacked
from bucketline.streaming.tasks.many.table_notes import of_table
from bucketline.streaming.tasks.read_task import task_number
from bucketline.streaming.tasks.wire import ERROR, MESSAGES, RUNS, Sent, TaskResult
from bucketline.streaming.tasks.write_task import WriteTask

_LEAST_MERGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class WriteTables:
    """Writes the tables in `tables` for which sealed runs (sorted, packed rows) are sent to the task. Sealed runs of
    other tables are left out.

    `idle` says for each table which tasks have buckets that are due for a compaction without new rows. These tasks
    compact the buckets even if no rows come.
    """

    tables: Mapping[int, bytes]
    idle: Mapping[int, frozenset[int]] = field(default_factory=dict)
    budget_bytes: int = 256 << 20
    directory: str | None = None

    def __call__(self, sent: Iterator[Sent]) -> Iterator[TaskResult]:
        """Yields the results of the tables; the number of the table comes before each result. If a table fails, its
        result is the error, and the other tables are written.
        """
        with _Runs(self.budget_bytes, self.directory) as runs:
            for kind, run in sent:
                assert kind == RUNS and isinstance(run, OwnerRun), "notes go to another task"
                if run.table in self.tables:
                    runs.add(run)
            me = task_number()
            numbers = sorted(runs.tables() | {n for n, tasks in self.idle.items() if me in tasks})
            yield from self._written(numbers, runs)

    def _written(self, numbers: list[int], runs: "_Runs") -> Iterator[TaskResult]:
        tasks = {number: unpacked(self.tables[number], WriteTask) for number in numbers}
        is_far = any(answers_late(task.stage.write.access.files.io) for task in tasks.values())
        threads = min(AT_ONCE, len(numbers)) if is_far else 1

        def results(number: int) -> list[TaskResult]:
            return [*_results(_sharing(tasks[number], threads), runs.take(number))]

        done: list[tuple[int, list[TaskResult]]] = []
        try:
            if threads < 2:
                for number in numbers:
                    done.append((number, results(number)))
            else:
                with ThreadPoolExecutor(threads, thread_name_prefix="bucketline-table") as pool:
                    futures = [(number, pool.submit(results, number)) for number in numbers]
                done += [(number, future.result()) for number, future in futures if future.exception() is None]
                for _, future in futures:
                    future.result()
        except BaseException:
            for number, said in done:
                _discard(tasks[number], said)
            raise
        for number, said in done:
            yield from (TaskResult(r.kind, of_table(number, r.payload)) for r in said)


def _results(task: WriteTask, runs: Iterator[Sent]) -> Iterator[TaskResult]:
    """Writes a table and yields its results. If the write fails with a BucketlineError, the error is the result."""
    try:
        yield from list(task(runs))
    except BucketlineError as e:
        yield TaskResult(ERROR, pickle.dumps(e))


def _sharing(task: WriteTask, threads: int) -> WriteTask:
    """Returns a copy of `task` with less memory for merges and compactions. So many tables are written at the same time
    as there are threads, so the memory is divided by the number of threads.
    """
    write = task.stage.write
    if threads < 2:
        return task
    write = replace(
        write,
        merge_memory_bytes=max(_LEAST_MERGE_BYTES, write.merge_memory_bytes // threads),
        compact_memory_bytes=max(_LEAST_MERGE_BYTES, write.compact_memory_bytes // threads),
    )
    return replace(task, stage=replace(task.stage, write=write))


def _discard(task: WriteTask, said: list[TaskResult]) -> None:
    """Removes the files that were written for a table. Called after an error that fails the whole task."""
    try:
        with discarded_on_error(task.stage.write.access) as messages:
            messages += [m for r in said if r.kind == MESSAGES for m in decode_messages(r.payload)]
            raise _Discarded
    except _Discarded:
        return


class _Discarded(Exception):
    """Raised only to make `discarded_on_error` remove the files that a task has written."""


class _Runs:
    """The sealed runs (sorted, packed rows) of a task by table, in memory up to a budget, and beyond it in one spill
    file.
    """

    def __init__(self, budget_bytes: int, directory: str | None) -> None:
        self._budget_bytes, self._directory = budget_bytes, directory
        self._held_bytes = 0
        self._runs: dict[int, list[OwnerRun]] = {}
        self._places: dict[tuple[int, int], tuple[int, int]] = {}
        self._spill: SpillFile | None = None

    def add(self, run: OwnerRun) -> None:
        of_table = self._runs.setdefault(run.table, [])
        size = len(run.blob)
        if self._held_bytes + size > self._budget_bytes:
            if self._spill is None:
                self._spill = SpillFile(self._directory)
            self._places[run.table, len(of_table)] = self._spill.tell(), size
            self._spill.write(run.blob)
            run = replace(run, blob=b"")
        else:
            self._held_bytes += size
        of_table.append(run)

    def tables(self) -> set[int]:
        """Returns the numbers of the tables whose sealed runs (sorted, packed rows) have come."""
        return set(self._runs)

    def take(self, table: int) -> Iterator[Sent]:
        """Yields the sealed runs (sorted, packed rows) of a table. A sealed run is freed when the next one is
        requested. Several threads may call this for different tables.
        """
        runs = self._runs.pop(table, [])
        for position in range(len(runs)):
            run, runs[position] = runs[position], None  # type: ignore[call-overload]
            place = self._places.pop((table, position), None)
            if place is not None:
                assert self._spill is not None
                run = replace(run, blob=pa.py_buffer(self._spill.blob(*place).read()))
            yield RUNS, run

    def __enter__(self) -> "_Runs":
        return self

    def __exit__(self, *error: object) -> None:
        if self._spill is not None:
            self._spill.close()
