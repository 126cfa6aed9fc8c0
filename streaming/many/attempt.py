"""One attempt to write a batch into many tables: read → decide for each table → write → check → commit in parallel.

All decisions come before the first commit. If the process ends, the next attempt recognises for each table whether the
batch was committed to the table.
"""

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import BadRecords
from bucketline.conf.routes.route_options import OnTableFailure, Unmatched
from bucketline.conf.routes.routed_job import Left, Resolved
from bucketline.conf.wording import counted
from bucketline.state.errors import CommitConflictError, CommitOutcomeUnknownError, SchemaMismatchError
from bucketline.state.store.commit.repeat import TIMES, lost_file, may_repeat
from bucketline.streaming.bad_records.folder import folder_name
from bucketline.streaming.bad_records.place import BatchName, allowed_rejects, put_aside
from bucketline.streaming.batch.expired import planned_again_if_expired
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.inputs.topic_ids import newest_ids
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.many.entries import BatchSpan, after_batch, ahead_of, identity_for, parked_entry
from bucketline.streaming.many.job import ManyJob, ManyState
from bucketline.streaming.many.ledger import Entry
from bucketline.streaming.many.outcomes import outcome_of
from bucketline.streaming.many.side_by_side import side_by_side
from bucketline.streaming.many.turn import Turn, check_turn, commit_turn, decide_turn, plan_turn
from bucketline.streaming.tasks.kafka.kafka_feeds import KafkaFeeds
from bucketline.streaming.tasks.kafka.kafka_ranges import KafkaRanges
from bucketline.streaming.tasks.many.packing import packed
from bucketline.streaming.tasks.many.read_tables import ReadTables
from bucketline.streaming.tasks.many.spark_tables import Ahead, TableResults, TablesEngine
from bucketline.streaming.tasks.many.table_notes import NO_TABLE, TableNote, TaskNotes
from bucketline.streaming.tasks.many.write_tables import WriteTables
from bucketline.streaming.tasks.read_task import Records
from bucketline.streaming.tasks.write_task import owning

T = TypeVar("T")

_LOG = logging.getLogger("bucketline.many")
_MOST_READS = 8
"""The most times that a batch reads its records. It reads them again if a table is new or has changed since the last
read.
"""
_TABLES_A_TASK = 16
"""One task that writes is enough for this number of tables."""
_MERGE_BYTES = 256 << 20


