"""The tasks of a batch of many tables in this process: read, sent, written, with no Spark."""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from bucketline.state.store.engine.local_engine import LocalEngine
from bucketline.streaming.tasks.many.read_tables import KnownTables, ReadTables, SharedTables
from bucketline.streaming.tasks.many.spark_tables import Ahead, TableResults, by_table
from bucketline.streaming.tasks.many.table_notes import TaskNotes, pass_on, read_notes
from bucketline.streaming.tasks.many.write_tables import WriteTables
from bucketline.streaming.tasks.wire import Routed, pack, unpack
from tests.support.spark.tasks import _one_at_a_time, _task


@dataclass
class _Here:
    value: KnownTables


@dataclass
class LocalTables:
    """An engine of tables; a source is the records of each task, in order. `reads` counts how often one was read."""

    parallelism: int = 2
    reads: int = 0
    engine: Any = field(default_factory=LocalEngine)

    def keep(self, known: KnownTables) -> SharedTables:
        return _Here(pickle.loads(pickle.dumps(known)))

    @contextmanager
    def read(self, reading: ReadTables, source: Sequence[Sequence[pa.Table]]) -> Iterator[Ahead]:
        self.reads += 1
        packed = cloudpickle.dumps(reading)
        sent: list[list[bytes]] = [[] for _ in range(reading.notes_to + 1)]
        for number, tables in enumerate(source):
            with _one_at_a_time, _task(number):
                routed: Routed
                for routed in cloudpickle.loads(packed).runs(tables):
                    sent[routed.task].append(pack(routed))
        notes = read_notes(pass_on(map(unpack, sent[-1])))
        yield _Sent(sent[:-1], notes)


@dataclass
class _Sent:
    sent: list[list[bytes]]
    notes: TaskNotes

    def write(self, tables: WriteTables) -> TableResults:
        results = []
        for number, data in enumerate(self.sent):
            with _one_at_a_time, _task(number):
                results += list(cloudpickle.loads(cloudpickle.dumps(tables))(map(unpack, data)))
        return by_table(results)
