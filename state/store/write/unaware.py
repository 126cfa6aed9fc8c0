"""Append tables without buckets: all rows are in bucket 0, and any writer may add files to it."""

from bucketline.state.store.write.grouping import OneBucket
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.write_plan import Mode, Source, TableState, WritePlan, WriteScope


class Unaware(Mode):
    """The mode for append tables without buckets: the tasks that read rows also write them. No task owns bucket
    0, and tasks need to know nothing about this bucket.
    """

    why_not_compacting = (
        "in an append table without buckets, several writers add files at the same time and none of them owns the files"
    )

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns stages in which each task writes the rows that it reads, in the order in which they come. No rows are
        sent to other tasks.
        """
        del table
        write = plan.bucket_write(scope.trigger)
        return Stages(source, plan.seal_plan(OneBucket()), WriteStage(write), tasks=TaskCounts(None))
