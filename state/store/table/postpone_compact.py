"""Compacts a postpone table when a user asks for it. Postponed rows are moved to real buckets, which are then
compacted, in one COMPACT snapshot.
"""

from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.postpone_move import move_stages, waiting_files
from bucketline.state.store.table.partition_choice import PartitionTest
from bucketline.state.store.write.bucket_writer import BucketWrite
from bucketline.state.store.write.table_at import TableAt


def compact_postponed(
    at: TableAt, write: BucketWrite, chosen: PartitionTest, *, engine: Engine
) -> tuple[CommitMessage, ...]:
    """Moves the postponed rows of the chosen partitions to real buckets, and returns the commit messages for one
    COMPACT snapshot.

    Only rows that wait at the snapshot of `at` are moved. If no rows wait, returns no messages.
    """
    stages = move_stages(at, write, waiting_files(at.view, chosen), engine.workers, chosen)
    return engine.run(stages).messages if stages.source.parts or stages.idle else ()
