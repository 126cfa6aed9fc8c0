"""Compacts buckets that get no new rows. An engine runs the compactions, in this process or in tasks on other
machines.
"""

from dataclasses import dataclass

from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.engine.engine import Engine, Jobs
from bucketline.state.store.write.bucket_writer import BucketState, BucketWork, BucketWrite, write_bucket
from bucketline.state.store.write.stages import Stages


@dataclass(frozen=True, slots=True)
class IdleBucket:
    """A job that compacts a bucket without new rows, if a compaction is due."""

    write: BucketWrite
    bucket_id: BucketId
    state: BucketState

    @property
    def access(self) -> BucketAccess:
        return self.write.access

    def message(self) -> CommitMessage:
        return write_bucket(self.write, self.bucket_id, self.state, [])


def compact_buckets(engine: Engine, write: BucketWrite, work: BucketWork) -> tuple[CommitMessage, ...]:
    """Compacts the buckets in `work`, and returns their commit messages. Nothing is committed. `write` has the
    settings, for example which compactions are due.
    """
    if not work:
        return ()
    return engine.run(Jobs([IdleBucket(write, *bucket) for bucket in work])).messages


def idle_jobs(stages: Stages[object], busy: frozenset[BucketId] = frozenset()) -> Jobs:
    """Returns the compaction jobs for the buckets in `stages.idle`: these buckets are compacted even if they get no
    rows. Buckets in `busy` are left out: they got rows, and the tasks that wrote these rows have done the compactions
    that were due.
    """
    write, states = stages.write.write, stages.write.states
    return Jobs([IdleBucket(write, b, states[b]) for b in stages.idle if b not in busy])
