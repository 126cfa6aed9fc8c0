"""Rescales partitions: their current rows are written into another number of buckets, and the new buckets replace the
old buckets.

Postponed rows are neither read nor removed, and other partitions stay unchanged. A rescale is one OVERWRITE snapshot,
planned on the snapshot that was read. A rescale conflicts with any later commit that has changed one of the partitions.

Source: Paimon 2.0 RescaleProcedure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from bucketline.conf.errors import OptionError
from bucketline.conf.table.changelog_options import CHANGELOG_PRODUCER
from bucketline.conf.table.table_options import BUCKET, MAX_BUCKET_COUNT
from bucketline.state.bucket.mode import bucket_mode
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Replace
from bucketline.state.commit.live_files import BucketId, LiveFiles
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.schema_change import SetOption
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.catalog.alter import alter_table
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.engine import Engine, Parts
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.engine.table_rows import CurrentRows
from bucketline.state.store.table.cycle import Commit, carry_out
from bucketline.state.store.table.partition_choice import PartitionTest, choose_partitions
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.expired_base import expiry_as_conflict
from bucketline.state.store.write.modes import mode_of
from bucketline.state.store.write.stages import BucketResult, Stages, TaskCounts, WriteStage
from bucketline.state.store.write.table_at import TableAt, table_at
from bucketline.state.store.write.write_plan import ONE_WORKER, Workers


def rescale_table(
    table: TableHandle,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None = None,
    *,
    engine: Engine = LOCAL_ENGINE,
    options: Mapping[str, str] | None = None,
) -> int | None:
    """Rescales partitions to `bucket_num` buckets. Returns the id of the new snapshot; None if nothing is to be done.
    See `Table.rescale`.
    """

    def rescale() -> int | None:
        at, stages = plan_rescale(table, bucket_num, partitions, workers=engine.workers, options=options)
        snapshot_id = carry_out(at, engine, partial(rescaled, at, engine, stages)).snapshot_id
        total = at.plan.total_buckets
        if partitions is None and total > 0 and total != bucket_num:
            # If all partitions of a fixed table were rescaled, new partitions get the new number of buckets as well.
            alter_table(table, [SetOption(BUCKET.key, str(bucket_num))])
            # A writer may have begun a partition with the old number of buckets: after the rescale was planned, or
            # between its commit and this change.
            own = 0 if snapshot_id is None else 1
            if (table.snapshot_store.latest_id() or 0) != at.snapshot_id + own:
                snapshot_id = rescale() or snapshot_id
        return snapshot_id

    return repeat_if_gone(rescale)


def plan_rescale(
    table: TableHandle,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None,
    *,
    workers: Workers = ONE_WORKER,
    options: Mapping[str, str] | None = None,
) -> tuple[TableAt, Stages[Parts]]:
    """Returns the table at its newest snapshot, and the stages that rescale the table. Each rescaled partition gets the
    new number of buckets.

    Raises OptionError for an impossible number of buckets, and for a column that is not a partition column. Raises
    UnsupportedTableError for tables in which the key does not determine the bucket.
    """
    if type(bucket_num) is not int or not 1 <= bucket_num <= MAX_BUCKET_COUNT:
        raise OptionError(
            f"a table cannot be rescaled: {bucket_num!r} is not a number of buckets; give a whole number from 1 to "
            f"{MAX_BUCKET_COUNT}",
            key="bucket-num",
        )
    if not mode_of(table.table_schema).counts_buckets:
        mode = bucket_mode(table.table_schema).value
        raise UnsupportedTableError(
            f"{table.path} cannot be rescaled: its buckets are {mode}. Only tables with fixed or postponed "
            "buckets can be rescaled; the number of dynamic buckets grows by itself",
            mode=mode,
        )
    table.io.require_publish()
    at = table_at(table, options or {})
    chosen = choose_partitions(at.plan.schema, partitions)
    at = at.refreshed()
    with expiry_as_conflict(at):
        vectors = at.deletion_entries()
    plan, view = at.plan, at.view
    real = _buckets_to_move(view, chosen, None if partitions is not None else bucket_num)
    counts = {b[0]: bucket_num for b in real}
    write = replace(plan.bucket_write(CompactTrigger.FULL), counts=plan.counts(counts), moves_rows=True)
    # A rescale does not change rows, so no changelog is written.
    schema = replace(write.access.schema, options={**write.access.schema.options, CHANGELOG_PRODUCER.key: "none"})
    access = replace(write.access, schema=schema)
    parts = [
        CurrentRows(access, b, view.files(b), origin, vectors.get(b, ()), write.compact_memory_bytes)
        for origin, b in enumerate(real)
    ]
    return at, Stages(
        source=Parts(parts),
        seal=plan.moving_seal_plan(counts),
        write=WriteStage(replace(write, access=access), result=BucketResult.NEW_FILES),
        tasks=TaskCounts(workers.tasks(2 * workers.parallelism)),
    )


def _buckets_to_move(view: LiveFiles, chosen: PartitionTest, settled: int | None) -> list[BucketId]:
    """Returns the buckets of the chosen partitions, without the postpone buckets. A partition is left out if all of its
    files already record the bucket count `settled`.

    A key can be in two buckets if a writer has added buckets with another count. So the buckets that were written last
    come last in the list, and their rows count as newer.
    """
    real = [b for b in view.buckets() if b[1] >= 0 and chosen(b[0])]
    moving = {b[0] for b in real if view.total_of_bucket(b) != settled}
    newest = {b: max(f.creation_time_ms or 0 for f in view.files(b)) for b in real}
    return sorted((b for b in real if b[0] in moving), key=lambda b: (b[0], newest[b], b[1]))


def rescaled(at: TableAt, engine: Engine, stages: Stages[Parts], made: list[CommitMessage]) -> Commit | None:
    """Runs the stages, which write the rows of partitions into new buckets, and adds the commit messages of the run to
    `made`. Returns the commit that replaces all files of these partitions by the new files; None if there are no
    partitions to rescale.
    """
    replaced = frozenset(stages.write.write.counts.others)
    if not replaced:
        return None
    made += engine.run(stages).messages if stages.source.parts else ()
    user = at.table.world.ids.new_uuid()
    return Commit(Replace(tuple(made), replaced.__contains__, moves_rows=True), Author(user))
