"""After the last batch of a bounded query: does the compactions that are still due, and marks partitions as done."""

from dataclasses import replace

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.replay import compactor_user
from bucketline.state.store.write.commit_change import commit_change
from bucketline.streaming.batch.make_visible import finish_visibility
from bucketline.streaming.batch.postponed import postponed_moved
from bucketline.streaming.batch.target import Target, taken_over
from bucketline.streaming.tasks.spark_engine import SparkEngine


def finish_stream(target: Target, engine: SparkEngine) -> Target:
    """At the end of a bounded query: does the compactions that are still due, and marks partitions as done. Returns the
    target afterwards. A compaction that does not fit into the time budget stays due in the target's state.

    Raises BucketlineError if a compaction fails.
    """
    target = finish_visibility(taken_over(target.refreshed()), engine)
    budget = target.budget()
    while target.state.owes_postponed and budget.left_ms > 0:
        target, messages = postponed_moved(target, engine)
        committed = commit_change(target.at, Compact(messages), Author(compactor_user(target.user)))
        target = target.after(committed).with_state(replace(target.state, owes_postponed=committed.dropped is not None))
        if target.state.owes_postponed:
            budget.wait()
    hidden = frozenset(partition for partition, _ in target.state.hidden or {})
    target.upkeep.mark_done(target.at, at_end=True, hidden=hidden)
    return target
