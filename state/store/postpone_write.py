"""Postponed rows: written as they came, unsorted, where no batch read sees them until a compaction deals them out.

All rows of a key go through one writer number, made of the key's hash, and files of a writer follow each other in time,
so that any compactor that keeps the order of a writer's files applies the newest change of a key last.
Source: Paimon 2.0 PostponeBucketFileStoreWrite, PostponeBucketWriter.
"""

from collections.abc import Sequence

import pyarrow as pa

from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import FileSource
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.bucket_access import BucketAccess
from bucketline.state.store.file_settings import Postponed
from bucketline.state.store.sealed_runs import SealedRun, unseal


def write_postponed(
    access: BucketAccess, user: str, share: int, runs: Sequence[tuple[SealedRun, pa.Buffer]]
) -> CommitMessage:
    """The rows of one share of a partition's keys, in arrival order, as files of writer number `share`."""
    partition = runs[0][0].partition
    bucket_id = (partition, POSTPONE_BUCKET)
    with access.writer(bucket_id, level=0, source=FileSource.APPEND, postponed=Postponed(user, share)) as writer:
        for _, blob in runs:
            for batch in unseal(blob):
                writer.write(batch)
        files = writer.close()
    return CommitMessage(partition, POSTPONE_BUCKET, POSTPONE_BUCKET, new_files=tuple(files))
