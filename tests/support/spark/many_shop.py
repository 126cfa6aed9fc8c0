"""A shop of several tables as Debezium tells it, and the job that writes them, in this process."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.resolve import read_settings, resolve_jobs
from bucketline.conf.routes.one_route import as_routed
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.store.table.table import handle_of, open_table
from bucketline.streaming.bad_records.place import BadRecordsPlace, Rejects
from bucketline.streaming.batch.identity import BatchIdentity, batch_digest
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.batch.write_batch import Job
from bucketline.streaming.decode.decode_step import RECORD_TYPES
from bucketline.streaming.decode.step_for_table import decode_step
from bucketline.streaming.job.kafka.table_offsets import newest_offsets
from bucketline.streaming.job.many.pin import with_pinned
from bucketline.streaming.job.many.run import many_job
from bucketline.streaming.job.many.sink import begun_otherwise
from bucketline.streaming.job.many.table_opener import JobTableOpener
from bucketline.streaming.many.batch import Input, write_many
from bucketline.streaming.many.entries import BatchSpan, started_again
from bucketline.streaming.many.job import ManyJob, ManyState, Told
from bucketline.streaming.many.ledger import Entry, FeedOffsets, offsets_in
from bucketline.streaming.many.ledger_files import TableRequest, Wish, ledger_files
from bucketline.streaming.many.tables import Tables
from tests.support.spark.fake_topic import FakeTopic
from tests.support.spark.local_tables import LocalTables
from tests.support.spark.tasks import Cluster

QUERY = "query"


@dataclass
class Topic:
    """The records of a topic, partition by partition."""

    name: str
    parts: list[list[dict[str, Any]]] = field(default_factory=lambda: [[], []])
    written_ms: int | None = None
    """The timestamp that Kafka gives the records that are added now."""

    def put(self, key: Any, value: Any, partition: int | None = None) -> None:
        """Adds a record; of one key all lie in one partition."""
        text = None if key is None else json.dumps(key).encode()
        number = (sum(text or b"") % len(self.parts)) if partition is None else partition
        data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        at_us = None if self.written_ms is None else self.written_ms * 1000
        self.parts[number].append({"key": text, "value": data, "timestamp": at_us})

    @property
    def ends(self) -> dict[str, int]:
        return {str(number): len(part) for number, part in enumerate(self.parts)}

    def change(
        self, table: str, row: Mapping[str, Any], op: str = "c", before: Mapping[str, Any] | None = None
    ) -> None:
        """A change of a row with an `id`."""
        event = {
            "before": before,
            "after": None if op == "d" else dict(row),
            "op": op,
            "source": {"db": "shop", "table": table},
        }
        if op == "d":
            event["before"] = dict(row)
        self.put({"id": row["id"]}, event)


def records(topic: Topic, start: Mapping[str, int], end: Mapping[str, int]) -> list[list[pa.Table]]:
    """The records between offsets, a task for each partition."""
    found = []
    for number, part in enumerate(topic.parts):
        first, until = start.get(str(number), 0), end[str(number)]
        chosen = part[first:until]
        columns: dict[str, Any] = {
            "key": [r["key"] for r in chosen],
            "value": [r["value"] for r in chosen],
            "topic": [topic.name] * len(chosen),
            "partition": [number] * len(chosen),
            "offset": list(range(first, until)),
            "timestamp": [r["timestamp"] for r in chosen],
            "timestampType": [0] * len(chosen),
        }
        found.append([pa.table({n: pa.array(v, RECORD_TYPES[n]) for n, v in columns.items()})] if chosen else [])
    return found


@dataclass
class Ahead:
    """The clock of the machine, ahead of it."""

    ms: int

    def now_ms(self) -> int:
        return SYSTEM_WORLD.clock.now_ms() + self.ms

    def local_ms(self) -> int:
        return SYSTEM_WORLD.clock.local_ms() + self.ms


@dataclass
class ThenPlace:
    """A place for bad records, after which something happens before the batch is committed."""

    place: BadRecordsPlace | None
    then: Callable[[], None]

    @property
    def name(self) -> str:
        return "" if self.place is None else self.place.name

    def prepare(self) -> None:
        """The place is ready."""

    def put(self, rejects: Rejects) -> str:
        assert self.place is not None
        where = self.place.put(rejects)
        self.then()
        return where


@dataclass
class Shop:
    """A job of a file's text, and its batches as Spark would plan them. `crash` ends the process: what it knew is
    gone."""

    root: Path
    text: str
    topic: Topic = field(default_factory=lambda: Topic("shop"))
    plans: list[dict[str, int]] = field(default_factory=list)
    engine: LocalTables = field(default_factory=LocalTables)
    allow_reprocess: bool = False
    most_missed: int = 1000
    ahead_ms: int = 0
    query: str = QUERY
    time_ms: int | None = None
    begin: dict[str, int] = field(default_factory=dict)
    bad_topic: FakeTopic | None = None
    after_bad_records: Callable[[], None] | None = None
    _state: ManyState | None = None
    done: int = 0

    @property
    def routed(self) -> RoutedJob:
        head = f"""
