"""What the driver does for batches into a table of many buckets, in a process of its own and without Spark:
`python -m tests.bench.driver PATH BUCKETS FILES TASKS`.

The steps of a batch are the real ones. Where Spark would run tasks, the tasks are pickled as PySpark does it, and one
of them is unpickled as a worker does it. Messages come back that say what tasks would have written: one file of each
bucket, and a compaction of its level 0 where one is due. The files are empty, and as large as their metadata says.

Prints what it has measured as JSON on its last line: seconds of CPU, and bytes.
"""

import gc
import json
import os
import pickle
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from pyspark import cloudpickle

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.state.commit.author import Author
from bucketline.state.commit.message import CommitMessage, encode_messages
from bucketline.state.determinism import SYSTEM_IDS
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta, FileSource
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import bucket_path, data_file_name
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import Outcome, TaskStats
from bucketline.state.store.table.table import create_table
from bucketline.state.store.write.commit_change import appended, commit_change
from bucketline.state.store.write.stages import Stages, WriteStage
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import Workers
from bucketline.state.types.binary_row import encode_row
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.batch.write_batch import Job, report, settle, write_once
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.tasks.outcome import read_outcome
from bucketline.streaming.tasks.read_task import Frame, ReadPlan, ReadTask
from bucketline.streaming.tasks.spark_engine import read_destination
from bucketline.streaming.tasks.wire import MESSAGES, STATS, TaskResult, stats_blob
from bucketline.streaming.tasks.write_task import owning
from tests.bench.rows import COLUMNS, rows_of

QUERY = "0b2f9a0e-5f0a-4a53-9a7a-3f1d2c4b5a69"
FILE_ROWS = 1_000_000
FILE_BYTES = 60 << 20
RUNS = 5
"""Sorted runs of a bucket that are compacted."""

