"""Dynamic buckets: a key stays in the bucket that the HASH index of its partition holds for the key; new keys fill up
buckets, and then open new buckets.
"""

from dataclasses import replace

from bucketline.state.bucket.allocation import Assigners, assigner_count
from bucketline.state.commit.change import AppendCheck
from bucketline.state.store.index.hash_index_store import rows_by_bucket
from bucketline.state.store.write.grouping import HashEntries, HashShares, KnownBuckets
from bucketline.state.store.write.indexed_keys import BYTES_PER_KEY, IndexedKeys
from bucketline.state.store.write.new_keys import NewKeys
from bucketline.state.store.write.stages import Stages, TaskCounts, WriteStage
from bucketline.state.store.write.write_plan import Mode, Source, TableState, WritePlan, WriteScope


class Dynamic(Mode):
    """The mode for tables with dynamic buckets: the assigner of a key (the task that decides its bucket) also writes
    this bucket. Only one writer may write the table, because two writers could put a key into two buckets.
    """

    append_check = AppendCheck.ONE_WRITER

    def stages(self, plan: WritePlan, table: TableState, scope: WriteScope, source: Source) -> Stages[Source]:
        """Returns stages for a table whose buckets are found by a HASH index. The tasks that read rows know the buckets
        of known keys: they send rows with these keys to the tasks that write the buckets. Rows with new keys go to
        assigners. An assigner is the task that gives a part of the new keys their buckets; it also writes the rows.

        If the HASH index is larger than `key-index-memory`, all rows go to assigners first, and a separate stage finds
        their buckets.
        """
        entries = table.hash_entries()
        tasks = min(scope.workers.tasks(asked_assigners(plan)), plan.allocation_rule.bucket_limit)
        shares = index_shares(plan, entries, scope.touched)
        # There are more assigners than tasks if a share of the index would otherwise not fit into memory.
        new = _new_keys(plan, entries, max(tasks, shares), scope.expected_rows)
        known = KnownBuckets(plan.uri, entries, new.assigners, plan.sink.key_index_memory_bytes)
        write = plan.bucket_write(scope.trigger)
        return Stages(
            source=source,
            seal=plan.seal_plan(HashShares(new.assigners) if shares > 1 else known),
            write=WriteStage(write, table.bucket_states(scope.trigger), new),
            place=IndexedKeys(new) if shares > 1 else None,
            assigners=new.assigners,
            tasks=TaskCounts(tasks, tasks),
        )

    def by_owner(self, stages: Stages[Source]) -> Stages[Source]:
        """Returns the stages (the steps of a write) changed so that all keys of a partition go to one task. This task
        finds the buckets of known keys and of new keys.
        """
        new = stages.write.groups if stages.place is None else stages.place
        new = new.new if isinstance(new, IndexedKeys) else new
        assert isinstance(new, NewKeys), "dynamic buckets are found by keys"
        alone = Assigners({}, 1)
        return replace(
            stages,
            seal=replace(stages.seal, grouping=HashShares(alone)),
            write=replace(stages.write, groups=IndexedKeys(replace(new, assigners=alone))),
            place=None,
            assigners=alone,
            tasks=TaskCounts(1),
        )


def asked_assigners(plan: WritePlan) -> int | None:
    """Returns how many assigners (tasks that choose the buckets of keys) the options ask for. Returns None if the
    options do not set this number.
    """
    asked = plan.schema.settings.bucket.assigners or plan.sink.assigner_parallelism
    return asked or plan.sink.write_parallelism


def index_shares(plan: WritePlan, entries: HashEntries, touched: frozenset[bytes] | None) -> int:
    """Returns into how many parts the HASH index must be divided so that each part fits into `key-index-memory`. The
    keys are divided by their hash, and each task works with one part.

    The number follows from the index of the largest partition, or from the indexes of all partitions that the write is
    expected to touch (`touched`), whichever is larger. A write that touches more partitions is slower, because a task
    then reads the indexes again for each group of rows that comes.
    """
    keys = {p: sum(e.row_count for e in files) for p, files in entries.items()}
    together = sum(count for p, count in keys.items() if touched is None or p in touched)
    size = BYTES_PER_KEY * max(together, max(keys.values(), default=0))
    return max(1, -(-size // plan.sink.key_index_memory_bytes))


def _new_keys(plan: WritePlan, entries: HashEntries, parallelism: int, expected_rows: int) -> NewKeys:
    """Returns the object that gives buckets to new keys, for a write with about `expected_rows` rows for each partition
    that it touches.
    """
    rows = {p: rows_by_bucket(files) for p, files in entries.items()}

    def assigners(count: int) -> int:
        return assigner_count(
            count,
            parallelism=parallelism,
            rule=plan.allocation_rule,
            initial_buckets=plan.schema.settings.bucket.initial,
            expected_rows=expected_rows,
        )

    counts = {p: assigners(sum(buckets.values())) for p, buckets in rows.items()}
    return NewKeys(
        uri=plan.uri,
        schema=plan.schema,
        rule=plan.allocation_rule,
        entries=entries,
        rows=rows,
        assigners=Assigners(counts, assigners(0)),
        cache_bytes=plan.sink.key_index_memory_bytes,
    )
