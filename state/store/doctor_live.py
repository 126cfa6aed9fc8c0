"""The live files of one state after another, by bucket, and whether they lie in the tree rightly.

Source: Paimon 2.0 Levels, ConflictDetection.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import EntryIdentity, FileKind, ManifestEntry
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.doctor_problem import Problem
from bucketline.state.types.order import key_order

Bucket = tuple[bytes, int]
"""A serialized partition and a bucket of it."""


@dataclass(frozen=True, slots=True)
class Share:
    """One of `count` parts that the buckets of a table are looked at in, from 0 on."""

    number: int = 0
    count: int = 1

    def holds(self, partition: bytes, bucket: int) -> bool:
        """Whether a bucket is in this part."""
        return self.count == 1 or zlib.crc32(partition, bucket & 0xFFFFFFFF) % self.count == self.number


class LiveFiles:
    """The live files of those buckets that are in a share. Memory: the entries of one state, in that share."""

    def __init__(self, schema: TableSchema, share: Share) -> None:
        self._share = share
        self._order = None
        if schema.primary_keys:
            self._order = key_order([f.type for f in schema.select(schema.trimmed_primary_key)])
        self._buckets: dict[Bucket, dict[EntryIdentity, ManifestEntry]] = {}
        self._totals: dict[bytes, Counter[int]] = defaultdict(Counter)
        self._touched: set[Bucket] = set()
        self._told: set[tuple[str, Bucket, str]] = set()

    def load(self, entries: Iterable[ManifestEntry]) -> None:
        """Becomes what a scan of all these entries finds: a file that any of them deletes is not live."""
        self._buckets, self._totals, self._touched = {}, defaultdict(Counter), set()
        deleted: set[EntryIdentity] = set()
        for entry in entries:
            if not self.is_mine(entry):
                continue
            if entry.kind is FileKind.DELETE:
                deleted.add(entry.identity)
                self.remove(entry)
            elif entry.identity not in deleted:
                self.add(entry)

    def is_mine(self, entry: ManifestEntry) -> bool:
        return self._share.holds(entry.partition, entry.bucket)

    def add(self, entry: ManifestEntry) -> None:
        """A file that was not live before. A second one of the same identity changes nothing."""
        bucket = (entry.partition, entry.bucket)
        files = self._buckets.setdefault(bucket, {})
        if entry.identity not in files:
            files[entry.identity] = entry
            self._totals[entry.partition][entry.total_buckets] += 1
        self._touched.add(bucket)

    def remove(self, entry: ManifestEntry) -> None:
        """A file that is deleted. One that is not live changes nothing."""
        bucket = (entry.partition, entry.bucket)
        found = self._buckets.get(bucket, {}).pop(entry.identity, None)
        if found is not None:
            self._totals[entry.partition][found.total_buckets] -= 1
            if not self._buckets[bucket]:
                del self._buckets[bucket]
        self._touched.add(bucket)

    def __contains__(self, identity: object) -> bool:
        """Whether the file of that identity is live."""
        if not isinstance(identity, tuple):
            return False
        return identity in self._buckets.get((identity[0], identity[1]), {})

    def __iter__(self) -> Iterator[ManifestEntry]:
        for files in self._buckets.values():
            yield from files.values()

    def names_in(self, bucket: Bucket) -> set[str]:
        """The names of a bucket's live files."""
        return {e.file.file_name for e in self._buckets.get(bucket, {}).values()}

    @property
    def touched(self) -> set[Bucket]:
        """The buckets that changed since `problems` was asked last."""
        return self._touched

    def problems(self, state: str) -> Iterator[Problem]:
        """What is wrong in the buckets that changed, each thing once."""
        touched, self._touched = self._touched, set()
        for bucket in sorted(touched):
            for rule, message in self._in_bucket(bucket):
                if (rule, bucket, message) not in self._told:
                    self._told.add((rule, bucket, message))
                    where = f"{state}, partition {bucket[0].hex()}, bucket {bucket[1]}"
                    yield Problem(rule, where, message)
        for partition in sorted({p for p, _ in touched}):
            totals = sorted(t for t, count in self._totals[partition].items() if count)
            message = (
                f"its buckets were written for different numbers of buckets, {totals}: one key may be in two of them"
            )
            if sum(t > 0 for t in totals) > 1 and ("bucket-count", (partition, 0), message) not in self._told:
                self._told.add(("bucket-count", (partition, 0), message))
                yield Problem("bucket-count", f"{state}, partition {partition.hex()}", message)

    def _in_bucket(self, bucket: Bucket) -> Iterator[tuple[str, str]]:
        number = bucket[1]
        entries = list(self._buckets.get(bucket, {}).values())
        for total in sorted({e.total_buckets for e in entries}):
            if 0 < total <= number:
                yield "bucket", f"it is none of {counted(total, 'bucket')}"
        files = [e.file for e in entries]
        for file_name, count in sorted(Counter(f.file_name for f in files).items()):
            if count > 1:
                yield "live-twice", f"{file_name} is live on two levels"
        if self._order is None or number < 0:
            return
        order = self._order
        by_level: dict[int, list[DataFileMeta]] = defaultdict(list)
        for f in files:
            by_level[f.level].append(f)
        for level in sorted(by_level.keys() - {0}):
            try:
                run = sorted(by_level[level], key=lambda f: order(f.min_key))
                shared = [(low, high) for low, high in pairwise(run) if order(low.max_key) >= order(high.min_key)]
            except CorruptFileError as e:
                yield "key-bounds", f"the bounds of a file on level {level} are no keys: {e.message}"
                continue
            for low, high in shared:
                yield "level-overlap", f"{low.file_name} and {high.file_name} on level {level} share keys"
