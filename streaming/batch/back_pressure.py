"""Before a batch: waits or compacts if a bucket has more sorted runs than `num-sorted-run.stop-trigger`.

In the end the batch is written even if too many sorted runs are left. The batch fails only if a compaction has failed:
an asynchronous compaction, or the compaction that back pressure itself does (`back-pressure` = `compact`).
"""

import logging
from dataclasses import dataclass, field

from bucketline.conf.async_options import BACK_PRESSURE, BackPressure
from bucketline.conf.table.compaction_options import STOP_TRIGGER
from bucketline.conf.wording import counted
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.replay import compactor_user
from bucketline.state.store.compact.crowding import Crowding, crowding
from bucketline.state.store.engine.compaction import compact_buckets
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.commit_change import commit_change
from bucketline.streaming.batch.async_compaction import await_async
from bucketline.streaming.batch.expired import planned_again_if_expired
from bucketline.streaming.batch.target import Target

_LOG = logging.getLogger(__name__)

_SHORTEST_WAIT_MS, _LONGEST_WAIT_MS = 100, 2_000


@dataclass(frozen=True, slots=True)
class Relief:
    """What back pressure found and did before a batch. `crowding` says how many sorted runs the buckets have as the
    batch begins. `spent_ms` is the time that the batch has spent on waiting or compacting, because there were too many
    sorted runs.

    `crowded_before` is the number of buckets that had too many sorted runs before the batch waited or compacted.
    """

    crowding: Crowding = field(default_factory=Crowding)
    crowded_before: int = 0
    spent_ms: int = 0


def relieve(target: Target, engine: Engine) -> tuple[Target, Relief]:
    """Looks for buckets with too many sorted runs before a batch. If there are such buckets, waits, compacts or
    continues, as the job's option `back-pressure` says. The target must show the newest snapshot.

    Returns two values: the target, at its newest snapshot after the wait or the compaction, and a report of what was
    found and how long the batch was held up. Raises CompactionFailedError if the compaction thread has failed, and the
    errors of the compaction that this function does itself.
    """
    at, started_ms = target.at, target.at.table.world.clock.now_ms()
    if not at.plan.schema.primary_keys:
        return target, Relief()
    now = _look(target)
    crowded_before = len(now.crowded)
    action = at.plan.sink.async_compaction.back_pressure
    if not now.crowded or at.plan.compacts or action is BackPressure.CONTINUE:
        return target, Relief(now, crowded_before)
    if action is BackPressure.COMPACT:
        target = _compacted(target, engine, now)
    else:
        target = _waited_for(target, now)
    now = _look(target)
    if now.crowded:
        _tell(
            target,
            now,
            f"'{BACK_PRESSURE.key}' = '{action.value}' has not reduced the sorted runs in time; the batch is "
            "written anyway",
        )
    return target, Relief(now, crowded_before, max(0, target.at.table.world.clock.now_ms() - started_ms))


def _look(target: Target) -> Crowding:
    stop = target.at.plan.schema.settings.compaction.stop_trigger
    return crowding(target.at.view, stop, target.state.touched)


def _compacted(target: Target, engine: Engine, now: Crowding) -> Target:
    """Compacts the buckets with too many sorted runs in a commit of their own, and returns the target after the commit.

    If that commit conflicts with another commit, the batch continues without the compaction.
    """
    at = target.at
    _tell(target, now, "the batch compacts these buckets first")
    trigger = CompactTrigger.MINOR
    with planned_again_if_expired(at):
        states = at.bucket_states(trigger)
        due = [b for b in at.due(trigger, among=now.crowded) if b in states]
        messages = compact_buckets(engine, at.plan.bucket_write(trigger), [(b, states[b]) for b in due])
    if any(not m.is_empty for m in messages):
        committed = commit_change(at, Compact(messages), Author(compactor_user(target.user)))
        target = target.after(committed)
        if committed.dropped is not None:
            _LOG.info(
                "the compaction before the batch conflicted with another commit and was dropped: %s",
                committed.dropped.message,
            )
    return target.refreshed()


def _waited_for(target: Target, now: Crowding) -> Target:
    """Waits until no bucket has too many sorted runs, or the time is over. Returns the target at the newest
    snapshot.
    """
    _tell(target, now, "the batch waits until these buckets are compacted")
    left_ms = target.at.plan.sink.async_compaction.back_pressure_timeout_ms
    pause_ms = _SHORTEST_WAIT_MS
    while now.crowded and left_ms > 0:
        pause_ms = min(pause_ms, left_ms)
        is_busy = await_async(target, pause_ms)
        target = target.refreshed()
        now = _look(target)
        if now.crowded and not is_busy:
            target.at.table.world.pause.wait_ms(pause_ms)
        left_ms -= pause_ms
        pause_ms = min(2 * pause_ms, _LONGEST_WAIT_MS)
    return target


def _tell(target: Target, now: Crowding, action: str) -> None:
    buckets, stop = counted(len(now.crowded), "bucket"), target.at.plan.schema.settings.compaction.stop_trigger
    _LOG.warning(
        "%s: %s with up to %d sorted runs, more than '%s' = %d: %s",
        target.at.table.path,
        buckets,
        now.most_runs,
        STOP_TRIGGER.key,
        stop,
        action,
    )
