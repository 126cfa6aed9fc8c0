"""Compacts a table when a user asks for it. The compaction is planned on the newest snapshot, carried out by an engine,
and committed once.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from bucketline.conf.errors import OptionError
from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.engine.compaction import compact_buckets
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.table.cycle import Commit, carry_out
from bucketline.state.store.table.partition_choice import PartitionTest, choose_partitions
from bucketline.state.store.table.postpone_compact import compact_postponed
from bucketline.state.store.table.sort_compact import check_order, sort_partitions
from bucketline.state.store.write.bucket_writer import BucketWrite, CompactTrigger
from bucketline.state.store.write.table_at import TableAt, table_at

STRATEGIES = {"full": CompactTrigger.FULL, "minor": CompactTrigger.MINOR}


def compact_table(
    table: TableHandle,
    strategy: str = "full",
    partitions: Sequence[Mapping[str, object]] | None = None,
    *,
    order_by: Sequence[str] | None = None,
    order_strategy: str | None = None,
    engine: Engine = LOCAL_ENGINE,
    options: Mapping[str, str] | None = None,
) -> int | None:
    """Compacts the table and commits the result. Returns the id of the new snapshot; None if nothing was due. The
    arguments are those of `Table.compact`.

    `write-only` has no effect here, because this option only keeps writers from compacting after their writes. If files
    of the compaction were removed before its commit, the compaction is planned and carried out again.
    """

    def compact() -> int | None:
        table.io.require_publish()
        at = table_at(table, options or {})
        if order_by is None and order_strategy is None:
            trigger, chosen = trigger_of(strategy), choose_partitions(at.plan.schema, partitions)
            at = at.refreshed()
            compacted = partial(compact_now, at, trigger, chosen, engine=engine)
        else:
            at = at.refreshed()
            schema = at.plan.schema
            by = check_order(schema, order_by, order_strategy, strategy=strategy, path=table.path)
            chosen = choose_partitions(schema, partitions)
            compacted = partial(sort_partitions, at, chosen, order_by or (), by, engine=engine)

        def work(made: list[CommitMessage]) -> Commit | None:
            made += compacted()
            author = Author(table.world.ids.new_uuid())
            return None if all(m.is_empty for m in made) else Commit(Compact(tuple(made)), author)

        return carry_out(at, engine, work).snapshot_id

    return repeat_if_gone(compact)


def trigger_of(strategy: str) -> CompactTrigger:
    """Returns the trigger (which says what a writer compacts) for the name of a strategy. Raises OptionError for an
    unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise OptionError(f"compaction strategy {strategy!r} is neither 'full' nor 'minor'", key="strategy")
    return STRATEGIES[strategy]


def compact_now(
    at: TableAt, trigger: CompactTrigger, chosen: PartitionTest, *, engine: Engine
) -> tuple[CommitMessage, ...]:
    """Compacts the chosen partitions, and returns the commit messages. Nothing is committed."""
    write = at.plan.bucket_write(trigger)
    if at.plan.mode.postpones:
        return compact_postponed(at, write, chosen, engine=engine)
    return _compact_buckets(at, write, chosen, engine)


def _compact_buckets(
    at: TableAt, write: BucketWrite, chosen: PartitionTest, engine: Engine
) -> tuple[CommitMessage, ...]:
    states = at.bucket_states(write.trigger)
    work = [(b, states[b]) for b in at.due(write.trigger) if chosen(b[0])]
    return compact_buckets(engine, write, work)
