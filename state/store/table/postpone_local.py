"""Compaction and batch writes of postpone tables in this process."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from bucketline.conf.table.table_settings import PostponeSettings
from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.table.postpone_compact import PostponeWork
from bucketline.state.store.table.rebucket import as_one_change, postponed_runs
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, write_bucket
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.run_buffer import Blob, RunBuffer
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, unseal
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_session import WriteSession
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND


def compact_postponed(work: PostponeWork, *, memory_bytes: int, directory: str | None) -> list[CommitMessage]:
    """The messages of one COMPACT snapshot. An error leaves none of the new files behind."""
    access = work.write.access
    messages: list[CommitMessage] = []
    try:
        with RunBuffer(budget_bytes=memory_bytes, directory=directory) as buffer:
            for source in work.sources:
                for run in postponed_runs(access, source, work.seal):
                    buffer.add(run)
            for message in write_buckets(work.write, buffer, work.states):
                messages.append(as_one_change(message, access.delete_own))
        busy = {(m.partition, m.bucket) for m in messages}
        for bucket_id in work.idle:
            if bucket_id not in busy:
                messages.append(write_bucket(work.write, bucket_id, work.states[bucket_id], []))
    except BaseException:
        for message in messages:
            access.delete_own(message.made_files, (message.partition, message.bucket))
        raise
    return [*messages, *work.retired]


def write_fixed(
    session: WriteSession, write: BucketWrite, buffer: RunBuffer, states: Mapping[BucketId, BucketState]
) -> Iterator[CommitMessage]:
    """Rows of a batch write to real buckets of a postpone table; `buffer` holds them by partition, in arrival order.

    A partition keeps its bucket count. A new one gets as many as its rows ask for:
    `postpone.target-row-num-per-bucket`, those that wait counted as well, else `postpone.target-size-per-bucket`.
    """
    plan = session.plan
    totals = {p: t for p, t in session.view.totals().items() if t > 0}
    for partition, group in buffer.buckets():
        assert share_of_group(group) is not None, "rows come by partition, not by bucket"
        runs = buffer.take((partition, group))
        if partition not in totals:
            waiting = sum(f.row_count for f in session.view.files((partition, POSTPONE_BUCKET)))
            totals[partition] = _buckets_for(plan.schema.settings.postpone, runs, waiting)
        rebucketing = plan.rebucket_plan({partition: totals[partition]})
        with RunBuffer(budget_bytes=plan.sink.merge_memory_bytes, directory=plan.sink.local_directory) as rebucketed:
            sealer = RunSealer(rebucketing, origin=0)
            for _, blob in runs:
                for batch in unseal(blob):
                    rows = pa.Table.from_batches([batch])
                    accepted_rows = AcceptedRows(
                        rows.drop_columns([SEQUENCE, VALUE_KIND]), rows[VALUE_KIND].combine_chunks()
                    )
                    for run in sealer.add(accepted_rows):
                        rebucketed.add(run)
            for run in sealer.finish():
                rebucketed.add(run)
            yield from write_buckets(plan.with_totals(write, totals), rebucketed, states)


def _buckets_for(settings: PostponeSettings, runs: Sequence[tuple[SealedRun, Blob]], waiting_rows: int) -> int:
    rows_each = settings.rows_per_bucket
    if rows_each is not None:
        wanted = -(-(waiting_rows + sum(run.row_count for run, _ in runs)) // rows_each)
    else:
        # Blobs are compressed; rows are taken to be three times as large.
        wanted = -(-3 * sum(blob.size for _, blob in runs) // settings.bytes_per_bucket)
    return max(1, min(int(wanted), settings.most_buckets_of_batch))
