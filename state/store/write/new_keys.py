"""Gives buckets to the new keys of dynamic tables, which are the keys that the HASH index does not have, and adds these
keys to the index.

The new keys of a partition are divided among tasks (`assigners`) by hash; the part of one task is called a share. Task
s of n tasks opens and fills only the buckets s, s + n, s + 2n and so on. Rows of known keys in these buckets come to
the same task, so each bucket has one writer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.allocation import AllocationRule, Assigners, Int32s
from bucketline.state.bucket.dynamic import NOTHING_KNOWN, DynamicAssigner, KnownHashes
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import World
from bucketline.state.format.index.hash_index import decode_hash_index, encode_hash_index
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.index.hash_index_store import HashIndexStore
from bucketline.state.store.write.grouping import HashEntries, hash_index_store
from bucketline.state.store.write.placing import BucketNews, Placing
from bucketline.state.store.write.run_buffer import Blob, again
from bucketline.state.store.write.sealed_runs import SealedRun, seal, unseal
from bucketline.state.types.binary_row import hash_rows
from bucketline.state.types.hashes.distinct import distinct


@dataclass(frozen=True, slots=True)
class NewKeys(Placing):
    """Gives buckets to new keys. All fields are plain values, so the object can be sent to tasks.

    `entries` are the HASH files of each partition. `rows` holds, for each partition, the number of keys in each bucket
    according to these files.
    """

    uri: str
    schema: TableSchema
    rule: AllocationRule
    entries: HashEntries
    rows: Mapping[bytes, Mapping[int, int]]
    assigners: Assigners
    cache_bytes: int

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[SealedRun | BucketNews]:
        """Yields the rows of one share of the keys (the keys that one task owns, by their hash) as sealed runs, each
        with the rows of one bucket. Then yields the new hashes of each bucket. Call this method only for keys that have
        no bucket yet; see `assigned`.
        """
        return self.assigned(NOTHING_KNOWN, share, runs)

    def assigned(
        self, known: KnownHashes, share: int, runs: Sequence[tuple[SealedRun, Blob]]
    ) -> Iterator[SealedRun | BucketNews]:
        """Finds the buckets of the rows in one share of a partition (the group of keys that one task handles). Yields
        the rows as runs that each belong to one bucket, then for each bucket the hashes of its new keys. `known` holds
        the hashes of the share that already have a bucket. The runs stay sorted, and keep their origin, flush number
        and arrival ranks.

        Raises OptionError if a new key needs a bucket and no further bucket may be opened.
        """
        partition = runs[0][0].partition
        own = self.assigners.ownership(partition, share)
        assigner = DynamicAssigner.starting(known, own, self.rule, rows=self.rows.get(partition, {}))
        # Each assignment makes a larger set of hashes, so keeping a reference to the first set would waste memory.
        del known
        new_hashes: dict[int, list[Int32s]] = {}
        for run, blob in runs:
            rows = unseal(again(blob)).read_all()
            assignment, assigner = assigner.assign(self.hashes(rows))
            for bucket, hashes in assignment.new_by_bucket().items():
                new_hashes.setdefault(bucket, []).append(hashes)
            for bucket, part in _by_bucket(rows, assignment.buckets):
                yield replace(run, bucket=bucket, row_count=part.num_rows, blob=seal(part))
        for bucket, parts in new_hashes.items():
            yield BucketNews(partition, bucket, encode_hash_index(np.concatenate(parts)))

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        """Returns the message with an additional HASH file that holds the bucket's new keys. `payload` are the hashes
        of these keys, as `assigned` has encoded them.
        """
        entries = self.entries.get(message.partition, ())
        before = next((e for e in entries if e.bucket == message.bucket), None)
        change = self.store.grow(message.partition, message.bucket, before, decode_hash_index(payload), world)
        if change is None:
            return message
        replaced = () if change.replaced is None else (change.replaced,)
        return replace(message, new_index_files=(change.new,), deleted_index_files=replaced)

    @property
    def store(self) -> HashIndexStore:
        """Returns access to the HASH files of the table."""
        return hash_index_store(self.uri, self.schema, self.cache_bytes)

    def hashes(self, rows: pa.Table) -> Int32s:
        """Returns the hash of each row's trimmed primary key."""
        fields = self.schema.select(self.schema.trimmed_primary_key)
        return np.asarray(hash_rows([rows[f.name] for f in fields], [f.type for f in fields]))


def _by_bucket(rows: pa.Table, buckets: Int32s) -> Iterator[tuple[int, pa.Table]]:
    """Yields each bucket with its rows, which keep their order. `buckets` holds the bucket of each row."""
    used = distinct(buckets)
    for bucket in used.tolist():
        yield bucket, rows if len(used) == 1 else rows.take(np.flatnonzero(buckets == bucket))
