"""Rescale: the current rows of partitions, moved to another number of buckets, replace what was there.

Postponed rows are neither read nor taken away; other partitions are not touched. One OVERWRITE snapshot, planned on the
snapshot that was read: whoever changes one of the partitions meanwhile makes it a conflict.
Source: Paimon 2.0 RescaleProcedure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bucketline.conf.errors import OptionError
from bucketline.conf.table.changelog_options import CHANGELOG_PRODUCER
from bucketline.conf.table.table_options import BUCKET
from bucketline.state.bucket.mode import BucketMode, bucket_mode
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.schema_change import SetOption
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS, Clock, IdSource
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.catalog.alter import alter_table
from bucketline.state.store.catalog.live_files import BucketId, TableView
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.table.partition_choice import PartitionTest, choose_partitions
from bucketline.state.store.table.rebucket import Source, as_one_change, current_runs
from bucketline.state.store.write.bucket_writer import BucketWrite, CompactTrigger
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import SealPlan
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_session import WriteSession


@dataclass(frozen=True, slots=True)
class RescaleWork:
    """What a rescale does: whose rows are moved, how they are written, and the partitions that are replaced."""

    sources: tuple[Source, ...]
    seal: SealPlan
    write: BucketWrite
    partitions: frozenset[bytes]


def rescale_table(
    table: TableHandle,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None = None,
    *,
    options: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
) -> int | None:
    """Rescales in this process; the snapshot's id, None when nothing is to be done. See `Table.rescale`."""
    return repeat_if_gone(lambda: _rescale_once(table, bucket_num, partitions, options or {}, clock, ids))


def _rescale_once(
    table: TableHandle,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, str],
    clock: Clock,
    ids: IdSource,
) -> int | None:
    session, work = plan_rescale(table, bucket_num, partitions, options=options, clock=clock)
    messages: list[CommitMessage] = []
    sink = session.plan.sink
    try:
        with RunBuffer(budget_bytes=sink.merge_memory_bytes, directory=sink.local_directory) as buffer:
            for source in work.sources:
                runs = current_runs(work.write.access, source, work.seal, memory_bytes=work.write.compact_memory_bytes)
                for run in runs:
                    buffer.add(run)
            for message in write_buckets(work.write, buffer, {}):
                messages.append(as_new_files(message, work.write))
    except BaseException:
        for message in messages:
            work.write.access.delete_own(message.made_files, (message.partition, message.bucket))
        raise
    return commit_rescale(table, session, work, messages, bucket_num, partitions is None, user=ids.new_uuid())


def plan_rescale(
    table: TableHandle,
    bucket_num: int,
    partitions: Sequence[Mapping[str, object]] | None,
    *,
    options: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[WriteSession, RescaleWork]:
    """What is to be done, on the newest snapshot.

    Raises OptionError for a number below 1 or a column that is no partition column, UnsupportedTableError for tables
    whose buckets are not a function of the key.
    """
    mode = bucket_mode(table.table_schema)
    if bucket_num < 1:
        raise OptionError(
            f"a table cannot be rescaled to {bucket_num} buckets; give a number above 0", key="bucket-num"
        )
    if mode not in (BucketMode.FIXED, BucketMode.POSTPONE) or not table.primary_key:
        raise UnsupportedTableError(
            f"{table.path} cannot be rescaled: its buckets are {mode.value}, and only fixed and postponed buckets of "
            "tables with a primary key are; dynamic buckets grow by themselves",
            mode=mode.value,
        )
    session = WriteSession(table.uri, options or {}, table=table, clock=clock)
    chosen = choose_partitions(session.plan.schema, partitions)
    session.refresh()
    view = session.view
    real = _buckets_to_move(view, chosen, None if partitions is not None else bucket_num)
    vectors = session.deletion_entries()
    sources = tuple(Source(b, view.files(b), origin, vectors.get(b, ())) for origin, b in enumerate(real))
    totals = {b[0]: bucket_num for b in real}
    write = session.plan.with_totals(session.plan.bucket_write(CompactTrigger.FULL, clock=clock), totals)
    # Rows stay what they are, so there is nothing to log.
    schema = replace(write.access.schema, options={**write.access.schema.options, CHANGELOG_PRODUCER.key: "none"})
    write = replace(write, access=replace(write.access, schema=schema))
    return session, RescaleWork(sources, session.plan.rebucket_plan(totals), write, frozenset(totals))


def _buckets_to_move(view: TableView, chosen: PartitionTest, settled: int | None) -> list[BucketId]:
    """All real buckets of the partitions, but of those that are wholly in `settled` buckets: a partition moves as one.

    Where a writer has added buckets of another count, a key may be in two: those written last count as newer.
    """
    real = [b for b in view.buckets() if b[1] >= 0 and chosen(b[0])]
    moving = {b[0] for b in real if view.total_of_bucket(b) != settled}
    newest = {b: max(f.creation_time_ms or 0 for f in view.files(b)) for b in real}
    return sorted((b for b in real if b[0] in moving), key=lambda b: (b[0], newest[b], b[1]))


def as_new_files(message: CommitMessage, write: BucketWrite) -> CommitMessage:
    """What a written bucket holds in the end, all of it new."""
    done = as_one_change(message, write.access.delete_own)
    return replace(done, new_files=done.compact_after, compact_before=(), compact_after=())


def commit_rescale(
    table: TableHandle,
    session: WriteSession,
    work: RescaleWork,
    messages: Sequence[CommitMessage],
    bucket_num: int,
    is_whole: bool,
    *,
    user: str,
) -> int | None:
    """Replaces the partitions; a fixed table that was rescaled as a whole writes with that many buckets from now on."""
    snapshot_id = None
    if work.partitions:
        done = session.overwrite(messages, user=user, partitions=work.partitions, bucket_num=bucket_num)
        snapshot_id = done.snapshots[-1].id
    if is_whole and session.plan.mode is BucketMode.FIXED and session.plan.total_buckets != bucket_num:
        alter_table(table, [SetOption(BUCKET.key, str(bucket_num))])
    return snapshot_id
