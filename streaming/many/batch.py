"""The steps of a batch of many tables: ledger → attempt → pin → commits → records that parked tables have missed →
ledger. A ledger is the state of the job's tables in the checkpoint; a pin stores the settings with which the batch is
written.

The ledger of a batch is written when all tables have the batch, and before Spark is told that the batch is done.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from bucketline.conf.errors import BucketlineError
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.streaming.batch.failure import explain
from bucketline.streaming.batch.history import read_history
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.many.attempt import Attempt
from bucketline.streaming.many.entries import (
    BatchSpan,
    catch_up_span,
    caught_up,
    found_further,
    is_routed,
    next_ledger,
    parked_entry,
    span_of,
    unparked,
)
from bucketline.streaming.many.idle import do_owed, owes, renewed
from bucketline.streaming.many.job import ManyJob, ManyState, Told
from bucketline.streaming.many.ledger import Entry
from bucketline.streaming.many.ledger_files import BatchPin, TableRequest, Wish, find_ledger
from bucketline.streaming.many.side_by_side import side_by_side
from bucketline.streaming.many.tables import Opened
from bucketline.streaming.tasks.many.spark_tables import TablesEngine
from bucketline.streaming.tasks.read_task import Records

_LOG = logging.getLogger("bucketline.many")


_RECENT = 8
"""A table is expected to get more records within this number of batches after its last records."""


@dataclass(frozen=True, slots=True)
class Input:
    """Gives the records of a batch. `batch` returns the records of this batch. `between` returns the records between
    two offsets, for a table that was parked (left out for a while) and has missed these records.
    """

    batch: Callable[[], Records]
    between: Callable[[BatchSpan], Records]


def write_many(job: ManyJob, state: ManyState, identity: BatchIdentity, engine: TablesEngine, source: Input) -> Told:
    """Writes a batch into all tables for which it has records, each exactly once. Returns the reports of the tables,
    and the errors of the tables that failed.
    """
    try:
        is_first = not state.has_looked
        if is_first:
            found = find_ledger(state.files, identity.query_id, identity.batch_id, identity.digest)
            state.ledger, state.has_looked = found.ledger, True
        if state.ledger is not None and state.ledger.batch == identity.batch_id:
            return Told(is_skipped=True)
        state.tries = 0
        return repeat_if_gone(lambda: _written(job, state, identity, engine, source, is_first=is_first))
    except BaseException:
        state.forget()
        raise


def _written(
    job: ManyJob, state: ManyState, identity: BatchIdentity, engine: TablesEngine, source: Input, *, is_first: bool
) -> Told:
    state.tries += 1
    span = span_of(identity)
    entries = {} if state.ledger is None else dict(state.ledger.tables)
    waits = any(not entry.takes_part for entry in entries.values())
    requests = state.files.requests() if is_first or waits else ()
    entries = _as_asked(entries, requests, state, identity.batch_id)
    if is_first:
        _open_recent(state, entries, identity.batch_id)
    aside = frozenset(name for name, entry in entries.items() if not entry.takes_part)
    attempt = Attempt(job, state, identity, engine, source.batch(), span=span, entries=entries, aside=aside)
    notes = attempt.write()
    pin = BatchPin(identity.batch_id, identity.digest, job.pin, job.settings, attempt.routes_of_tables)
    state.files.put_pin(pin)
    reports = attempt.commit()
    changed = attempt.changed()
    failed: dict[str, BucketlineError] = dict(attempt.failed)
    for name in sorted(aside):
        if entries[name].catching_up and is_routed(name, entries[name], job.routes):
            more, changed[name], error = _caught_up(job, state, identity, engine, source, span, entries, name)
            reports += more
            if error is not None:
                failed[name] = error
    idle = [known for known in state.tables.all() if known.name not in changed and owes(known)]
    works = [partial(do_owed, known, identity.batch_id, engine.engine) for known in idle]
    for done in side_by_side(works, job.commit_parallelism):
        if isinstance(done, Exception):
            raise done
    others = {name: entry for name, entry in entries.items() if name not in changed}
    entries |= renewed(state.tables, others, state.ledger, state.files.world.clock.now_ms())
    before = None if state.ledger is None else replace(state.ledger, tables=entries)
    ledger = next_ledger(before, identity, span, job.pin, changed, job.routes)
    state.files.put(ledger)
    state.files.prune(ledger.batch)
    state.files.done(requests)
    state.ledger, state.touched = ledger, len(attempt.routes_of_tables)
    return Told(tuple(reports), failed, notes.parked, sum(notes.left.values()))


def _open_recent(state: ManyState, entries: Mapping[str, Entry], batch: int) -> None:
    """Opens the tables that had records in the last `_RECENT` batches. Called before the first batch of a process,
    because tasks would have to read the batch a second time if they found records of a table that is not open yet. If a
    table cannot be opened now, it is opened by the first batch that has records for it.
    """
    recent = [(n, e) for n, e in entries.items() if e.takes_part and (e.last_batch or 0) >= batch - _RECENT]
    works = [partial(state.tables.found, name, entry) for name, entry in recent if state.tables.get(name) is None]
    for opened in side_by_side(works, state.tables.opener.at_once):
        if isinstance(opened, Opened):
            with suppress(BucketlineError):
                state.tables.add(opened)
        elif isinstance(opened, Exception) and not isinstance(opened, BucketlineError):
            raise opened


def _as_asked(
    entries: Mapping[str, Entry], requests: tuple[TableRequest, ...], state: ManyState, batch: int
) -> dict[str, Entry]:
    """Carries out the requests to the job (to unpark a table, to forget a table), and returns the changed ledger
    entries (stored states).
    """
    asked = dict(entries)
    for request in requests:
        entry = asked.get(request.table)
        if entry is None:
            _LOG.warning(
                "%s is not a table of this job: the job ignores the request to %s this table",
                request.table,
                request.wish.value,
            )
        elif request.wish is Wish.FORGET:
            del asked[request.table]
            state.tables.forget(request.table)
            _LOG.warning("%s is forgotten: its records from this batch on are written as to a new table", request.table)
        elif entry.parked is not None:
            try:
                asked[request.table] = unparked(_found_in_table(request.table, entry, state, batch))
                _LOG.info("%s is no longer parked: the job writes the records that the table has missed", request.table)
            except BucketlineError as e:
                _LOG.error("%s stays parked: %s", request.table, e.message)
    return asked


def _found_in_table(name: str, entry: Entry, state: ManyState, batch: int) -> Entry:
    """Returns the ledger entry (stored state) of a parked table, after a look at the table itself. The batch that
    seemed to fail may have been committed all the same: then the returned entry says that the table has this batch.
    Raises the errors of `found_further`.
    """
    known = state.tables.get(name)
    if known is None:
        known = state.tables.reopened(name, entry)
    if known is None:
        return entry
    known.target, history = read_history(known.target.refreshed())
    return found_further(name, entry, history.newest_batch, batch)


def _caught_up(
    job: ManyJob,
    state: ManyState,
    identity: BatchIdentity,
    engine: TablesEngine,
    source: Input,
    span: BatchSpan,
    entries: Mapping[str, Entry],
    name: str,
) -> tuple[list[BatchReport], Entry, BucketlineError | None]:
    """Writes a part of the records that a parked table has missed. Returns the reports, the new ledger entry (stored
    state), and the error for which the table is parked again, if there is one.
    """
    entry = entries[name]
    part, is_all = catch_up_span(entry, span, job.most_missed)

    def once() -> tuple[Attempt, list[BatchReport]]:
        records = source.between(part)
        attempt = Attempt(job, state, identity, engine, records, span=part, entries=entries, only=name)
        attempt.write()
        return attempt, attempt.commit()

    try:
        attempt, reports = repeat_if_gone(once)
    except Exception as e:  # noqa: BLE001 - whatever fails is this table's, and the others have their batch
        error = e if isinstance(e, BucketlineError) else explain(e)
        now_ms, user = state.files.world.clock.now_ms(), state.tables.user
        state.tables.forget(name)
        return [], parked_entry(entry, identity, part, user, error.message, now_ms), error
    changed = attempt.changed()
    if name in attempt.failed:
        return [], changed[name], attempt.failed[name]
    entry = caught_up(changed.get(name, entry), part.end, is_all=is_all)
    if is_all:
        _LOG.info("%s has all records that it had missed, and is written with the other tables again", name)
    return reports, entry, None
