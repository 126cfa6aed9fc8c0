"""What must be true of a table's states: their files are there, follow from one another, and lie in the tree rightly.

Source: Paimon 2.0 ConflictDetection, FileStoreCommitImpl, SnapshotDeletion, Levels.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import BucketlineError
from bucketline.state.bucket.fixed import assign_fixed_buckets, bucket_function
from bucketline.state.bucket.mode import BucketMode, bucket_keys, bucket_mode
from bucketline.state.commit.changes import DELETION_VECTORS
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import EntryIdentity, FileKind, IndexManifestEntry, ManifestEntry, Snapshot
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.store.file_io import FileIO
from bucketline.state.store.kept_files import data_paths, index_path, located, reraise_unless_missing
from bucketline.state.store.manifests import Manifests
from bucketline.state.store.read import FileAccess
from bucketline.state.store.scan import BucketFiles, group_by_bucket
from bucketline.state.types.arrow import SEQUENCE
from bucketline.state.types.order import key_changes, key_order, sort_indices


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule: its name, where, and what that means."""

    rule: str
    subject: str
    message: str


class Examination:
    """Holds states of the table at `path` against the rules; each data file is looked for once."""

    def __init__(
        self,
        io: FileIO,
        path: str,
        schema: TableSchema,
        manifests: Manifests,
        schema_of: Callable[[int], TableSchema],
    ) -> None:
        self._io, self._path, self._schema = io, path, schema
        self._manifests, self._schema_of = manifests, schema_of
        self._sizes: dict[str, int | None] = {}

    def with_schemas(self, schema_of: Callable[[int], TableSchema]) -> "Examination":
        """The same, for states whose schemas are found elsewhere; what is known of files is shared."""
        other = Examination(self._io, self._path, self._schema, self._manifests, schema_of)
        other._sizes = self._sizes
        return other

    def history(self, snapshots: Sequence[Snapshot]) -> Iterator[Problem]:
        """Each snapshot by itself, and as what follows from the one before; ids ascend."""
        before: tuple[int, dict[EntryIdentity, ManifestEntry]] | None = None
        for snapshot in snapshots:
            name = f"snapshot {snapshot.id}"
            try:
                base = self._manifests.live_in(
                    self._manifests.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
                )
                delta = self._manifests.delta_entries(snapshot)
            except (StorageError, CorruptFileError) as e:
                yield _unreadable(name, e)
                before = None
                continue
            live = {e.identity: e for e in base}
            if before is not None and before[0] == snapshot.id - 1 and before[1].keys() != live.keys():
                yield Problem(
                    "base", name, f"its base is not what snapshot {before[0]} left: files were lost or gained"
                )
            yield from _follows(name, live, delta)
            live = _apply(live, delta)
            before = (snapshot.id, live)
            yield from _counts(name, snapshot, live.values(), delta)
            yield from self._contents(name, snapshot, list(live.values()))

    def state(self, name: str, snapshot: Snapshot) -> Iterator[Problem]:
        """The live files of a tag or branch: all there, and in their places in the tree."""
        try:
            entries = self._manifests.live_entries(snapshot)
        except (StorageError, CorruptFileError) as e:
            yield _unreadable(name, e)
            return
        yield from self._contents(name, snapshot, entries)

    def rows(self, snapshot: Snapshot) -> Iterator[Problem]:
        """The rows of every live file: readable, as many as said, sorted, in their bucket, in their sequence range."""
        access = FileAccess(self._io, self._path, self._schema, self._schema_of)
        for bucket in group_by_bucket(self._manifests.live_entries(snapshot)):
            for file in bucket.files:
                try:
                    yield from self._rows(access, bucket, file)
                except BucketlineError as e:
                    yield Problem("data-file", file.file_name, e.message)

    def _contents(self, name: str, snapshot: Snapshot, entries: Sequence[ManifestEntry]) -> Iterator[Problem]:
        for entry in entries:
            yield from self._file(name, entry)
        yield from self._buckets(name, entries)
        try:
            index = self._manifests.read_index(snapshot.index_manifest)
        except (StorageError, CorruptFileError) as e:
            yield _unreadable(name, e)
            return
        yield from self._index(name, entries, index)

    def _file(self, name: str, entry: ManifestEntry) -> Iterator[Problem]:
        path, *beside = data_paths(self._path, self._schema, entry)
        if entry.file.external_path is not None:
            return
        size = self._size(path)
        if size is None:
            yield Problem("missing-file", path, f"{name} needs it")
        elif size != entry.file.file_size:
            yield Problem("file-size", path, f"it has {size} bytes, {name} says {entry.file.file_size}")
        for other in beside:
            if self._size(other) is None:
                yield Problem("missing-file", other, f"{name} needs it beside a data file")
        try:
            self._schema_of(entry.file.schema_id)
        except (StorageError, CorruptFileError):
            yield Problem("missing-schema", path, f"it was written under schema {entry.file.schema_id}, which is gone")

    def _buckets(self, name: str, entries: Iterable[ManifestEntry]) -> Iterator[Problem]:
        totals: dict[bytes, set[int]] = defaultdict(set)
        order = None
        if self._schema.primary_keys:
            order = key_order([f.type for f in self._schema.select(self._schema.trimmed_primary_key)])
        for bucket in group_by_bucket(entries):
            where = f"{name}, partition {bucket.partition.hex()}, bucket {bucket.bucket}"
            totals[bucket.partition].add(bucket.total_buckets)
            if 0 < bucket.total_buckets <= bucket.bucket:
                yield Problem("bucket", where, f"it is none of {bucket.total_buckets} buckets")
            twice = {f.file_name for f, g in pairwise(sorted(bucket.files, key=_name)) if f.file_name == g.file_name}
            for file_name in sorted(twice):
                yield Problem("live-twice", where, f"{file_name} is live on two levels")
            if order is None or bucket.bucket < 0:
                continue
            for level in sorted({f.level for f in bucket.files if f.level > 0}):
                run = sorted((f for f in bucket.files if f.level == level), key=lambda f: order(f.min_key))
                for low, high in pairwise(run):
                    if order(low.max_key) >= order(high.min_key):
                        message = f"{low.file_name} and {high.file_name} on level {level} share keys"
                        yield Problem("level-overlap", where, message)
        for partition, found in totals.items():
            if len({t for t in found if t > 0}) > 1:
                message = f"its buckets were written for {sorted(found)} buckets: one key may be in two of them"
                yield Problem("bucket-count", f"{name}, partition {partition.hex()}", message)

    def _index(
        self, name: str, entries: Sequence[ManifestEntry], index: Sequence[IndexManifestEntry]
    ) -> Iterator[Problem]:
        live = {(e.partition, e.bucket, e.file.file_name) for e in entries}
        for one in index:
            path = located(self._path, index_path(self._schema, one))
            size = None if one.external_path is not None else self._size(path)
            if size is None and one.external_path is None:
                yield Problem("missing-file", path, f"{name} needs this {one.index_type} index")
            elif size is not None and size != one.file_size:
                yield Problem("file-size", path, f"it has {size} bytes, {name} says {one.file_size}")
            for vector in one.deletion_vector_ranges or () if one.index_type == DELETION_VECTORS else ():
                if (one.partition, one.bucket, vector.data_file_name) not in live:
                    yield Problem("dangling-vector", path, f"{name}: {vector.data_file_name} is not live")

    def _rows(self, access: FileAccess, bucket: BucketFiles, file: DataFileMeta) -> Iterator[Problem]:
        schema = self._schema
        keys = list(schema.trimmed_primary_key)
        is_fixed = bucket_mode(schema) is BucketMode.FIXED and bucket.total_buckets > 0 and bucket.bucket >= 0
        hashed = list(bucket_keys(schema)) if is_fixed else []
        system = [SEQUENCE] if schema.primary_keys else []
        columns = list(dict.fromkeys((*keys, *hashed))) + system
        last: pa.RecordBatch | None = None
        for batch in access.rows(bucket, file, columns):
            if is_fixed and not self._in_bucket(batch, hashed, bucket):
                yield Problem("bucket-of-row", file.file_name, f"rows of other buckets lie in bucket {bucket.bucket}")
            if not schema.primary_keys:
                continue
            low, high = pc.min_max(batch.column(SEQUENCE)).as_py().values()
            if low < file.min_sequence_number or high > file.max_sequence_number:
                yield Problem("sequence", file.file_name, f"sequence numbers {low} to {high} are outside its range")
            # Postponed rows wait in the order they came.
            joined = batch if last is None else pa.concat_batches([last, batch])
            if bucket.bucket >= 0 and not _is_strictly_sorted(joined.select(keys), keys):
                yield Problem("key-order", file.file_name, "its keys do not ascend, so merges would go wrong")
            last = batch.slice(batch.num_rows - 1)

    def _in_bucket(self, batch: pa.RecordBatch, hashed: Sequence[str], bucket: BucketFiles) -> bool:
        types = [f.type for f in self._schema.select(tuple(hashed))]
        columns = [batch.column(name) for name in hashed]
        found = assign_fixed_buckets(columns, types, bucket.total_buckets, bucket_function(self._schema))
        return bool(np.all(found.to_numpy() == bucket.bucket))

    def _size(self, path: str) -> int | None:
        """Bytes of a file, None when it is missing."""
        if path not in self._sizes:
            try:
                self._sizes[path] = self._io.size(path)
            except StorageError as e:
                reraise_unless_missing(e)
                self._sizes[path] = None
        return self._sizes[path]


