"""Counts the postponed rows of a stream's table, and moves these rows to their buckets. Postponed rows are in the
postpone bucket, because no compaction has moved them to a real bucket yet.
"""

from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.postpone_backlog import PostponeBacklog, find_waiting
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.table.postpone_compact import compact_postponed
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.streaming.batch.expired import planned_again_if_expired
from bucketline.streaming.batch.target import Target
from bucketline.streaming.tasks.spark_engine import SparkEngine


def postponed_moved(target: Target, engine: SparkEngine) -> tuple[Target, tuple[CommitMessage, ...]]:
    """Compacts the table at its newest snapshot so that all postponed rows move to their buckets. Does this again, a
    few times at most, if the snapshot expires meanwhile. Returns the target at the snapshot, and the commit messages of
    the compaction. The caller must commit these messages.
    """

    def once() -> tuple[Target, tuple[CommitMessage, ...]]:
        newest = target.refreshed()
        at = newest.at
        with planned_again_if_expired(at):
            write = at.plan.bucket_write(CompactTrigger.MINOR)
            return newest, compact_postponed(at, write, lambda partition: True, engine=engine)

    return repeat_if_gone(once)


def waiting_rows(target: Target) -> PostponeBacklog:
    """Returns the number, size and age of the rows that wait in the postpone bucket; zeros for tables without a
    postpone bucket.
    """
    at = target.at
    if not at.plan.mode.postpones:
        return PostponeBacklog()
    return find_waiting((b, at.view.files(b)) for b in at.view.buckets() if b[1] < 0)