BATCHES = 8


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of tasks costs: the driver `pickle_seconds` for what it sends and `answer_seconds` to read what
    tasks say, each task `worker_seconds` to unpickle it. `other_seconds` go into pretending.
    """

    compacts: bool = False
    pickle_seconds: float = 0.0
    answer_seconds: float = 0.0
    worker_seconds: float = 0.0
    other_seconds: float = 0.0
    sent_bytes: int = 0
    answer_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EmptyFiles:
    """Data files of a table without any data; what is said of them is what a real file, the template, says."""

    root: str
    schema: TableSchema
    template: DataFileMeta

    def made(self, bucket: int, sequence: int, *, level: int, part: int = 0) -> DataFileMeta:
        """A new file of a bucket; on level 5 it holds one of the parts that the keys are cut into."""
        types = [f.type for f in self.schema.select(self.schema.trimmed_primary_key)]
        keys = (part << 32, (part + 1 << 32) - 1) if level == 5 else (bucket, 50 << 32)
        low, high = (encode_row([key], types) for key in keys)
        file = replace(
            self.template,
            file_name=data_file_name("data-", SYSTEM_IDS.new_uuid(), 0, "parquet"),
            file_size=FILE_BYTES,
            row_count=FILE_ROWS,
            min_key=low,
            max_key=high,
            key_stats=replace(self.template.key_stats, min_values=low, max_values=high),
            min_sequence_number=sequence,
            max_sequence_number=sequence + FILE_ROWS - 1,
            level=level,
            file_source=FileSource.COMPACT if level else FileSource.APPEND,
        )
        folder = f"{self.root}/{bucket_path(self.schema, EMPTY_ROW, bucket)}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/{file.file_name}", "wb") as out:
            out.truncate(file.file_size)
        return file


class PretendedTasks:
    """An engine whose tasks write nothing; `cost` is that of its last run."""

    spark = None

    def __init__(self, files: EmptyFiles, tasks: int) -> None:
        self.workers = Workers(tasks // 2, tasks)
        self._files = files
        self.cost = Run()

    def run(self, stages: Stages[Any]) -> Outcome:
        to = read_destination(stages)
        started = time.process_time()
        reading = ReadPlan(stages.seal, to, stages.source.decode, stages.source.reject_limit)
        write = owning(stages, to)
        tasks = (ReadTask(reading), write)
        sent = [cloudpickle.dumps(task) for task in tasks]
        pickled = time.process_time()
        for data in sent:
            pickle.loads(data)
        if write.owned is not None:
            write.owned.of(0)
        unpickled = time.process_time()
        messages = list(self._messages(stages.write))
        written = stages.tasks.write or 1
        said = [TaskResult(MESSAGES, encode_messages(messages[n::written])) for n in range(written)]
        stats = stats_blob(TaskStats(len(messages)))
        said += [TaskResult(STATS, stats)] * written
        answered = time.process_time()
        outcome = read_outcome(said, stages.write.write.access, stages.retired)
        self.cost = Run(
            compacts=any(m.compact_after for m in messages),
            pickle_seconds=pickled - started,
            answer_seconds=time.process_time() - answered,
            worker_seconds=unpickled - pickled,
            other_seconds=answered - unpickled,
            sent_bytes=sum(map(len, sent)),
            answer_bytes=sum(len(result.payload) for result in said),
        )
        return outcome

    def _messages(self, stage: WriteStage) -> Iterator[CommitMessage]:
        for (partition, bucket), state in stage.states.items():
            number = state.next_sequence_number
            new = self._files.made(bucket, number, level=0)
            old = tuple(f for f in state.files if f.level < 5)
            message = CommitMessage(partition, bucket, stage.write.counts.count, (new,))
            if len(old) >= RUNS - 1:
                whole = self._files.made(bucket, number, level=4)
                message = replace(message, compact_before=(*old, new), compact_after=(whole,))
            yield message


def main(path: str, buckets: int, files: int, tasks: int) -> None:
    template = _template(f"{path}/one")
    create_table(f"{path}/t", COLUMNS, ("id",), options={"bucket": str(buckets)})
    schema = table_at(open_handle(f"{path}/t"), {}).plan.schema
    empty = EmptyFiles(f"{path}/t", schema, template)
    _fill(empty, buckets, files)
    decode = decode_step(RecordFormat.JSON, schema, BadRecords(None, 0))
    engine = PretendedTasks(empty, tasks)

    gc.collect()
    tracemalloc.start()
    target = Target(table_at(open_handle(f"{path}/t"), {}, is_stream=True).refreshed(), QUERY)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    target, _ = _batch(target, engine, decode, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    costs = []
    for number in range(1, 1 + BATCHES):
        target, seconds = _batch(target, engine, decode, number)
        costs.append({"seconds": seconds, **asdict(engine.cost)})
    print(json.dumps({"held_bytes": held, "peak_bytes": peak, "batches": costs}))


def _batch(target: Target, engine: PretendedTasks, decode: Any, number: int) -> tuple[Target, float]:
    """Writes a batch; the CPU time that the driver needs for it."""
    offsets = json.dumps([{"topic": {str(p): number * 1000 for p in range(64)}}])
    identity = BatchIdentity(QUERY, number, offsets, offsets, f"digest-{number}", run_id="run")
    started, cpu = time.monotonic(), time.process_time()
    target, done = write_once(target, identity, engine, Frame(None, decode), Job(decode))  # type: ignore[arg-type]
    target, done = settle(target, identity, engine, done)  # type: ignore[arg-type]
    report(target, identity, done, started).line()
    return target, time.process_time() - cpu - engine.cost.worker_seconds - engine.cost.other_seconds


def _template(path: str) -> DataFileMeta:
    """The metadata of a real file."""
    create_table(path, COLUMNS, ("id",), options={"bucket": "1"}).write(
        rows_of(np.arange(1000), np.random.default_rng(0))
    )
    session = table_at(open_handle(path), {}).refreshed()
    return session.view.live_entries()[0].file


def _fill(empty: EmptyFiles, buckets: int, files: int) -> None:
    session = table_at(open_handle(empty.root), {}).refreshed()
    made = [tuple(empty.made(b, n * FILE_ROWS, level=5, part=n) for n in range(files)) for b in range(buckets)]
    commit_change(
        session,
        appended(session, (CommitMessage(EMPTY_ROW, b, buckets, new) for b, new in enumerate(made))),
        Author("fill"),
    )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
