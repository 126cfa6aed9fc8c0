"""Writes postponed rows in order of arrival, unsorted, to the postpone bucket. Batch reads do not see this bucket until
a compaction moves its rows.

All rows of a key have the same writer number, which is made of the key's hash, and the files of a writer are ordered by
time. So any compactor that keeps the order of a writer's files applies the newest change of a key last.

Source: Paimon 2.0 PostponeBucketFileStoreWrite, PostponeBucketWriter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import LaterClock
from bucketline.state.format.data_file import FileSource
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.lsm.merge.feeds import Feeds, FeedSpans, MixedKey, first_mixed_row, mixed_key
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.datafile.file_settings import Postponed
from bucketline.state.store.write.placing import Placing
from bucketline.state.store.write.run_buffer import Blob, again
from bucketline.state.store.write.sealed_runs import SealedRun, unseal
from bucketline.state.types.arrow import SEQUENCE
from bucketline.state.types.order import normalized_keys

MOST_KEY_BYTES = 64 << 20
"""How many bytes of a share's keys are checked for rows of one key that came from two feeds (topic partitions). All
checked keys are in memory at the same time, because rows are not sorted here. Later rows of the share are not checked.
"""


@dataclass(frozen=True, slots=True)
class PostponedRows(Placing):
    """Writes rows to the postpone bucket; the files are named after the commit user `user`.

    Compactors order files by creation time, which is a local time: local time goes back once a year, and differs
    between machines. So the new files of a partition get creation times after `since_ms`, which is the creation time of
    the partition's newest file that waits.
    """

    access: BucketAccess
    user: str
    since_ms: Mapping[bytes, int]

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[CommitMessage | MixedKey]:
        """Writes rows of one partition, in order of arrival, to new files of the postpone bucket, and yields the
        commit message. `share` is the number of this task's part of the keys, and becomes part of the file names. If
        the order between feeds (topic partitions) matters, first yields a key that has rows of several feeds.
        """
        mixed = _mixed(self.access.schema, runs)
        if mixed is not None:
            yield mixed
        partition = runs[0][0].partition
        bucket_id = (partition, POSTPONE_BUCKET)
        access, since_ms = self.access, self.since_ms.get(partition)
        if since_ms is not None:
            access = replace(access, world=replace(access.world, clock=LaterClock(access.world.clock, since_ms)))
        postponed = Postponed(self.user, share)
        with access.writer(bucket_id, level=0, source=FileSource.APPEND, postponed=postponed) as writer:
            for _, blob in runs:
                for batch in unseal(blob):
                    writer.write(batch)
            files = writer.close()
        yield CommitMessage(partition, POSTPONE_BUCKET, POSTPONE_BUCKET, new_files=tuple(files))


def _mixed(schema: TableSchema, runs: Sequence[tuple[SealedRun, Blob]]) -> MixedKey | None:
    """Looks at the first rows of the runs, until their keys have `MOST_KEY_BYTES` bytes. Returns a key whose rows came
    from several feeds (topic partitions); None if there is no such key among these rows. The runs can be read again
    afterwards.
    """
    if len({feed for run, _ in runs if run.feeds for feed in FeedSpans.from_bytes(run.feeds).feeds.tolist()}) < 2:
        return None
    fields = schema.select(schema.trimmed_primary_key)
    keys, feeds, size = list[pa.Array](), list[Feeds](), 0
    for run, batch in _batches(runs):
        if size > MOST_KEY_BYTES:
            break
        keys.append(normalized_keys([batch[f.name] for f in fields], [f.type for f in fields]))
        feeds.append(FeedSpans.from_bytes(run.feeds).of_ranks(batch[SEQUENCE].to_numpy()))
        size += keys[-1].nbytes
    numbers = np.asarray(pa.concat_arrays(keys).dictionary_encode().indices).astype(np.int64)
    found = first_mixed_row(numbers, np.concatenate(feeds))
    if found is None:
        return None
    row, pair = found
    for _, batch in _batches(runs):
        if row < batch.num_rows:
            return mixed_key(batch, row, schema.primary_keys, pair)
        row -= batch.num_rows
    raise AssertionError("unreachable: one of the runs has the row")


def _batches(runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[tuple[SealedRun, pa.RecordBatch]]:
    for run, blob in runs:
        for batch in unseal(again(blob)):
            yield run, batch