class Attempt:
    """One attempt to write a batch into the tables that have records in the batch.

    Tables in `aside` are left out. If `only` is the name of a table, only this table is written. `span` are the offsets
    that are read. If a table catches up (reads records that it missed while it was parked), `span` covers more than the
    batch.

    The attributes belong together because a table may fail in any step: each step changes which tables are still
    written and which have failed, and the next step needs both.
    """

    def __init__(
        self,
        job: ManyJob,
        state: ManyState,
        identity: BatchIdentity,
        engine: TablesEngine,
        source: Records,
        *,
        span: BatchSpan,
        entries: Mapping[str, Entry],
        aside: frozenset[str] = frozenset(),
        only: str | None = None,
    ) -> None:
        self._job, self._state, self._identity, self._engine = job, state, identity, engine
        self._source, self._span, self._entries = source, span, entries
        self._aside, self._only = aside, only
        self._turns: dict[int, Turn] = {}
        self.failed: dict[str, BucketlineError] = {}
        self._notes_of_failed: dict[str, TableNote] = {}
        self._taken_back: dict[str, BadRecords] = {}
        self._started = self._planned = self._ran = time.monotonic()

    def write(self) -> TaskNotes:
        """Decides for each table whether it lacks the batch, and writes files for the tables that lack it. Commits
        nothing. Returns what the tasks have noted about the records that they have read.

        Raises the error of a check that fails.
        """
        notes = self._read_and_write()
        self._settle(notes)
        return notes

    @property
    def routes_of_tables(self) -> dict[str, int]:
        """The tables that are written, each with the number of its route."""
        return {turn.name: turn.known.to.route for _, turn in sorted(self._turns.items())}

    def changed(self) -> dict[str, Entry]:
        """The new ledger entries (stored states) of the tables that were written or have failed."""
        batch, now_ms = self._identity, self._state.files.world.clock.now_ms()
        changed: dict[str, Entry] = {}
        for turn in self._turns.values():
            birth = turn.known.birth
            changed[turn.name] = after_batch(turn.entry, birth, batch.batch_id, turn.note, now_ms, wrote=turn.wrote)
        for name, error in self.failed.items():
            user, note = self._state.tables.user, self._notes_of_failed.get(name)
            changed[name] = parked_entry(self._entries.get(name), batch, self._span, user, error.message, now_ms, note)
            self._state.tables.forget(name)
        return changed

    def _read_and_write(self) -> TaskNotes:
        """Reads the records, and reads them again if a table has changed meanwhile, until the tasks have decoded them
        for the newest state of all tables. Then writes the files of the tables. Returns what the reading tasks have
        noted about the records.
        """
        for _ in range(_MOST_READS):
            reading = self._reading()
            with self._engine.read(reading, self._source) as ahead:
                if self._is_ready(ahead.notes):
                    self._planned = time.monotonic()
                    self._take_results(self._write(ahead, reading.notes_to))
                    self._ran = time.monotonic()
                    return ahead.notes
        raise SchemaMismatchError(
            f"batch {self._identity.batch_id} was read {_MOST_READS} times, and each time another program had "
            "changed a table of the batch meanwhile; stop the program that keeps changing these tables"
        )

    def _reading(self) -> ReadTables:
        parked = self._aside | self.failed.keys()
        if self._only is not None:
            parked |= {known.name for known in self._state.tables.all()} - {self._only}
        nameless, time_ms = self._job.nameless, self._identity.time_ms
        return ReadTables(
            routes=self._job.routes,
            unmatched=self._job.unmatched,
            decode=nameless.decode,
            known=self._engine.keep(self._state.tables.told(parked)),
            notes_to=self._task_count(),
            nameless=nameless,
            registry=nameless.registry,
            feeds=KafkaFeeds(tuple(sorted(self._span.end))) if len(self._span.end) > 1 else None,
            now_us=None if time_ms is None else time_ms * 1000,
            since={name: since for name, e in self._entries.items() if (since := ahead_of(e, self._span))},
            most_refused=self._job.bad_records.max_count + 1,
        )

    def _task_count(self) -> int:
        """Returns the number of tasks that write the tables. As many tasks write as read. If the last batch had many
        tables, more tasks may write, but not more than Spark runs at the same time.
        """
        most = self._engine.parallelism
        reading = len(self._source.shares) if isinstance(self._source, KafkaRanges) else most
        return max(1, min(most, max(reading, -(-self._state.touched // _TABLES_A_TASK))))

    def _is_ready(self, notes: TaskNotes) -> bool:
        """Opens the tables that have records in this batch, and plans what is written to each table. Returns True if
        the rows that the tasks have read can be written: all tables were open, and the tasks have read the records of
        each table as the table's plan needs them. Otherwise the caller lets the tasks read the records again.
        """
        self._refuse_unmatched(notes)
        has_opened = self._open(notes)
        self._take_notes(notes)
        waiting = [turn for turn in self._turns.values() if not turn.decided]
        batch, span, engine = self._identity, self._span, self._engine.engine
        works = [partial(decide_turn, turn, self._job, self._state, batch, span, engine) for turn in waiting]
        for turn, error in zip(waiting, side_by_side(works, self._job.commit_parallelism), strict=True):
            self._note_failure(turn, error)
        changed = [self._fit(turn) for turn in list(self._turns.values()) if turn.is_new]
        return not has_opened and not any(changed)

    def _refuse_unmatched(self, notes: TaskNotes) -> None:
        if self._job.unmatched is not Unmatched.FAIL or self._only is not None:
            return
        unmatched = sorted((str(o), count) for (o, why), count in notes.left.items() if why is Left.UNMATCHED)
        if unmatched:
            origin, count = unmatched[0]
            raise SchemaMismatchError(
                f"{counted(count, 'record')} of {origin}: no route of 'tables' takes these records. Add a route; "
                "or add the source table to 'exclude'; or set unmatched to skip or bad-record",
                table=origin,
            )

    def _open(self, notes: TaskNotes) -> bool:
        """Opens the tables that the tasks did not know while they read (`notes.new`), or creates them if the job's
        settings allow it. Returns False if there are no such tables.
        """
        tables = self._state.tables
        names = [n for n in notes.new if n not in self.failed and self._only in (None, n)]
        works = []
        for name in names:
            new, entry = notes.new[name], self._entries.get(name)
            is_known = entry is not None and bool(entry.birth)
            works.append(partial(tables.opened, Resolved(new.route, name), new.sample, is_known=is_known))
        for name, opened in zip(names, side_by_side(works, tables.opener.at_once), strict=True):
            try:
                if isinstance(opened, Exception):
                    raise opened
                tables.add(opened)
            except BucketlineError as e:
                self._fail(name, e, notes.new[name].note)
        return bool(names)

    def _take_notes(self, notes: TaskNotes) -> None:
        """Makes a `Turn` (the state of one table in this batch) for each table that has records, from the notes of
        the tasks that have read the batch. If an earlier read of the batch has made the turn of a table already, the
        turn is kept and gets the new note. Turns of tables without records are removed.
        """
        for number, note in notes.tables.items():
            if number == NO_TABLE:
                continue
            if number in self._turns:
                self._turns[number].note = note
            else:
                known = self._state.tables.numbered(number)
                entry = self._entries.get(known.name)
                identity = identity_for(self._identity, self._span, entry, note.spans, self._job.pin)
                self._turns[number] = Turn(known, entry, identity, known.target, note)
            self._note_failure(self._turns[number], note.error)
        for number in self._turns.keys() - notes.tables.keys():
            del self._turns[number]

    def _fit(self, turn: Turn) -> bool:
        """Plans the write of a table. Returns True if the batch must read the table's records again."""
        try:
            with planned_again_if_expired(turn.target.at):
                plan_turn(turn)
            assert turn.stages is not None, "it was planned"
            return self._state.tables.fit(turn.known, turn.stages) or bool(turn.note.need)
        except BucketlineError as e:
            self._note_failure(turn, e)
            return False

    def _write(self, ahead: Ahead, tasks: int) -> TableResults:
        tasks_by_table: dict[int, bytes] = {}
        idle: dict[int, frozenset[int]] = {}
        memory = _MERGE_BYTES
        for number, turn in self._turns.items():
            if not turn.is_new:
                continue
            assert turn.stages is not None and turn.known.reading is not None, "every table that is written has a plan"
            among = turn.known.reading.among(tasks)
            tasks_by_table[number] = packed(owning(turn.stages, among))
            if turn.stages.idle:
                idle[number] = frozenset(among.task(*bucket) for bucket in turn.stages.idle)
            memory = min(memory, turn.stages.write.write.merge_memory_bytes)
        return ahead.write(WriteTables(tasks_by_table, idle, memory)) if tasks_by_table else {}

    def _take_results(self, results: TableResults) -> None:
        """Stores the results of the tasks in the turns of their tables. Leaves out the tables that have failed. If the
        failure of a table stops the job or makes the job repeat the batch, the files of all tables are removed.
        """
        failed: list[tuple[Turn, BucketlineError]] = []
        for number, turn in self._turns.items():
            if turn.is_new and turn.stages is not None:
                try:
                    with planned_again_if_expired(turn.target.at):
                        access = turn.stages.write.write.access
                        turn.outcome = outcome_of(results.get(number, ()), turn.note, access)
                except BucketlineError as e:
                    failed.append((turn, e))
        try:
            for turn, error in failed:
                self._note_failure(turn, error)
        except BaseException:
            for turn in self._turns.values():
                turn.discard()
            raise

    def _settle(self, notes: TaskNotes) -> None:
        """Makes all checks that can still fail before the first commit, and then stores the bad records of all tables.
        If the check of one table fails, the files of this table are removed, and the table is left out of the batch. If
        anything else fails, the files of all tables are removed.
        """
        try:
            self._check_topics()
            aside: dict[BadRecords, list[tuple[BatchName, pa.Table]]] = {}
            nameless = notes.tables.get(NO_TABLE)
            if nameless is not None and self._only is None:
                self._allow(aside, self._job.bad_records, nameless.rejects, "no-table")
            for turn in [turn for turn in self._turns.values() if turn.is_new]:
                try:
                    check_turn(turn, self._identity)
                    assert turn.outcome is not None, "it was written"
                    bad_records = turn.known.config.bad_records
                    turn.rejected = self._allow(aside, bad_records, turn.outcome.rejects, turn.name)
                except BucketlineError as e:
                    turn.discard()
                    self._note_failure(turn, e)
            self._take_back(aside)
            self._set_aside(aside)
        except BaseException:
            for turn in self._turns.values():
                turn.discard()
            raise

    def _check_topics(self) -> None:
        """Checks that no topic was deleted and created again after a table got records from it. Kafka is asked once for
        all tables.
        """
        watch = self._job.one.topics
        if watch is None:
            return
        now = watch.ids_of(self._identity)
        for turn in self._turns.values():
            watch.accept(newest_ids(turn.target.state.commits, self._identity.cluster), now)

    def _allow(
        self,
        aside: dict[BadRecords, list[tuple[BatchName, pa.Table]]],
        bad_records: BadRecords,
        blobs: Sequence[bytes],
        name: str,
    ) -> int:
        """Counts the bad records of the table `name` and puts them into `aside`, to be stored later. Returns their
        number. `blobs` are the bad records that tasks have found, as bytes. Raises RejectedRecordsError if there are
        too many.
        """
        batch, user = self._identity, self._state.tables.user
        place = self._job.places(bad_records)
        rejects = allowed_rejects(place, bad_records.max_count, blobs, batch.batch_id)
        # A table that catches up counts as another writer, because a place takes the bad records of a writer and batch
        # only once.
        writer = user if self._only is None else f"{user}-{_short(name)}"
        named = BatchName(writer, batch.batch_id, batch.digest, batch.run_id, name, f"{user}/{folder_name(name)}")
        aside.setdefault(bad_records, []).append((named, rejects))
        return int(rejects.num_rows)

    def _take_back(self, aside: dict[BadRecords, list[tuple[BatchName, pa.Table]]]) -> None:
        """Adds empty sets of bad records to `aside` for the tables that have failed. The empty sets replace bad records
        that an attempt at this batch may have stored, because these tables read the records again later.
        """
        for name, bad_records in self._taken_back.items():
            self._allow(aside, bad_records, (), name)
        self._taken_back.clear()

    def _set_aside(self, aside: Mapping[BadRecords, Sequence[tuple[BatchName, pa.Table]]]) -> None:
        """Stores the bad records of all tables, with one call for each place (folder, table or topic) that
        stores them.
        """
        for bad_records, rejects in aside.items():
            place = self._job.places(bad_records)
            done = None if place is None else put_aside(place, rejects)
            if done is not None:
                _LOG.warning("batch %d: %s", self._identity.batch_id, done.line())

    def commit(self) -> list[BatchReport]:
        """Commits all tables. Waits until every commit has ended, and returns the reports of the batch."""
        turns = [turn for _, turn in sorted(self._turns.items())]
        times = self._started, self._planned, self._ran
        works = [partial(commit_turn, turn, self._engine.engine, times) for turn in turns]
        done = [self._in_the_end(result) for result in side_by_side(works, self._job.commit_parallelism)]
        errors = [error for error in done if isinstance(error, Exception)]
        fatal = next((e for e in errors if not _is_of_table(e)), None)
        if fatal is not None:
            raise fatal
        for turn, result in zip(turns, done, strict=True):
            self._note_failure(turn, result if isinstance(result, Exception) else None)
        none_left: dict[BadRecords, list[tuple[BatchName, pa.Table]]] = {}
        self._take_back(none_left)
        self._set_aside(none_left)
        return [result for result in done if isinstance(result, BatchReport)]

    def _note_failure(self, turn: Turn, error: object) -> None:
        """Leaves a table out of the batch if `error` is an exception, and does nothing if `error` is None. Raises the
        error if the error is not about this table alone; then the job stops, or repeats the batch. Also raises the
        error of a table if the job stops for each failed table (`on-table-failure`).
        """
        error = self._in_the_end(error)
        if not isinstance(error, Exception):
            return
        if not isinstance(error, BucketlineError) or not _is_of_table(error):
            raise error
        self._turns.pop(turn.known.number, None)
        self._taken_back[turn.name] = turn.known.config.bad_records
        self._fail(turn.name, error, turn.note)

    def _in_the_end(self, result: T) -> T | BaseException:
        """Returns what was given: the result or the error of a table. Only on the last try of the batch, a conflict
        that was raised because a file is missing or damaged is replaced by the error about this file. That error is
        about one table, so the damaged table is parked and the job does not stop.
        """
        if self._only is None and self._state.tries >= TIMES and isinstance(result, CommitConflictError):
            return lost_file(result) or result
        return result

    def _fail(self, name: str, error: BucketlineError, note: TableNote) -> None:
        if self._job.on_failure is OnTableFailure.STOP and self._only is None:
            raise error if name in error.message else error.reworded(f"{name}: {error.message}")
        _LOG.error("%s is parked from batch %d on: %s", name, self._identity.batch_id, error.message)
        self.failed[name], self._notes_of_failed[name] = error, note


def _is_of_table(error: Exception) -> bool:
    """Returns True if an error is a reason to park one table (to leave it out of batches) instead of stopping the job.
    The error must concern only this table and would happen again, and the batch is certainly not in the table.
    """
    if not isinstance(error, BucketlineError) or isinstance(error, CommitOutcomeUnknownError):
        return False
    return not (isinstance(error, CommitConflictError) and may_repeat(error))


def _short(name: str) -> str:
    """Returns a hash of a table's name, short enough to be a part of a writer's name."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