def _follows(name: str, live: dict[EntryIdentity, ManifestEntry], delta: Sequence[ManifestEntry]) -> Iterator[Problem]:
    added: set[str] = set()
    deleted = {e.identity for e in delta if e.kind is FileKind.DELETE}
    for entry in delta:
        if entry.kind is FileKind.ADD:
            added.add(entry.file.file_name)
            if entry.identity in live and entry.identity not in deleted:
                yield Problem("added-twice", name, f"it adds {entry.file.file_name}, which is live already")
            continue
        if entry.identity not in live:
            yield Problem("deleted-nothing", name, f"it deletes {entry.file.file_name}, which is not live")
        if entry.file.file_name in added:
            message = f"it names {entry.file.file_name} as added before it is deleted: expiry by Paimon removes it"
            yield Problem("entry-order", name, message)


def _apply(
    live: dict[EntryIdentity, ManifestEntry], delta: Sequence[ManifestEntry]
) -> dict[EntryIdentity, ManifestEntry]:
    deleted = {e.identity for e in delta if e.kind is FileKind.DELETE}
    after = {i: e for i, e in live.items() if i not in deleted}
    after.update({e.identity: e for e in delta if e.kind is FileKind.ADD and e.identity not in deleted})
    return after


def _counts(
    name: str, snapshot: Snapshot, live: Iterable[ManifestEntry], delta: Iterable[ManifestEntry]
) -> Iterator[Problem]:
    rows = sum(e.file.row_count for e in live)
    if rows != snapshot.total_record_count:
        yield Problem("record-count", name, f"its files hold {rows} rows, it says {snapshot.total_record_count}")
    change = sum(e.file.row_count * (1 if e.kind is FileKind.ADD else -1) for e in delta)
    if change != snapshot.delta_record_count:
        yield Problem("record-count", name, f"its changes make {change} rows, it says {snapshot.delta_record_count}")


def _unreadable(name: str, error: BucketlineError) -> Problem:
    if isinstance(error, StorageError):
        reraise_unless_missing(error)
    return Problem("unreadable", name, error.message)


def _is_strictly_sorted(rows: pa.RecordBatch, keys: Sequence[str]) -> bool:
    if not bool(np.all(sort_indices(rows, keys).to_numpy() == np.arange(rows.num_rows))):
        return False
    return bool(np.all(key_changes(rows, keys)))


def _name(file: DataFileMeta) -> str:
    return file.file_name
