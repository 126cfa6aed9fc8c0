"""The first stage of a job that writes many tables, on an executor: turns records into sealed runs (sorted, packed
rows) of each table, and makes notes on what was read.

Records are split by table, and wait until many records of one table can be decoded together, because a call of a
decoder costs as much as hundreds of records. Rows and records of all tables share the memory that a job of one table
has. An error in one table's records is sent to the driver in the note of that table, and the task continues with the
other tables. The driver decides whether the table is parked (left out of batches) or the job stops.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import RecordFormat
from bucketline.conf.routes.route_options import Unmatched
from bucketline.conf.routes.routed_job import Left, Resolved
from bucketline.state.bucket.allocation import Assigners
from bucketline.state.store.write.owned.owner_runs import OwnerRun
from bucketline.state.store.write.sealed_runs import SealPlan
from bucketline.streaming.decode.avro.avro_reader import AvroReader
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.rejects import RECORD_COLUMNS, pack_rejects, reason_codes, rejects_of
from bucketline.streaming.decode.seen import NOTHING_SEEN, joined_seen
from bucketline.streaming.tasks.kafka.kafka_consumers import KEPT
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.kafka.kafka_feeds import KafkaFeeds
from bucketline.streaming.tasks.kafka.kafka_fetch import RangeFetch
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.many.packing import unpacked
from bucketline.streaming.tasks.many.split import Feed, Origin, Part, Resolver, Splitter, not_before
from bucketline.streaming.tasks.many.table_notes import NO_TABLE, NewTable, TableNote, TaskNotes, note_of
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.read_task import ReadPlan, Sealing, joined_messages, task_number
from bucketline.streaming.tasks.wire import REJECTS, RUNS, SEEN, TABLES, Routed, routed_note

RECORD_BYTES = 32 << 20
"""The most bytes of records that wait to be decoded, in all tables together."""
RECORDS_AT_ONCE = 20_000
"""The number of records of one table that are decoded together."""
ROW_BYTES = 64 << 20
"""The most bytes of rows that are not sealed yet, in all tables together."""
_SAMPLE_RECORDS, _SAMPLE_BYTES = 1000, 1 << 20
_UNNAMED = "the message does not say its source table, and no route of the job takes its topic"


@dataclass(frozen=True, slots=True)
class TableReading:
    """How the records of one table become sealed runs (sorted, packed rows).

    - `seal` says how rows are grouped and sorted, and `decode` turns records into rows.
    - `assigners` says how many tasks share the new keys of each partition and choose their buckets.
    - `first` is the number of the task that gets the table's first bucket.
    - `reject_limit` is about the largest number of bad records that a task reports.
    - `looks` says whether the topic partition of each record is noted, because the order of rows matters.
    """

    seal: SealPlan
    assigners: Assigners
    first: int
    decode: DecodeStep
    reject_limit: int
    looks: bool = False

    def among(self, tasks: int) -> Destination:
        """Returns where the table's rows are sent if `tasks` tasks write: the number of tasks, and which task gets
        which bucket.
        """
        return Destination(tasks, self.assigners, self.first % tasks)

    def sealing(self, tasks: int, feeds: KafkaFeeds | None, now_us: int | None) -> Sealing:
        """Returns an object that turns the table's records into sealed runs (sorted, packed rows) in this task.
        `now_us` is the time of the batch, in microseconds since 1970.
        """
        of_rows, decode = feeds if self.looks else None, self.decode
        if decode.computed is not None and decode.computed.tells_time:
            computed = replace(decode.computed, context=replace(decode.computed.context, now_us=now_us))
            decode = replace(decode, now_us=now_us, computed=computed)
        return Sealing(ReadPlan(self.seal, self.among(tasks), decode, self.reject_limit, of_rows))


@dataclass(slots=True)
class KnownTables:
    """What tasks must know about the tables of a job. The object is sent to each worker once, and again when it
    changes.

    - `numbers` has the number of each target table, by the table's name.
    - `packed` says as bytes how each table is read, by the table's number. A task unpacks only the tables that it
      reads.
    - `parked` are tables that are left out of batches. Their records are counted and left out.
    """

    numbers: Mapping[str, int]
    packed: Mapping[int, bytes]
    parked: frozenset[str] = frozenset()
    _unpacked: dict[int, TableReading] = field(default_factory=dict)

    def reading(self, number: int) -> TableReading:
        """Unpacks and returns how the records of a table are read."""
        found = self._unpacked.get(number)
        if found is None:
            found = self._unpacked[number] = unpacked(self.packed[number], TableReading)
        return found


class SharedTables(Protocol):
    """What tasks must know of the tables of a job, in a form that workers can read: a broadcast of Spark, or an object
    that holds the `KnownTables` itself.
    """

    @property
    def value(self) -> KnownTables: ...


@dataclass(frozen=True, slots=True)
class ReadTables:
    """How tasks read the records of all tables. The object holds only plain values, so that it can be sent to tasks.

    - `notes_to` is the number of the task in the next stage that gets the notes about the records; tasks with lower
      numbers write the rows.
    - `nameless` decodes records that belong to no table.
    - `feeds` are the topic partitions that the batch reads.
    - `now_us` is the time of the batch, in microseconds since 1970.
    - `since` has the offsets of topic partitions for some tables; records of these tables before the offsets are left
      out.
    - `most_refused` limits how many records a task keeps that no route takes, because more of them stop the job.

    The attributes are in one class because a task gets everything about reading as one value.
    """

    routes: Resolver
    unmatched: Unmatched
    decode: RecordFormat
    known: SharedTables
    notes_to: int
    nameless: DecodeStep
    registry: RegistrySchemas | None = None
    feeds: KafkaFeeds | None = None
    now_us: int | None = None
    since: Mapping[str, Mapping[Feed, int]] = field(default_factory=dict)
    most_refused: int = 1000

    def runs(self, tables: Iterable[pa.Table]) -> Iterator[Routed]:
        """Yields the sealed runs (sorted, packed rows) and notes that this task sends to other tasks, in order."""
        reading = _Reading(self)
        for records in tables:
            yield from reading.add(records)
        yield from reading.finish()


class _Reading:
    """Reads records in one task: splits them by table, decodes the records, seals (sorts and packs) the rows, and notes
    for each table what was read.

    The attributes belong together because all tables of the task share one budget of memory: what waits to be decoded,
    what waits to be sealed, and what has been counted for each table.
    """

    def __init__(self, plan: ReadTables) -> None:
        self._plan, self._known, self._origin = plan, plan.known.value, task_number()
        reader = None if plan.registry is None else AvroReader(plan.registry)
        self._splitter = Splitter(plan.routes, plan.decode, reader)
        self._waiting: dict[int, list[pa.Table]] = {}
        self._counts: dict[int, int] = {}
        self._waiting_bytes = 0
        self._sealing: dict[int, Sealing] = {}
        self._notes: dict[int, TableNote] = {}
        self._new: dict[str, NewTable] = {}
        self._left: dict[tuple[Origin, Left], int] = {}
        self._parked: dict[str, int] = {}
        self._seen = NOTHING_SEEN
        self._refused = 0

    def add(self, records: pa.Table) -> Iterator[Routed]:
        for part in self._splitter.parts(records):
            yield from self._take(part)
        if self._waiting_bytes >= RECORD_BYTES:
            yield from self._decode_all()

    def finish(self) -> Iterator[Routed]:
        yield from self._decode_all()
        for number, sealing in self._sealing.items():
            yield from self._of_table(number, sealing.finish)
        if self._seen:
            note = routed_note(SEEN, origin=self._origin, row_count=0, blob=self._seen.encode())
            yield self._noted(note, NO_TABLE)
        notes = TaskNotes(self._notes, self._new, self._left, self._parked)
        yield self._noted(routed_note(TABLES, origin=self._origin, row_count=0, blob=notes.encode()), NO_TABLE)

    def _take(self, part: Part) -> Iterator[Routed]:
        if isinstance(part.to, Left):
            yield from self._leave(part, part.to)
            return
        target = part.to.table
        number = self._known.numbers.get(target)
        if target in self._known.parked:
            self._parked[target] = self._parked.get(target, 0) + part.records.num_rows
        elif number is None:
            self._sample(part, part.to)
        else:
            yield from self._wait(part, number, target)

    def _leave(self, part: Part, why: Left) -> Iterator[Routed]:
        """Counts the records of `part`, which go to no table; `why` is the reason. If no route takes the records, and
        the job treats records without a route as bad, also yields them as bad records. Records that name no source
        table are decoded instead (see `_nameless`), if records of this format name their tables.
        """
        if why is Left.UNMATCHED and part.origin.name is None and self._plan.decode.names_tables:
            yield from self._nameless(part)
            return
        place = part.origin, why
        self._left[place] = self._left.get(place, 0) + part.records.num_rows
        if why is Left.UNMATCHED and self._plan.unmatched is Unmatched.BAD_RECORD:
            reason = f"no route takes {part.origin}"
            yield from self._refuse(part.records, [reason] * part.records.num_rows)

    def _nameless(self, part: Part) -> Iterator[Routed]:
        """Counts tombstones, heartbeats and similar messages. Yields the other messages as bad records: broken
        messages, and changes of rows that do not name their table.
        """
        made = self._plan.nameless(part.records)
        self._seen = joined_seen((self._seen, made.seen))
        if made.rejects is not None:
            note = routed_note(REJECTS, origin=self._origin, row_count=made.rejects.row_count, blob=made.rejects.blob)
            yield self._noted(note, NO_TABLE)
        if made.records is not None and len(made.records):
            rows = part.records.take(pa.array(np.unique(np.asarray(made.records))))
            yield from self._refuse(rows, [_UNNAMED] * rows.num_rows)

    def _refuse(self, records: pa.Table, reasons: list[str]) -> Iterator[Routed]:
        records = records.slice(0, min(records.num_rows, max(0, self._plan.most_refused - self._refused)))
        if not records.num_rows:
            return
        self._refused += records.num_rows
        known = {name: records[name] for name in RECORD_COLUMNS if name in records.column_names}
        known |= {"reason": pa.array(reasons[: records.num_rows], pa.string())}
        known["code"] = reason_codes(known["reason"])
        blob = pack_rejects(rejects_of(known, records.num_rows))
        yield self._noted(routed_note(REJECTS, origin=self._origin, row_count=records.num_rows, blob=blob), NO_TABLE)

    def _sample(self, part: Part, to: Resolved) -> None:
        """Keeps the first records of a table that is not known yet, as a sample."""
        before = self._new.get(to.table, NewTable(to.route, TableNote()))
        room = _SAMPLE_RECORDS - sum(t.num_rows for t in before.sample)
        is_small = sum(t.nbytes for t in before.sample) < _SAMPLE_BYTES
        more = (part.records.slice(0, room),) if room > 0 and is_small else ()
        note = before.note.with_records(note_of(part.records, part.origin))
        self._new[to.table] = NewTable(before.route, note, (*before.sample, *more))

    def _wait(self, part: Part, number: int, table: str) -> Iterator[Routed]:
        """Keeps the records of a table until there are enough to decode them together, and then yields their sealed
        runs (sorted, packed rows).
        """
        note = self._notes.get(number, TableNote())
        records = not_before(part.records, self._plan.since.get(table, {}))
        if note.error is not None or not records.num_rows:
            return
        self._notes[number] = note.with_records(note_of(records, part.origin))
        self._waiting.setdefault(number, []).append(records)
        self._counts[number] = self._counts.get(number, 0) + records.num_rows
        self._waiting_bytes += records.nbytes
        if self._counts[number] >= RECORDS_AT_ONCE:
            yield from self._decode(number)

    def _decode_all(self) -> Iterator[Routed]:
        for number in list(self._waiting):
            yield from self._decode(number)

    def _decode(self, number: int) -> Iterator[Routed]:
        waiting = self._waiting.pop(number)
        self._counts.pop(number)
        self._waiting_bytes -= sum(t.nbytes for t in waiting)
        sealing = self._sealing.get(number)
        if sealing is None:
            sealing = self._sealing[number] = self._opened(number)
        records = pa.concat_tables(waiting)
        yield from self._of_table(number, lambda: sealing.add(records))
        while sum(s.pending_bytes for s in self._sealing.values()) >= ROW_BYTES:
            largest = max(self._sealing, key=lambda n: self._sealing[n].pending_bytes)
            yield from self._of_table(largest, self._sealing[largest].flush)

    def _of_table(self, number: int, work: Callable[[], Iterator[Routed]]) -> Iterator[Routed]:
        """Yields the messages of `work` for a table, marked with the number of the table. If `work` raises an error,
        the error is put into the note of the table, and this task reads no more records of the table.
        """
        note = self._notes.get(number, TableNote())
        if note.error is not None:
            return
        try:
            for routed in work():
                if isinstance(routed.run, OwnerRun) and routed.kind == RUNS:
                    yield replace(routed, run=replace(routed.run, table=number))
                else:
                    yield self._noted(routed, number)
        except (RegistryDownError, KafkaReaderError):
            raise
        except BucketlineError as e:
            self._notes[number] = replace(note, error=e)
            self._sealing[number] = self._opened(number)

    def _opened(self, number: int) -> Sealing:
        return self._known.reading(number).sealing(self._plan.notes_to, self._plan.feeds, self._plan.now_us)

    def _noted(self, routed: Routed, number: int) -> Routed:
        """Returns a note about the records of a table (see `TableNote`), addressed to the one task that collects all
        notes. A note has no field for the number of its table, so the number is put where a run has its bucket.
        """
        assert not isinstance(routed.run, OwnerRun), "notes are no runs"
        return replace(routed, task=self._plan.notes_to, run=replace(routed.run, bucket=number))


@dataclass(frozen=True, slots=True)
class ReadTablesOfKafka:
    """A task that reads its own offset ranges from Kafka. All attributes are plain values that can be sent to
    executors.
    """

    reading: ReadTables
    source: KafkaRanges

    def __call__(self) -> Iterator[Routed]:
        source, share = self.source, self.source.shares[task_number()]
        if not share:
            return
        with KEPT.consumer(source.reading.settings) as consumer:
            yield from self.reading.runs(RangeFetch(consumer, source.reading, source.columns).tables(share))


@dataclass(frozen=True, slots=True)
class ReadTablesOfFrame:
    """A task that reads the records of a DataFrame from Arrow IPC messages, for the tables of a job. The object holds
    only plain values, so that it can be sent to executors.
    """

    reading: ReadTables
    schema: pa.Schema

    def __call__(self, messages: Iterator[bytes]) -> Iterator[Routed]:
        return self.reading.runs(joined_messages(messages, self.schema))
