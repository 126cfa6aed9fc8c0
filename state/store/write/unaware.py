"""Append tables without buckets: all rows are in bucket 0, and any writer may add files to it."""

from bucketline.state.store.write.grouping import OneBucket
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.write_plan import Mode, Source, TableState, WritePlan, WriteScope


class Unaware(Mode):
    """The mode in which the tasks that read rows also write them. No task owns the only bucket, and tasks need no facts
    about it.
    """

    why_not_compacting = "an append table with no buckets has nobody who owns its files while others write"

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns stages in which rows are sealed in the order in which they come, and written by the same task."""
        del table
        write = plan.bucket_write(scope.trigger)
        return Stages(source, plan.seal_plan(OneBucket()), WriteStage(write), tasks=TaskCounts(None))
