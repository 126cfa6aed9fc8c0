"""Compaction asked for by hand, in this process: plan on the driver's view, compact bucket by bucket, commit once."""

from collections.abc import Callable, Mapping, Sequence

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.mode import BucketMode, bucket_mode
from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Unknown
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS, Clock, IdSource
from bucketline.state.errors import CommitConflictError, FilesGoneError
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.commit.commit_proof import FILES_GONE
from bucketline.state.store.commit.repeat import repeat_if_gone
from bucketline.state.store.table.partition_choice import choose_partitions
from bucketline.state.store.table.postpone_compact import PostponeWork, plan_postponed
from bucketline.state.store.table.postpone_local import compact_postponed
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, CompactTrigger, write_bucket
from bucketline.state.store.write.write_session import WriteSession

STRATEGIES = {"full": CompactTrigger.FULL, "minor": CompactTrigger.MINOR}


def compact_table(
    table: TableHandle,
    strategy: str = "full",
    partitions: Sequence[Mapping[str, object]] | None = None,
    *,
    options: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> int | None:
    """Compacts and commits; the snapshot's id, None when nothing was due. See `Table.compact`.

    `watch` is told how many buckets are done, and of how many, before the first and after each. A compaction whose
    files were removed before they were committed is planned and done again.
    """
    if bucket_mode(table.table_schema) is BucketMode.POSTPONE:
        return repeat_if_gone(lambda: _compact_postpone_table(table, strategy, partitions, options or {}, clock, ids))
    return repeat_if_gone(lambda: _compact_buckets(table, strategy, partitions, options or {}, clock, ids, watch))


def _compact_buckets(
    table: TableHandle,
    strategy: str,
    partitions: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, str],
    clock: Clock,
    ids: IdSource,
    watch: Callable[[int, int], None],
) -> int | None:
    session, write, work = plan_compaction(table, strategy, partitions, options=options, clock=clock, ids=ids)
    return commit_compaction(session, compact_buckets(write, work, watch), user=ids.new_uuid())


def compact_buckets(
    write: BucketWrite,
    work: Sequence[tuple[BucketId, BucketState]],
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> list[CommitMessage]:
    """Compacts buckets one after the other; an error leaves none of the new files behind. `watch` as above."""
    messages: list[CommitMessage] = []
    watch(0, len(work))
    try:
        for bucket_id, state in work:
            messages.append(write_bucket(write, bucket_id, state, []))
            watch(len(messages), len(work))
    except BaseException:
        for message in messages:
            write.access.delete_own(message.made_files, (message.partition, message.bucket))
        raise
    return messages


def plan_postpone_table(
    table: TableHandle,
    strategy: str,
    partitions: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, str],
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
    *,
    new_buckets: int | None = None,
) -> tuple[WriteSession, PostponeWork]:
    """As `plan_compaction`, of a postpone table; `new_buckets` is the bucket count of partitions that have none yet."""
    trigger = _trigger(strategy)
    session = WriteSession(table.uri, options, table=table, clock=clock, ids=ids)
    chosen = choose_partitions(session.plan.schema, partitions)
    session.refresh()
    write = session.plan.bucket_write(trigger, clock=clock, ids=ids)
    return session, plan_postponed(
        session.plan, session.view, write, chosen, new_buckets=new_buckets, vectors=session.deletion_entries()
    )


def _compact_postpone_table(
    table: TableHandle,
    strategy: str,
    partitions: Sequence[Mapping[str, object]] | None,
    options: Mapping[str, str],
    clock: Clock,
    ids: IdSource,
) -> int | None:
    session, work = plan_postpone_table(table, strategy, partitions, options, clock, ids)
    if work.is_empty:
        return None
    sink = session.plan.sink
    messages = compact_postponed(work, memory_bytes=sink.merge_memory_bytes, directory=sink.local_directory)
    return commit_compaction(session, messages, user=ids.new_uuid())


def _trigger(strategy: str) -> CompactTrigger:
    if strategy not in STRATEGIES:
        raise OptionError(f"compaction strategy {strategy!r} is neither 'full' nor 'minor'", key="strategy")
    return STRATEGIES[strategy]


def plan_compaction(
    table: TableHandle,
    strategy: str,
    partitions: Sequence[Mapping[str, object]] | None,
    *,
    options: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    ids: IdSource = SYSTEM_IDS,
) -> tuple[WriteSession, BucketWrite, list[tuple[BucketId, BucketState]]]:
    """What is due: the session, how buckets are compacted, and the buckets with their live files.

    `write-only` is not asked: it keeps writers from compacting, and this is the compaction it leaves to others.
    Raises OptionError for an unknown strategy or partition column.
    """
    trigger = _trigger(strategy)
    session = WriteSession(table.uri, options or {}, table=table, clock=clock, ids=ids)
    chosen = choose_partitions(session.plan.schema, partitions)
    session.refresh()
    write = session.plan.bucket_write(trigger, clock=clock, ids=ids)
    states = session.bucket_states(trigger)
    return session, write, [(b, states[b]) for b in session.due(trigger) if chosen(b[0])]


def commit_compaction(session: WriteSession, messages: Sequence[CommitMessage], *, user: str) -> int | None:
    """Commits compactions on their own.

    Raises CommitConflictError when another one was faster, CommitOutcomeUnknownError when nobody knows, StorageError.
    """
    if all(m.is_empty for m in messages):
        return None
    done = session.commit(messages, user=user, identifier=BATCH_COMMIT_IDENTIFIER, kind=CommitKind.COMPACT)
    lost = done.dropped
    if isinstance(lost, Conflict):
        kind = FilesGoneError if lost.rule == FILES_GONE else CommitConflictError
        raise kind(
            f"the compaction was lost: {lost.message}; no row is lost, run it again", rule=lost.rule, **lost.fields
        )
    if lost is not None:
        raise lost.error() if isinstance(lost, Unknown) else lost
    return done.snapshots[-1].id
