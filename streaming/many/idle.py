"""Work for tables that have no records in a batch: compactions that are due, and new tags that keep the newest
snapshots of these tables.

If a table got no records for longer than its tag is kept, its newest snapshot would expire, and the table would look as
if it had been rolled back. So its tag is renewed in time. The new tag records up to which offsets the table has its
records now. A new query that knows nothing but the table begins at these offsets, and not at the older offsets of the
table's last records.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.engine.compaction import compact_buckets
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.streaming.batch.commit import commit_owed_compaction
from bucketline.streaming.batch.finish import finish_stream
from bucketline.streaming.batch.history import mark
from bucketline.streaming.batch.recover import END_OFFSETS
from bucketline.streaming.batch.target import Target
from bucketline.streaming.many.ledger import Entry, FeedOffsets, Ledger, offsets_text
from bucketline.streaming.many.tables import Known, Tables

_LOG = logging.getLogger("bucketline.many")
RENEWED_EVERY_MS = 10 * 86_400_000
"""The age, in milliseconds, at which a writer's tag is renewed. It is a third of the time for which the tag is kept."""
_MOST_RENEWED = 8
"""The most tags that one batch renews."""


def owes(known: Known) -> bool:
    """Returns True if earlier batches of a table have left compactions that are still due."""
    state = known.target.state
    return bool(state.hidden) or state.owes_full or state.owes_postponed


def do_owed(known: Known, batch: int, engine: Any) -> None:
    """Does the compactions of a table that are still due. A compaction that fails stays due, and is tried again
    later.
    """
    try:
        target = finish_stream(known.target, engine)
        known.target = _compacted(target, batch, engine) if target.state.owes_full else target
    except BucketlineError as e:
        _LOG.warning("%s: compactions that are due have failed; a later batch tries again: %s", known.name, e.message)


def _compacted(target: Target, batch: int, engine: Any) -> Target:
    """Does a full compaction again that an earlier commit of the table has dropped because of a conflict. Returns the
    target (the table at its newest snapshot, and the state of its stream). If the new commit also drops the compaction,
    the state says that the compaction is still due.
    """
    at, trigger = target.at, CompactTrigger.FULL
    due = at.due(trigger)
    states = at.bucket_states(trigger) if due else {}
    messages = compact_buckets(engine, at.plan.bucket_write(trigger), [(b, states[b]) for b in due])
    lost = False
    if messages:
        committed = commit_owed_compaction(target, batch, messages).committed
        target, lost = target.after(committed), committed.dropped is not None
    return target.with_state(replace(target.state, owes_full=lost))


def renewed(tables: Tables, entries: Mapping[str, Entry], before: Ledger | None, now_ms: int) -> dict[str, Entry]:
    """Creates new tags for tables that got no records for long, because otherwise the newest snapshots of these tables
    would expire. Returns the changed ledger entries (stored states) of these tables. `before` is the newest ledger in
    the checkpoint.
    """
    due = [name for name, e in sorted(entries.items()) if e.last_batch is not None and _is_due(e, now_ms)]
    done: dict[str, Entry] = {}
    for name in due[:_MOST_RENEWED]:
        entry = entries[name]
        try:
            known = tables.get(name) or tables.reopened(name, entry)
            if known is not None:
                cutoff: FeedOffsets = {} if before is None else before.cutoff(name)
                _renew(known, {feed: offset for feed, offset in cutoff.items() if feed in entry.fed})
        except BucketlineError as e:
            _LOG.warning(
                "%s: the tag that keeps the newest batch could not be renewed; a later batch tries again: %s",
                name,
                e.message,
            )
        done[name] = replace(entry, marked_ms=now_ms)
    return done


def _is_due(entry: Entry, now_ms: int) -> bool:
    return now_ms - entry.marked_ms > RENEWED_EVERY_MS


def _renew(known: Known, reached: FeedOffsets) -> None:
    table = known.target.at.table
    tag = Tags(table.io, table.metadata_path).get(MARKER_TAG + known.target.user)
    if tag is None:
        return
    properties = dict(tag.snapshot.properties)
    if reached and END_OFFSETS in properties:
        properties[END_OFFSETS] = offsets_text(reached)
    mark(known.target, replace(tag.snapshot, properties=properties))
