"""Before a batch: what is done where a bucket has more sorted runs than `num-sorted-run.stop-trigger`.

The batch is written in the end, however many runs are left. It fails only if a compaction has failed: one beside the
batches, or with `back-pressure` = `compact` its own.
"""

import logging
from dataclasses import dataclass, field

from bucketline.conf.async_options import BACK_PRESSURE, BackPressure
from bucketline.conf.table.compaction_options import STOP_TRIGGER
from bucketline.conf.wording import counted
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.replay import compactor_user
from bucketline.state.store.catalog.crowding import Crowding, crowding
from bucketline.state.store.engine.compaction import compact_buckets
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.streaming.batch.compact_beside import await_beside
from bucketline.streaming.batch.target import Target

_LOG = logging.getLogger(__name__)

_SHORTEST_WAIT_MS, _LONGEST_WAIT_MS = 100, 2_000


@dataclass(frozen=True, slots=True)
class Relief:
    """How many runs wait as the batch begins, and how many ms it has waited, or compacted, for there to be fewer.

    `crowded_before` is how many buckets had too many as the batch began.
    """

    crowding: Crowding = field(default_factory=Crowding)
    crowded_before: int = 0
    spent_ms: int = 0


def relieve(target: Target, engine: Engine) -> tuple[Target, Relief]:
    """Waits, compacts or goes on, as the job says; on the target's view, which is fresh.

    Raises CompactionFailedError of the thread beside the batches, and what a compaction of its own raises.
    """
    session, started_ms = target.session, target.session.table.world.clock.now_ms()
    if not session.plan.schema.primary_keys:
        return target, Relief()
    now = _look(target)
    crowded_before = len(now.crowded)
    action = session.plan.sink.beside.back_pressure
    if not now.crowded or session.plan.compacts or action is BackPressure.CONTINUE:
        return target, Relief(now, crowded_before)
    if action is BackPressure.COMPACT:
        now = _compact(target, engine, now)
    else:
        now = _wait(target, now)
    if now.crowded:
        _tell(target, now, f"'{BACK_PRESSURE.key}' = '{action.value}' did not help in time; the batch goes on")
    return target, Relief(now, crowded_before, max(0, target.session.table.world.clock.now_ms() - started_ms))


def _look(target: Target) -> Crowding:
    stop = target.session.plan.schema.settings.compaction.stop_trigger
    return crowding(target.session.view, stop, target.state.touched)


def _compact(target: Target, engine: Engine, now: Crowding) -> Crowding:
    """Compacts the crowded buckets in one commit of its own; if that loses a race, the batch goes on without it."""
    session = target.session
    _tell(target, now, "the batch compacts them first")
    trigger = CompactTrigger.MINOR
    states = session.bucket_states(trigger)
    due = [b for b in session.due(trigger, among=now.crowded) if b in states]
    messages = compact_buckets(engine, session.plan.bucket_write(trigger), [(b, states[b]) for b in due])
    if any(not m.is_empty for m in messages):
        committed = session.publish(Compact(messages), Author(compactor_user(target.user)))
        if committed.dropped is not None:
            _LOG.info("the compaction was lost: %s", committed.dropped.message)
    session.refresh()
    return _look(target)


def _wait(target: Target, now: Crowding) -> Crowding:
    """Waits until no bucket is crowded, or the time is over."""
    session = target.session
    _tell(target, now, "the batch waits for their compaction")
    left_ms = session.plan.sink.beside.back_pressure_timeout_ms
    pause_ms = _SHORTEST_WAIT_MS
    while now.crowded and left_ms > 0:
        pause_ms = min(pause_ms, left_ms)
        is_busy = await_beside(target, pause_ms)
        session.refresh()
        now = _look(target)
        if now.crowded and not is_busy:
            target.session.table.world.pause.wait_ms(pause_ms)
        left_ms -= pause_ms
        pause_ms = min(2 * pause_ms, _LONGEST_WAIT_MS)
    return now


def _tell(target: Target, now: Crowding, action: str) -> None:
    buckets, stop = counted(len(now.crowded), "bucket"), target.session.plan.schema.settings.compaction.stop_trigger
    _LOG.warning(
        "%s: %s with up to %d sorted runs, more than '%s' = %d: %s",
        target.session.table.path,
        buckets,
        now.most_runs,
        STOP_TRIGGER.key,
        stop,
        action,
    )
