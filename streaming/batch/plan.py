"""One micro-batch as a plan: what tasks will do, fixed on the driver before any of them starts."""

import logging
from dataclasses import dataclass, replace

from bucketline.state.bucket.mode import BucketMode
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.cross_write import CrossWrite
from bucketline.state.store.write.new_keys import DynamicWrite
from bucketline.state.store.write.write_plan import HashEntries, WritePlan
from bucketline.state.store.write.write_session import WriteSession
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.tasks.assign_task import AssignTask
from bucketline.streaming.tasks.place_task import PlaceTask
from bucketline.streaming.tasks.route_task import Decode, RouteTask
from bucketline.streaming.tasks.write_task import WriteTask

_LOG = logging.getLogger(__name__)

BACKUP_EVERY = 10
"""Batches between two copies of the key index in the checkpoint folder."""

_MOST_REJECTS = 1 << 31
_KEEPS_SHARES = (BucketMode.CROSS_PARTITION, BucketMode.POSTPONE)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What a batch does. With `in_place` map tasks write the files themselves: append tables without buckets.

    `key_shares` is the number of shares that the next batch has to keep; None where it may choose anew.
    """

    identity: BatchIdentity
    trigger: CompactTrigger
    shard_count: int
    in_place: bool
    key_shares: int | None
    route: RouteTask
    place: PlaceTask | AssignTask | None
    write: WriteTask


def plan_batch(
    session: WriteSession,
    identity: BatchIdentity,
    *,
    user: str,
    parallelism: int,
    decode: Decode | None,
    expected_rows: int = 0,
    shares_before: int | None = None,
    touched: frozenset[bytes] | None = None,
    owes_full: bool = False,
) -> BatchPlan:
    """The plan of a batch on the table as the session sees it; `parallelism` is Spark's.

    `expected_rows` is a guess at what the batch brings to each partition it touches, from the last one: it decides how
    many tasks open dynamic buckets there.
    `shares_before` is `key_shares` of the batch before, `touched` are the partitions that it wrote, `owes_full` says
    that it lost its full compaction.
    """
    plan = replace(session.plan, touched=touched)
    trigger = plan.trigger(identity.batch_id)
    if owes_full and trigger is not CompactTrigger.NONE:
        trigger = CompactTrigger.FULL
    shares = _share_count(session, parallelism, shares_before)
    shards = _shard_count(session, parallelism, shares)
    entries = session.hash_entries()
    # More shares than tasks, where that many are needed for each to fit into memory.
    assigners = max(shards, plan.index_shares(entries))
    dynamic = plan.dynamic_write(entries, shards=assigners, expected_rows=expected_rows)
    unaware = plan.mode is BucketMode.UNAWARE
    cross = None
    if plan.mode is BucketMode.CROSS_PARTITION:
        backup = None if identity.checkpoint is None else f"{identity.checkpoint}/bucketline"
        turn = identity.batch_id % BACKUP_EVERY == BACKUP_EVERY - 1
        cross = plan.cross_write(session.view.snapshot, shares=shares, backup=backup, back_up_now=turn)
    return BatchPlan(
        identity=identity,
        trigger=trigger,
        shard_count=shards,
        in_place=unaware,
        key_shares=shares if plan.mode in _KEEPS_SHARES else None,
        route=RouteTask(
            plan.seal_plan(session.view, entries, dynamic, shares=shares),
            shards if cross is None else shares,
            decode,
            dynamic,
            min(plan.sink.bad_records_max, _MOST_REJECTS) + 1000,
        ),
        place=_place_task(plan, entries, dynamic, cross, shards),
        write=WriteTask(
            write=plan.postponing(plan.bucket_write(trigger, dynamic), user, session.view),
            states={} if unaware else session.bucket_states(trigger),
            buffer_bytes=plan.sink.merge_memory_bytes,
            local_directory=plan.sink.local_directory,
            shard_count=shards,
        ),
    )


def advise_shares(session: WriteSession, plan: BatchPlan, parallelism: int) -> bool:
    """Logs how to share the keys of a cross-partition table among more tasks, where half of Spark's have none to place;
    whether it did."""
    shares, most = plan.key_shares, min(parallelism, session.plan.allocation_rule.bucket_limit)
    if shares is None or asked_shares(session.plan) is not None or most < 2 * shares:
        return False
    _LOG.warning(
        "%s: the keys have %d shares, one a task, as in the batches before, though Spark runs %d tasks at a time; set "
        "'assigner-parallelism' to %d to share them anew, which builds the key index once more",
        session.table.path,
        shares,
        parallelism,
        most,
    )
    return True


def _place_task(
    plan: WritePlan, entries: HashEntries, dynamic: DynamicWrite | None, cross: CrossWrite | None, shards: int
) -> PlaceTask | AssignTask | None:
    """What stands between route and write: where keys are looked up by shares of them."""
    memory, directory = plan.sink.merge_memory_bytes, plan.sink.local_directory
    if cross is not None:
        return PlaceTask(cross, memory, directory, shards)
    assign = plan.assign_write(entries, dynamic)
    return None if assign is None else AssignTask(assign, memory, directory, shards)


def _shard_count(session: WriteSession, parallelism: int, shares: int) -> int:
    """How many write tasks share the buckets; with partitions, their number is not known before the rows are seen."""
    plan = session.plan
    wanted = plan.sink.write_parallelism or 2 * parallelism
    if plan.mode in (BucketMode.DYNAMIC, BucketMode.POSTPONE):
        return shares
    if plan.schema.partition_keys:
        return wanted
    return max(1, min(wanted, plan.total_buckets))


def _share_count(session: WriteSession, parallelism: int, before: int | None) -> int:
    """How many tasks share the keys, where a key's bucket is not a function of the key.

    Spark's parallelism changes whenever executors come and go, and another number costs a new key index. Rows that wait
    in the postpone bucket are in order only while a key keeps its writer.
    """
    plan = session.plan
    if plan.mode is BucketMode.POSTPONE:
        waiting = before is not None and any(b[1] == POSTPONE_BUCKET for b in session.view.buckets())
        return before if waiting and before else plan.sink.write_parallelism or parallelism
    wanted = asked_shares(plan) or (before if plan.mode in _KEEPS_SHARES else None) or parallelism
    # Each share opens buckets of its own, so there must be one for it.
    return min(wanted, plan.allocation_rule.bucket_limit)


def asked_shares(plan: WritePlan) -> int | None:
    """How many shares of the keys the options ask for; None when they leave it open."""
    assigners = plan.schema.settings.bucket.assigners or plan.sink.assigner_parallelism
    return assigners or plan.sink.write_parallelism
