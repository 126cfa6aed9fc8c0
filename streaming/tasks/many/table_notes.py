"""Notes about each table: for example how many records the tasks have read for the table, and which of them were bad.

The tasks of the first stage (which read records) make the notes. The second stage (which writes files) has one
additional task, which gets no rows: this task passes the notes to the driver. So the driver has the notes before
anything is written.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from bucketline.conf.errors import BucketlineError
from bucketline.conf.routes.routed_job import Left
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.state.types.schema_need import NOTHING_NEEDED, SchemaNeed, decode_need
from bucketline.streaming.decode.schema_needs import joined_needs
from bucketline.streaming.decode.seen import NOTHING_SEEN, Seen, decode_seen, joined_seen
from bucketline.streaming.tasks.many.split import Feed, Origin, first_ms, joined_spans, spans
from bucketline.streaming.tasks.wire import MIXED, NEEDS, REJECTS, SEEN, TABLES, Sent, TaskResult

NO_TABLE = -1
"""The number that is used for records that belong to no table."""

_NUMBER_BYTES = 4

Spans = Mapping[Feed, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TableNote:
    """What tasks have read for one table.

    - `records` is the number of records.
    - `spans` has the range of offsets in each topic partition.
    - `origins` has the source tables or topics of the records.
    - `first_ms` is the time at which the first record was written; None if the time is not known.
    - `error` says why the records could not become rows; if there is an error, nothing of the table may be written.
    - `need` has the columns and types that the records need and the table lacks.
    - `seen` has what else the records say, for example how many hold no row and where the source's table was truncated.
    - `rejects` are the bad records, as Arrow IPC streams.
    - `mixed` are keys whose rows came from several topic partitions.
    """

    records: int = 0
    spans: Spans = field(default_factory=dict)
    origins: frozenset[Origin] = frozenset()
    first_ms: int | None = None
    error: BucketlineError | None = None
    need: SchemaNeed = NOTHING_NEEDED
    seen: Seen = NOTHING_SEEN
    rejects: tuple[bytes, ...] = ()
    mixed: tuple[MixedKey, ...] = ()

    def with_records(self, more: "TableNote") -> "TableNote":
        """Adds what the note `more` says about other records of the same table: their number, their offsets, their
        origins (source table and topic), and the time of the first record. Returns the combined note.
        """
        return replace(
            self,
            records=self.records + more.records,
            spans=joined_spans(self.spans, more.spans),
            origins=self.origins | more.origins,
            first_ms=min((at for at in (self.first_ms, more.first_ms) if at is not None), default=None),
        )


def note_of(records: pa.Table, origin: Origin) -> TableNote:
    """Returns the note on records of one origin."""
    return TableNote(records.num_rows, spans(records), frozenset((origin,)), first_ms(records))


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that the tasks did not know. `route` is the number of the route that names the table, `note` says what
    was read for the table, and `sample` has the first of the table's records.
    """

    route: int
    note: TableNote
    sample: tuple[pa.Table, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskNotes:
    """What one task, or all tasks together, have noted about the records of a batch.

    - `tables` has the TableNote of each table that the task knew, by the number of the table.
    - `new` has the tables that the task did not know, by the name of the table.
    - `left` counts records that go to no table, by origin (source table and topic) and reason.
    - `parked` counts records of parked tables, which are left out of batches, by the name of the table.
    """

    tables: Mapping[int, TableNote] = field(default_factory=dict)
    new: Mapping[str, NewTable] = field(default_factory=dict)
    left: Mapping[tuple[Origin, Left], int] = field(default_factory=dict)
    parked: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


def pass_on(sent: Iterable[Sent]) -> Iterator[TaskResult]:
    """The work of the task that gets the notes of all reading tasks (a note says what was read for one table). The
    task only passes the notes on to the driver. Yields each note as bytes, with the number of its table before the
    note.
    """
    for kind, run in sent:
        assert isinstance(run, SealedRun), "rows are sent only to tasks that write"
        yield TaskResult(kind, of_table(run.bucket, bytes(run.blob)))


def of_table(number: int, payload: bytes) -> bytes:
    """Returns the bytes of a result with the number of its table in front."""
    return number.to_bytes(_NUMBER_BYTES, "little", signed=True) + payload


def table_of(payload: bytes) -> tuple[int, bytes]:
    """Takes the bytes that `of_table` has made. Returns the number of the table to which a task's result belongs, and
    the bytes of the result.
    """
    return int.from_bytes(payload[:_NUMBER_BYTES], "little", signed=True), payload[_NUMBER_BYTES:]


def read_notes(results: Iterable[TaskResult]) -> TaskNotes:
    """Joins what all tasks say about the tables of a batch: counts, origins and errors of records, new tables, and bad
    records. The result does not depend on the order in which the tasks have ended.
    """
    by_kind: dict[str, dict[int, list[bytes]]] = {NEEDS: {}, REJECTS: {}, SEEN: {}, MIXED: {}}
    told: list[TaskNotes] = []
    for result in results:
        number, payload = table_of(result.payload)
        if result.kind == TABLES:
            told.append(pickle.loads(payload))
        else:
            by_kind[result.kind].setdefault(number, []).append(payload)
    tables: dict[int, TableNote] = {}
    new: dict[str, NewTable] = {}
    left: dict[tuple[Origin, Left], int] = {}
    parked: dict[str, int] = {}
    for notes in told:
        for number, note in notes.tables.items():
            known = tables.get(number, TableNote()).with_records(note)
            tables[number] = replace(known, error=_first(known.error, note.error))
        for target, found in notes.new.items():
            new[target] = _joined_new(new.get(target), found)
        for place, count in notes.left.items():
            left[place] = left.get(place, 0) + count
        for target, count in notes.parked.items():
            parked[target] = parked.get(target, 0) + count
    for number in {n for of_kind in by_kind.values() for n in of_kind}:
        said: Mapping[str, list[bytes]] = {kind: found.get(number, []) for kind, found in by_kind.items()}
        tables[number] = replace(
            tables.get(number, TableNote()),
            need=joined_needs(map(decode_need, said[NEEDS])),
            seen=joined_seen(map(decode_seen, said[SEEN])),
            rejects=tuple(said[REJECTS]),
            mixed=tuple(sorted(map(MixedKey.from_bytes, said[MIXED]))),
        )
    return TaskNotes(dict(sorted(tables.items())), dict(sorted(new.items())), left, parked)


def _first(one: BucketlineError | None, other: BucketlineError | None) -> BucketlineError | None:
    """Returns the error whose text sorts first, so that a repeated batch reports the same error."""
    given = [e for e in (one, other) if e is not None]
    return min(given, key=lambda e: e.message, default=None)


def _joined_new(one: NewTable | None, other: NewTable) -> NewTable:
    if one is None:
        return other
    return NewTable(min(one.route, other.route), one.note.with_records(other.note), (*one.sample, *other.sample))
