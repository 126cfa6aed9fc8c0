"""Fixed buckets: the bucket of a row is computed from its bucket key, and a partition keeps its number of buckets."""

from dataclasses import replace

from bucketline.state.store.write.grouping import FixedBuckets
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.write_plan import Mode, Source, TableState, WritePlan, WriteScope


class Fixed(Mode):
    """The mode for tables with fixed buckets: each task writes the buckets that are sent to it. Several writers may
    write the table at the same time.
    """

    counts_buckets = True

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns stages in which the first tasks choose the bucket of each row, and seal (sort and pack) the rows by
        bucket. The stages refuse rows of a partition whose files have another number of buckets.
        """
        tasks = scope.workers.tasks(plan.sink.write_parallelism or 2 * scope.workers.parallelism)
        # With partitions, the number of buckets is not known before the rows are read.
        count = tasks if plan.schema.partition_keys else min(tasks, plan.total_buckets)
        seal = plan.seal_plan(FixedBuckets(plan.total_buckets, plan.schema.settings.bucket.function))
        write = plan.bucket_write(scope.trigger)
        return Stages(
            source=source,
            seal=replace(seal, other_totals=table.view.other_totals(plan.total_buckets)),
            write=WriteStage(write, table.bucket_states(scope.trigger)),
            tasks=TaskCounts(count),
        )
