"""Holds the live files of a snapshot in memory, by bucket, and checks the levels of the files. The doctor goes from one
snapshot to the next, and each snapshot's changes are applied to the files in memory.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import EntryIdentity, FileKind, ManifestEntry
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.doctor.problem import Problem
from bucketline.state.types.order import key_order

T = TypeVar("T")

Bucket = tuple[bytes, int]
"""A serialized partition, and a bucket of this partition."""


@dataclass(frozen=True, slots=True)
class Share:
    """One of `count` parts into which the buckets of a table are divided, so that each part is checked separately. The
    parts are numbered from 0.
    """

    number: int = 0
    count: int = 1

    def holds(self, partition: bytes, bucket: int) -> bool:
        """Returns True if a bucket is in this part."""
        return self.count == 1 or zlib.crc32(partition, bucket & 0xFFFFFFFF) % self.count == self.number


class _Files:
    """The live files of a bucket. `changed` has the levels above 0 whose files have changed since the last check; only
    these levels are checked again.
    """

    def __init__(self) -> None:
        self._entries: dict[EntryIdentity, ManifestEntry] = {}
        self._levels: dict[int, dict[EntryIdentity, DataFileMeta]] = defaultdict(dict)
        self.names: Counter[str] = Counter()
        self.totals: Counter[int] = Counter()
        self.several: set[str] = set()
        """The names that more than one file has."""
        self.changed: set[int] = set()
        """The levels that have changed since the last check, without level 0, where files may have keys in common."""

    def __contains__(self, identity: EntryIdentity) -> bool:
        return identity in self._entries

    def __iter__(self) -> Iterator[ManifestEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def level(self, level: int) -> list[DataFileMeta]:
        return list(self._levels[level].values())

    def add(self, entry: ManifestEntry) -> None:
        file = entry.file
        self._entries[entry.identity] = entry
        self.names[file.file_name] += 1
        if self.names[file.file_name] > 1:
            self.several.add(file.file_name)
        self.totals[entry.total_buckets] += 1
        if file.level:
            self._levels[file.level][entry.identity] = file
            self.changed.add(file.level)

    def remove(self, identity: EntryIdentity) -> ManifestEntry | None:
        """Removes a file, and returns its entry; None if the file was not live."""
        entry = self._entries.pop(identity, None)
        if entry is None:
            return None
        file = entry.file
        _take(self.names, file.file_name)
        _take(self.totals, entry.total_buckets)
        if self.names[file.file_name] < 2:
            self.several.discard(file.file_name)
        if file.level:
            del self._levels[file.level][identity]
            self.changed.add(file.level)
        return entry


class LiveOfShare:
    """The live files of a part of the buckets. Doctor checks a large table in several parts (`share`), so that only the
    manifest entries of one part are in memory.
    """

    def __init__(self, schema: TableSchema, share: Share) -> None:
        self._share = share
        self._order = None
        if schema.primary_keys:
            self._order = key_order([f.type for f in schema.select(schema.trimmed_primary_key)])
        self._buckets: dict[Bucket, _Files] = {}
        self._totals: dict[bytes, Counter[int]] = defaultdict(Counter)
        self._touched: set[Bucket] = set()
        self._told: set[tuple[str, Bucket, str]] = set()

    def load(self, entries: Iterable[ManifestEntry]) -> None:
        """Reads the live files from manifest entries. A file is live if an entry adds the file, and no entry deletes
        it, as in a scan.
        """
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
        """Adds a file that was not live before. A second file with the same identity is ignored."""
        bucket = (entry.partition, entry.bucket)
        files = self._buckets.setdefault(bucket, _Files())
        if entry.identity not in files:
            files.add(entry)
            self._totals[entry.partition][entry.total_buckets] += 1
        self._touched.add(bucket)

    def remove(self, entry: ManifestEntry) -> None:
        """Removes a file from the live files. A file that is not live is ignored."""
        bucket = (entry.partition, entry.bucket)
        files = self._buckets.get(bucket)
        removed = None if files is None else files.remove(entry.identity)
        if removed is not None:
            _take(self._totals[entry.partition], removed.total_buckets)
            if not files:
                del self._buckets[bucket]
        self._touched.add(bucket)

    def __contains__(self, identity: object) -> bool:
        """Returns True if the file with this identity is live."""
        if not isinstance(identity, tuple):
            return False
        return identity in self._buckets.get((identity[0], identity[1]), ())

    def __iter__(self) -> Iterator[ManifestEntry]:
        for files in self._buckets.values():
            yield from files

    def names_in(self, bucket: Bucket) -> Container[str]:
        """Returns the names of a bucket's live files."""
        files = self._buckets.get(bucket)
        return files.names if files is not None else ()

    @property
    def touched(self) -> set[Bucket]:
        """Returns the buckets that have changed since the last call of `problems`."""
        return self._touched

    def problems(self, state: str) -> Iterator[Problem]:
        """Yields the problems in buckets that have changed since the last call, each problem once. `state` is the name
        of the snapshot in the texts of the problems.
        """
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
                f"the files of its buckets record different numbers of buckets, {totals}, so a key may be in two of "
                "these buckets"
            )
            if sum(t > 0 for t in totals) > 1 and ("bucket-count", (partition, 0), message) not in self._told:
                self._told.add(("bucket-count", (partition, 0), message))
                yield Problem("bucket-count", f"{state}, partition {partition.hex()}", message)

    def _in_bucket(self, bucket: Bucket) -> Iterator[tuple[str, str]]:
        """Checks a bucket in which files were added or removed. Yields a pair for each problem that this change may
        have caused: the name of the broken rule, for example "level-overlap", and a message.
        """
        number, files = bucket[1], self._buckets.get(bucket)
        if files is None:
            return
        for total in sorted(files.totals):
            if 0 < total <= number:
                yield "bucket", f"its files record only {counted(total, 'bucket')}"
        for file_name in sorted(files.several):
            yield "live-twice", f"{file_name} is live on two levels"
        changed, files.changed = files.changed, set()
        if self._order is None or number < 0:
            return
        order = self._order
        for level in sorted(changed):
            try:
                run = sorted(files.level(level), key=lambda f: order(f.min_key))
                shared = [(low, high) for low, high in pairwise(run) if order(low.max_key) >= order(high.min_key)]
            except CorruptFileError as e:
                yield "key-bounds", f"the bounds of a file on level {level} cannot be read as keys: {e.message}"
                continue
            for low, high in shared:
                yield "level-overlap", f"{low.file_name} and {high.file_name} on level {level} have overlapping keys"


def _take(counts: "Counter[T]", key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
