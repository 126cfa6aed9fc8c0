"""Postponed buckets: rows wait in bucket -2 until a compaction moves them to real buckets."""

from dataclasses import replace

from bucketline.conf.errors import OptionError
from bucketline.state.commit.change import AppendCheck
from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.write.grouping import KeyShares
from bucketline.state.store.write.postponed.counted_buckets import CountedBuckets
from bucketline.state.store.write.postponed.postponed_rows import PostponedRows
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.write_plan import Mode, Source, TableState, WritePlan, WriteScope


class Postpone(Mode):
    """The mode for postpone tables. Each task gets a share of the keys (the keys whose hash belongs to the task), and
    writes the rows of these keys unsorted to the postpone bucket.
    """

    # Two writers that both create a partition might choose different bucket counts for it.
    append_check = AppendCheck.ALL_RULES
    why_not_compacting = "rows of a postpone table are compacted when they leave the postpone bucket"
    postpones = True
    counts_buckets = True

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns stages in which each write task gets the rows of its share of the keys (the keys whose hash belongs
        to the task). The task writes these rows to the postpone bucket in the order in which they come.

        The number of shares stays the same while rows wait in the postpone bucket. With another number, a key could get
        another writer, and the rows of a key are in order only as long as the same writer writes them.
        """
        waits = scope.key_shares is not None and any(b[1] == POSTPONE_BUCKET for b in table.view.buckets())
        shares = scope.workers.tasks((scope.key_shares if waits else None) or plan.sink.write_parallelism)
        write = plan.bucket_write(scope.trigger)
        rows = PostponedRows(write.access, _checked(scope.user), _newest_waiting(table.view))
        seal = plan.seal_plan(KeyShares(shares, plan.schema.trimmed_primary_key))
        return Stages(
            source=source,
            seal=replace(seal, keep_order=True, fold=None),
            write=WriteStage(write, groups=rows),
            tasks=TaskCounts(shares, shares),
            key_shares=shares,
        )

    def in_batch(self, plan: WritePlan) -> Mode:
        return PostponeInBuckets() if plan.schema.settings.postpone.batch_writes_to_buckets else self

    def replacing(self, plan: WritePlan) -> Mode:
        del plan
        return PostponeInBuckets()


class PostponeInBuckets(Postpone):
    """The mode in which rows of a postpone table are written directly to real buckets. The number of buckets of a new
    partition follows from the number of its rows.
    """

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns stages in which the rows of each partition are sealed (sorted and packed for the write tasks). One
        task writes all rows of a partition, because the number of rows decides how many buckets a new partition gets.
        """
        seal = plan.seal_plan(KeyShares(1, plan.schema.trimmed_primary_key))
        write = plan.bucket_write(scope.trigger)
        view = table.view
        waiting = {b[0]: sum(f.row_count for f in view.files(b)) for b in view.buckets() if b[1] == POSTPONE_BUCKET}
        counted = CountedBuckets(plan.counted_seal_plan(), {p: t for p, t in view.totals().items() if t > 0}, waiting)
        return Stages(
            source=source,
            seal=replace(seal, keep_order=True, fold=None),
            write=WriteStage(write, table.bucket_states(scope.trigger), counted),
            tasks=TaskCounts(scope.workers.tasks(plan.sink.write_parallelism)),
        )


def _newest_waiting(view: LiveFiles) -> dict[bytes, int]:
    """Returns for each partition the creation time (in milliseconds) of its newest file in the postpone bucket."""
    waiting = [b for b in view.buckets() if b[1] == POSTPONE_BUCKET]
    return {b[0]: max(f.creation_time_ms or 0 for f in view.files(b)) for b in waiting}


def _checked(user: str) -> str:
    """Returns `user`, the name of a commit user. Raises OptionError if the name contains `-s-`, because these
    characters separate the user from the writer number in names of files.
    """
    if "-s-" in user:
        raise OptionError(
            f"the writer {user!r} cannot write a postpone table: its name is part of file names, and '-s-' ends the "
            "name there; choose another sink_id",
            user=user,
        )
    return user
