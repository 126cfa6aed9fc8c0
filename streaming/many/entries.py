"""Functions without side effects that decide what a batch of many tables does with one table, and what the ledger (the
job's file with the state of all tables) says about the table afterwards.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from bucketline.conf.routes.routed_job import Left, Resolved
from bucketline.streaming.batch.identity import BatchIdentity, numbered_offsets
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.many.ledger import BEFORE_ALL, Entry, FeedOffsets, Ledger, Parked, offsets_text
from bucketline.streaming.tasks.many.split import Feed, Origin, Resolver
from bucketline.streaming.tasks.many.table_notes import TableNote


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """The offsets of Kafka at which a batch starts and ends; both are empty for other sources."""

    start: FeedOffsets
    end: FeedOffsets


def span_of(identity: BatchIdentity) -> BatchSpan:
    return BatchSpan(numbered_offsets(identity.start_offsets), numbered_offsets(identity.end_offsets))


def identity_for(
    batch: BatchIdentity, span: BatchSpan, entry: Entry | None, fed: Iterable[Feed], pin: str
) -> BatchIdentity:
    """Returns the batch's identity for one table, which the table's snapshot stores. The identity has offsets only for
    partitions from which the table has got records. The start offset of a partition is the offset of the first record
    that the table lacks. `fed` are the partitions from which the table gets records in this batch.
    """
    commits = 0 if entry is None else entry.commits
    if not span.end:
        return replace(batch, turn=commits, pin=pin)
    known = frozenset() if entry is None else entry.fed
    cutoff: FeedOffsets = {} if entry is None or entry.cutoff is None else entry.cutoff
    feeds = sorted({*known, *fed} & span.end.keys())
    start = {f: max(span.start[f], cutoff.get(f, 0)) for f in feeds if f in span.start}
    topics = {topic for topic, _ in feeds}
    return replace(
        batch,
        start_offsets=offsets_text(start),
        end_offsets=offsets_text({f: max(span.end[f], cutoff.get(f, 0)) for f in feeds}),
        topic_ids={topic: found for topic, found in batch.topic_ids.items() if topic in topics},
        turn=commits,
        pin=pin,
    )


def at_least(entry: Entry | None) -> int:
    """Returns the number of the newest batch that a table must hold before the current batch is written; below 0 if the
    table need not hold any batch.

    `entry` is what the ledger (the stored state of the job's tables) knows about the table. If it knows nothing,
    `entry` is None, and the result is below 0. A job of only this table may have written the table before, so the
    table's own snapshots are checked instead.
    """
    return -1 if entry is None or entry.last_batch is None else entry.last_batch


def check_entry(name: str, entry: Entry | None, birth: str, span: BatchSpan) -> None:
    """Checks that the table is the same table as in the ledger (the stored state of the job's tables), and lacks no
    records before the batch. `entry` is what the ledger knows about the table. `birth` identifies the table that exists
    now (`birth_of`).

    Raises CheckpointMismatchError if the ledger knows another table of this name, or the table lacks records.
    """
    if entry is None:
        return
    if entry.birth and birth != entry.birth:
        state = "is gone" if not birth else "was dropped and created again"
        raise CheckpointMismatchError(
            f"{name}, which this job has written, {state}: the table lacks records that the job has read for it. "
            f"Restore the table; or run `ingest --forget {name}` once: the job then treats it as a new table, and "
            "writes records into it from the next batch on",
            path=name,
        )
    missing = [] if entry.catching_up else left_out(entry, span)
    if missing:
        topic, partition = missing[0]
        raise CheckpointMismatchError(
            f"{name} has its records only up to offset {(entry.cutoff or {})[missing[0]]} of topic {topic!r} partition "
            f"{partition}, but the batch begins at offset {span.start[missing[0]]}: the route of the table "
            "was removed from the job "
            f"and added again, and the table lacks the records in between. Run `ingest --forget {name}` once "
            "to continue without "
            "these records; or run the job once with --reset-identity, which reads these records",
            path=name,
        )


def ahead_of(entry: Entry, span: BatchSpan) -> FeedOffsets:
    """Returns the offsets up to which a table already has records of this batch, by partition."""
    return {f: at for f, at in (entry.cutoff or {}).items() if at > span.start.get(f, 0) and f in span.end}


def left_out(entry: Entry, span: BatchSpan) -> list[Feed]:
    """Returns the topic partitions in which a table lacks records that earlier batches have read. The table has the
    records of a partition only up to an offset (`cutoff`), and the batch begins at a later offset.
    """
    return sorted(f for f, at in (entry.cutoff or {}).items() if span.start.get(f, at) > at)


def next_ledger(
    before: Ledger | None,
    batch: BatchIdentity,
    span: BatchSpan,
    pin: str,
    changed: Mapping[str, Entry],
    routes: Resolver,
) -> Ledger:
    """Returns the ledger (the stored state of all tables of the job) after a batch. `changed` has the new entries of
    the tables that the batch has changed, and `pin` is the hash of the settings with which the batch was written.

    If no route sends records to a table any more, the entry of the table keeps the offsets up to which the table has
    received its records.
    """
    tables = {} if before is None else dict(before.tables)
    for name, entry in tables.items():
        if not entry.takes_part:
            continue
        if not is_routed(name, entry, routes):
            tables[name] = entry if entry.cutoff is not None else replace(entry, cutoff=span.start)
        elif not left_out(entry, span):
            tables[name] = replace(entry, cutoff=_left_of(entry.cutoff, span.end))
    for name, entry in changed.items():
        tables[name] = replace(entry, cutoff=_left_of(entry.cutoff, span.end)) if entry.takes_part else entry
    return Ledger(batch.query_id, batch.batch_id, batch.digest, pin, span.end, tables)


def _left_of(cutoff: FeedOffsets | None, end: FeedOffsets) -> FeedOffsets | None:
    """Returns the offsets up to which a table has its records after a batch. `end` are the offsets at which the batch
    ends, and `cutoff` are the offsets up to which the table had its records before the batch. In each topic partition
    of the batch the larger offset counts, so that no record is written twice. Returns None if this is `end` in all of
    these partitions.
    """
    ahead = {f: at for f, at in (cutoff or {}).items() if at > end.get(f, at)}
    return {**end, **ahead} if ahead else None


def is_routed(name: str, entry: Entry, routes: Resolver) -> bool:
    """Returns True if the routes still send records to the table from at least one of its origins. An origin is a
    source table or topic from which the table has received records. Also returns True if no origins are known.
    """
    return not entry.origins or route_of(name, entry, lambda o: routes.resolve(o.name, o.topic)) is not None


def route_of(name: str, entry: Entry, resolve: Callable[[Origin], Resolved | Left]) -> Resolved | None:
    """Returns the route that sends records to the table, from one of the origins (source table and topic) in the
    table's entry. Returns None if no route does.
    """
    found = (resolve(origin) for origin in sorted(entry.origins, key=str))
    return next((to for to in found if isinstance(to, Resolved) and to.table == name), None)


def after_batch(entry: Entry | None, birth: str, batch: int, note: TableNote, now_ms: int, *, wrote: bool) -> Entry:
    """Returns the ledger entry (stored state) of a table after a batch with records for the table. `wrote` is true if
    the table has a commit of the batch.
    """
    entry = Entry(birth) if entry is None else entry
    fed, origins = entry.fed | note.spans.keys(), entry.origins | note.origins
    entry = replace(entry, birth=birth, fed=fed, origins=origins)
    return replace(entry, last_batch=batch, commits=entry.commits + 1, marked_ms=now_ms) if wrote else entry


def parked_entry(
    entry: Entry | None,
    batch: BatchIdentity,
    span: BatchSpan,
    user: str,
    why: str,
    now_ms: int,
    note: TableNote | None = None,
) -> Entry:
    """Returns the ledger entry (stored state) of a table that is parked (left out of batches) because it has failed in
    a batch. The table has all records before that batch. `note` says what the tasks have read for the table in the
    batch; None if nothing was read. `user` is the commit user of the job, and `why` is the text of the error.
    """
    entry = Entry("") if entry is None else entry
    note = TableNote() if note is None else note
    parked = Parked(batch.batch_id, user, batch.digest, span.start, span.end, why, now_ms)
    return replace(
        entry,
        parked=parked,
        cutoff=span.start if entry.cutoff is None else entry.cutoff,
        catching_up=False,
        fed=entry.fed | note.spans.keys(),
        origins=entry.origins | note.origins,
        lacks_since_ms=entry.lacks_since_ms if note.first_ms is None else note.first_ms,
    )


def unparked(entry: Entry) -> Entry:
    """Takes the ledger entry (stored state) of a parked table, which is left out of batches. Returns the entry with
    which the table begins to read the records that it has missed.
    """
    return replace(entry, parked=None, catching_up=True)


def catch_up_span(entry: Entry, span: BatchSpan, most_records: int) -> tuple[BatchSpan, bool]:
    """Returns the offsets of the missed records that a table reads during this batch, because it was parked (left out
    of batches) before. If more than `most_records` records are missing, only so many are read, from each partition the
    same fraction. The second value is true if the table then has all records up to the end of the batch.

    `entry` is what the ledger (the file with the state of all tables) knows about the table. The result depends only on
    `entry` and the batch, so a batch that is repeated reads the same records.
    """
    start = {feed: min((entry.cutoff or {}).get(feed, 0), end) for feed, end in span.end.items()}
    missing = sum(span.end[feed] - at for feed, at in start.items())
    if missing <= most_records:
        return BatchSpan(start, span.end), True
    end = {feed: at + (span.end[feed] - at) * most_records // missing for feed, at in start.items()}
    return BatchSpan(start, end), False


def caught_up(entry: Entry, end: FeedOffsets, *, is_all: bool) -> Entry:
    """Returns the ledger entry (stored state) of a table that has caught up to the offsets `end`. `is_all` is true if
    the table lacks no records any more.
    """
    lacks_since_ms = None if is_all else entry.lacks_since_ms
    return replace(entry, catching_up=not is_all, cutoff=None if is_all else end, lacks_since_ms=lacks_since_ms)


def found_further(name: str, entry: Entry, newest: int | None, batch: int) -> Entry:
    """Returns the ledger entry (stored state) of a parked table, that is a table that is left out of batches because it
    failed in one. The table may nevertheless hold the batch in which it seemed to fail; then the entry is corrected.
    `newest` is the newest batch in the table. `batch` is the current batch, which an earlier attempt may have written.

    Raises CheckpointMismatchError if the table holds a batch that the ledger does not know.
    """
    parked = entry.parked
    if parked is None or newest is None or newest in (entry.last_batch, batch):
        return entry
    if newest == parked.batch:
        return replace(entry, last_batch=newest, commits=entry.commits + 1, cutoff=parked.end)
    raise CheckpointMismatchError(
        f"{name} holds batch {newest} of this job, but the ledger says that the newest batch in the table is batch "
        f"{entry.last_batch}, and that the table failed in batch {parked.batch}: it is not certain which records the "
        f"table lacks. Roll the table back to batch {entry.last_batch}; or run `ingest --forget {name}`, after which "
        "the job goes on without the missing records",
        path=name,
    )


def started_again(
    before: Ledger, reached: Mapping[str, FeedOffsets], *, earliest: FeedOffsets | None = None, now_ms: int = 0
) -> Ledger:
    """Returns the ledger of a new query that continues another query.

    The offsets `end` of the ledger are, for each partition, the lowest offset that a table needs. (Parked tables do not
    count.) `reached` has the offsets in each table's own newest snapshot. `earliest` has the offset of the first record
    that Kafka still has in each partition, if known; a table that needs older records is parked, with the time
    `now_ms`.
    """
    first: FeedOffsets = {} if earliest is None else earliest
    tables: dict[str, Entry] = {}
    taking_part: list[Entry] = []
    for name, old in before.tables.items():
        cutoff = dict(before.cutoff(name))
        for feed, at in reached.get(name, {}).items():
            cutoff[feed] = max(at, cutoff.get(feed, 0))
        entry = replace(old, last_batch=None, cutoff=cutoff)
        removed = sorted(f for f in old.fed if f in cutoff and cutoff[f] < first.get(f, 0))
        if old.takes_part and old.cutoff is None:
            if removed:
                entry = _lacking(entry, before, removed[0], first, now_ms)
            else:
                # A partition that had no records for the table may lose records: the table needs none of them.
                entry = replace(entry, cutoff={feed: max(at, first.get(feed, 0)) for feed, at in cutoff.items()})
                taking_part.append(entry)
        tables[name] = entry
    start = {
        feed: max(first.get(feed, 0), min([at, *((e.cutoff or {}).get(feed, at) for e in taking_part)]))
        for feed, at in before.end.items()
    }
    return Ledger("", BEFORE_ALL, None, before.pin, start, tables)


def _lacking(entry: Entry, before: Ledger, feed: Feed, first: FeedOffsets, now_ms: int) -> Entry:
    """Returns the ledger entry (stored state) of a table that is parked because Kafka has removed records that the
    table needs. `feed` is a topic partition in which records are missing, and `first` has the first offsets that Kafka
    still has.
    """
    topic, partition = feed
    cutoff: FeedOffsets = entry.cutoff or {}
    why = (
        f"Kafka has removed records that the table needs: topic {topic!r} partition {partition}, offsets "
        f"{cutoff[feed]} up to {first[feed]}. With `ingest --forget` the job writes the table as a new table, without "
        "these records"
    )
    return replace(entry, parked=Parked(before.batch, before.query, before.digest, cutoff, before.end, why, now_ms))