source: {{format: kafka, options: {{kafka.bootstrap.servers: "b:1", subscribe: shop}}, decode: debezium-json}}
checkpoint: {self.root}/checkpoint
"""
        job = resolve_jobs(read_settings(head + self.text.replace("ROOT", str(self.root)), name="job.yaml"))
        return job if isinstance(job, RoutedJob) else as_routed(job)

    def crash(self) -> None:
        self._state = None

    def state(self) -> ManyState:
        if self._state is None:
            self._state = self._made(self.routed)
        return self._state

    def _made(self, routed: RoutedJob) -> ManyState:
        world = replace(SYSTEM_WORLD, clock=Ahead(self.ahead_ms))
        files = ledger_files(f"{self.root}/checkpoint", {}, world=world)
        return ManyState(files, Tables(JobTableOpener(routed, "UTC"), self.query))

    def _job(self, routed: RoutedJob) -> ManyJob:
        job = many_job(routed, Job(cluster="cluster", allow_reprocess=self.allow_reprocess))
        return replace(self.with_topic(job), most_missed=self.most_missed)

    def with_topic(self, job: ManyJob) -> ManyJob:
        """The job, whose bad records go to the topic in memory if there is one; `after_bad_records` follows."""
        places, then = job.places if self.bad_topic is None else self.bad_topic.places, self.after_bad_records
        return replace(job, places=places if then is None else lambda named: ThenPlace(places(named), then))

    def batch(self) -> Told:
        """The next batch, or the one that was not done."""
        if len(self.plans) == self.done:
            self.plans.append(self.topic.ends)
        told = self.write(self.done)
        self.done += 1
        return told

    def alone(self, path: str) -> None:
        """The next batch, written by a job of one table."""
        self.plans.append(self.topic.ends)
        number = self.done
        start = self.plans[number - 1] if number else {}
        tables = [table for part in records(self.topic, start, self.plans[number]) for table in part]
        columns = ["key", "value", "topic", "partition", "offset"]
        frame = Cluster(random.Random(number)).frame(pa.concat_tables(tables).select(columns), 1)
        schema = handle_of(open_table(path)).table_schema
        step = decode_step(RecordFormat.DEBEZIUM_JSON, schema, BadRecords(None, 0))
        TableSink(path, decode=step, cluster="cluster").write(frame, self.identity(number))
        self.done += 1

    def begin_again(self, earliest: FeedOffsets | None = None) -> None:
        """As --reset-identity: another query, in a new checkpoint, where the tables have got to."""
        files = self.state().files
        ledger = files.read(files.numbers()[-1])
        assert ledger is not None
        reached = {name: self._reached(name) for name in ledger.tables}
        start = started_again(ledger, reached, earliest=earliest)
        (self.root / "checkpoint").rename(self.root / "checkpoint-before")
        files.put_start(start)
        self.query, self.begin = f"{self.query}-again", {str(p): at for (_, p), at in start.end.items()}
        self.plans, self.done = [], 0
        self.crash()

    def _reached(self, name: str) -> FeedOffsets:
        written = next(newest_offsets(open_table(name), self.query), None)
        return {} if written is None else offsets_in(written.topics)

    def identity(self, number: int) -> BatchIdentity:
        begin = {**dict.fromkeys(self.topic.ends, 0), **self.begin}
        start = [{self.topic.name: self.plans[number - 1] if number else begin}]
        end = [{self.topic.name: self.plans[number]}]
        digest = batch_digest(start, end, [None])
        time_ms = None if self.time_ms is None else self.time_ms + number
        return BatchIdentity(
            self.query, number, json.dumps(start), json.dumps(end), digest, cluster="cluster", time_ms=time_ms
        )

    def write(self, number: int) -> Told:
        identity, state = self.identity(number), self.state()
        job = self._job(self.routed)
        other = begun_otherwise(job, state, identity)
        if other is not None:
            pinned = with_pinned(self.routed, other)
            job, state = self._job(pinned), self._made(pinned)
            self._state = None
        start = self.plans[number - 1] if number else self.begin
        source: Any = records(self.topic, start, self.plans[number])

        def between(span: BatchSpan) -> Any:
            start, end = ({str(p): at for (_, p), at in offsets.items()} for offsets in (span.start, span.end))
            return records(self.topic, start, end)

        return write_many(job, state, identity, self.engine, Input(lambda: source, between))

    def entry(self, table: str) -> Entry:
        """What the newest ledger says of a table."""
        files = self.state().files
        ledger = files.read(files.numbers()[-1])
        assert ledger is not None
        return ledger.tables[f"{self.root}/w/{table}"]

    def ask(self, wish: Wish, table: str) -> None:
        """Leaves a request for the job."""
        self.state().files.ask(TableRequest(wish, f"{self.root}/w/{table}"))

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = open_table(f"{self.root}/w/{table}").to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["id"])

    def appends(self, table: str) -> Sequence[int]:
        snapshots = open_table(f"{self.root}/w/{table}").snapshots().to_pylist()
        return [s["commit_identifier"] for s in snapshots if s["commit_kind"] == "APPEND"]
