"""Finds the buckets of the keys of a table with dynamic buckets, if the HASH index of the table is larger than memory.

All rows are grouped by the hash of their key, so a task needs only the part of the index that has the hashes of its
group. Then each row goes to the task that writes its bucket, and so do the hashes of keys that the index did not have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.allocation import Int32s, Ownership
from bucketline.state.bucket.dynamic import KnownHashes
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import World
from bucketline.state.store.write.new_keys import NewKeys
from bucketline.state.store.write.placing import BucketNews, Placing
from bucketline.state.store.write.run_buffer import Blob, again
from bucketline.state.store.write.sealed_runs import SealedRun, unseal
from bucketline.state.types.hashes.distinct import distinct

BYTES_PER_KEY = 6
"""The memory that one key of the index takes, in bytes: its hash and its bucket."""


@dataclass(frozen=True, slots=True)
class IndexedKeys(Placing):
    """Finds the buckets of keys that are in the HASH index, and of new keys. `new` decides about the buckets of new
    keys.
    """

    new: NewKeys

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[SealedRun | BucketNews]:
        """Yields the rows of a share (the keys that one task handles) as sorted runs of the buckets to which the rows
        go. Then yields the hashes of each bucket's new keys (see `NewKeys.assigned`). Raises CorruptFileError if the
        index cannot be read, OptionError if no bucket is left to open.
        """
        partition = runs[0][0].partition
        own = self.new.assigners.ownership(partition, share)
        return self.new.assigned(self._known(partition, own, runs), share, runs)

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        """Returns the message with an additional HASH file that holds the bucket's new keys. `payload` are the hashes
        of these keys, as `place` has encoded them.
        """
        return self.new.with_news(message, payload, world)

    def _known(self, partition: bytes, own: Ownership, runs: Sequence[tuple[SealedRun, Blob]]) -> KnownHashes:
        """Returns the known buckets of the keys in one share of a partition (the group of keys that one task handles).
        `own` says which key hashes belong to the share. If they are too many for memory, returns only the hashes that
        occur in the sealed runs.
        """
        new = self.new
        entries = new.entries.get(partition, ())
        if BYTES_PER_KEY * sum(e.row_count for e in entries) <= new.cache_bytes * own.assigners:
            return new.store.known(entries, hashes_of=own)
        asked: Int32s = np.empty(0, np.int32)
        for _, blob in runs:
            for batch in unseal(again(blob)):
                asked = distinct(asked, new.hashes(pa.Table.from_batches([batch])))
        return new.store.known_among(entries, asked)
