"""Writes rows of a postpone table directly to real buckets. The number of buckets of a new partition depends on its
rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketline.conf.table.table_settings import PostponeSettings
from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import World
from bucketline.state.store.write.grouping import FixedBuckets
from bucketline.state.store.write.placing import BucketNews, Placing
from bucketline.state.store.write.run_buffer import Blob, again
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan, unseal
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND


@dataclass(frozen=True, slots=True)
class CountedBuckets(Placing):
    """Decides how many buckets a partition gets, and sends its rows to these buckets. All rows of a partition come as
    one group.

    A partition in `counts` keeps its number of buckets. For a new partition the number is computed from
    `postpone.target-row-num-per-bucket` and the number of rows, including the rows that wait in the postpone bucket
    (`waiting`). If this option is not set, the number is computed from `postpone.target-size-per-bucket` and the size
    of the new rows. `seal` says how rows are sorted in their buckets.
    """

    seal: SealPlan
    counts: Mapping[bytes, int]
    waiting: Mapping[bytes, int]

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[SealedRun | BucketNews]:
        """Yields the rows as sealed runs (sorted, packed rows) of the buckets to which the rows go. Then yields a
        message for each of these buckets, with the number of buckets that the partition has. The message goes to the
        task that writes the bucket.
        """
        del share
        partition = runs[0][0].partition
        count = self.counts.get(partition)
        if count is None:
            count = _buckets_for(self.seal.schema.settings.postpone, runs, self.waiting.get(partition, 0))
        seal = replace(self.seal, grouping=FixedBuckets(count, self.seal.schema.settings.bucket.function))
        buckets: set[int] = set()
        for run in _sealed_again(seal, runs):
            buckets.add(run.bucket)
            yield run
        for bucket in sorted(buckets):
            yield BucketNews(partition, bucket, str(count).encode())

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        """Returns the commit message of a written bucket, completed with the number of buckets of its partition, which
        is in `payload`.
        """
        del world
        return replace(message, total_buckets=int(payload))


def _sealed_again(seal: SealPlan, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[SealedRun]:
    sealer = RunSealer(seal, origin=0)
    for _, blob in runs:
        for batch in unseal(blob):
            rows = pa.Table.from_batches([batch])
            accepted_rows = AcceptedRows(rows.drop_columns([SEQUENCE, VALUE_KIND]), rows[VALUE_KIND].combine_chunks())
            yield from sealer.add(accepted_rows)
    yield from sealer.finish()


def _buckets_for(settings: PostponeSettings, runs: Sequence[tuple[SealedRun, Blob]], waiting_rows: int) -> int:
    rows_each = settings.rows_per_bucket
    if rows_each is not None:
        wanted = -(-(waiting_rows + sum(run.row_count for run, _ in runs)) // rows_each)
    else:
        # Some runs of a task may be compressed while others are not, so the size of the rows is taken from the rows
        # themselves.
        row_bytes = sum(rows.nbytes for _, blob in runs for rows in _rows(blob))
        wanted = -(-row_bytes // settings.bytes_per_bucket)
    return max(1, min(wanted, settings.most_buckets_of_batch))


def _rows(blob: Blob) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a sealed run (sorted, packed rows) with the table's columns only, without sequence number and
    row kind. Afterwards the blob can be read again.
    """
    for batch in unseal(again(blob)):
        yield batch.drop_columns([SEQUENCE, VALUE_KIND])
