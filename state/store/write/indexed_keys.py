"""All keys of a dynamic table whose HASH index is larger than memory: rows → rows with buckets, share by share.

Rows come by the hash of their key, known keys and new ones alike, so that a task holds its share of the index and no
more; from there they go to the tasks that own their buckets, and so do the hashes of keys that are new.
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
"""What a key of the index takes in memory: its hash and its bucket."""


@dataclass(frozen=True, slots=True)
class IndexedKeys(Placing):
    """How known and new keys get their buckets; `new` says it of the new ones."""

    new: NewKeys

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[SealedRun | BucketNews]:
        """As `NewKeys.assigned`. Raises CorruptFileError, too, for an index that cannot be read."""
        partition = runs[0][0].partition
        own = self.new.assigners.ownership(partition, share)
        return self.new.assigned(self._known(partition, own, runs), share, runs)

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        """As for new keys."""
        return self.new.with_news(message, payload, world)

    def _known(self, partition: bytes, own: Ownership, runs: Sequence[tuple[SealedRun, Blob]]) -> KnownHashes:
        """What the index says of the share's hashes; only of those in the runs, where the whole share is too large."""
        new = self.new
        entries = new.entries.get(partition, ())
        if BYTES_PER_KEY * sum(e.row_count for e in entries) <= new.cache_bytes * own.assigners:
            return new.store.known(entries, hashes_of=own)
        asked: Int32s = np.empty(0, np.int32)
        for _, blob in runs:
            for batch in unseal(again(blob)):
                asked = distinct(asked, new.hashes(pa.Table.from_batches([batch])))
        return new.store.known_among(entries, asked)
