"""Postponed rows: written as they came, unsorted, where no batch read sees them until a compaction moves them.

All rows of a key go through one writer number, made of the key's hash, and files of a writer follow each other in time,
so that any compactor that keeps the order of a writer's files applies the newest change of a key last.
Source: Paimon 2.0 PostponeBucketFileStoreWrite, PostponeBucketWriter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import Clock
from bucketline.state.format.data_file import FileSource
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.datafile.file_settings import Postponed
from bucketline.state.store.write.placing import Placing
from bucketline.state.store.write.run_buffer import Blob
from bucketline.state.store.write.sealed_runs import SealedRun, unseal


@dataclass(frozen=True, slots=True)
class LaterClock:
    """A clock whose local time is always after `since_ms`, however the machine's clock is set."""

    clock: Clock
    since_ms: int

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def local_ms(self) -> int:
        return max(self.clock.local_ms(), self.since_ms + 1)


@dataclass(frozen=True, slots=True)
class PostponedRows(Placing):
    """Writes rows to the postpone bucket under the name of `user`.

    Compactors put files in the order of their creation times, which are local time: it goes back once a year, and from
    one machine to the next. So the files of a partition say that they were made after `since_ms`, when the newest that
    waits was.
    """

    access: BucketAccess
    user: str
    since_ms: Mapping[bytes, int]

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[CommitMessage]:
        """The rows of one share of a partition's keys, in arrival order, as files of writer number `share`."""
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
