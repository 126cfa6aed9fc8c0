"""The manifests, manifest lists and index manifests of a table. When a file is read, its size is compared with the
recorded size. Files are written under new names.

Source: Paimon 2.0 ManifestFile, ManifestList, IndexManifestFile, AbstractFileStoreScan.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from bucketline.conf.wording import counted
from bucketline.state.commit.manifest_merge import (
    FullMerge,
    ManifestMergeOptions,
    MergeGroup,
    deleted_identities,
    in_partition_order,
    live_entries,
    merge_entries,
    narrow_full_merge,
    plan_manifest_merge,
    rewrite_fully,
)
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CommitConflictError, CorruptFileError
from bucketline.state.format.entries import (
    EntryIdentity,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    ManifestFileMeta,
    Snapshot,
)
from bucketline.state.format.entry_filter import EVERYTHING, EntryFilter
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.format.manifest import (
    PartitionChoice,
    decode_chosen,
    decode_manifest,
    decode_manifest_list,
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
)
from bucketline.state.format.metadata_records import AVRO, Encoding
from bucketline.state.format.partition_stats import may_hold_any
from bucketline.state.format.paths import MANIFEST_DIR, index_manifest_name, manifest_list_name, manifest_name
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.parallel import all_at_once
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataType

_DEFAULT_MERGING = ManifestMergeOptions()


class Manifests:
    """The manifest folder of the table at `path`. New files are durable on storage before their names are returned."""

    def __init__(
        self,
        io: FileIO,
        path: str,
        partition_types: Sequence[DataType] = (),
        *,
        world: World = SYSTEM_WORLD,
        merging: ManifestMergeOptions = _DEFAULT_MERGING,
        encoding: Encoding = AVRO,
    ) -> None:
        self._io = io
        self._directory = f"{path}/{MANIFEST_DIR}"
        self._partition_types = tuple(partition_types)
        self._world = world
        self._merging = merging
        self._encoding = encoding
        self._journal: list[str] = []

    def recording(self, journal: list[str], io: FileIO | None = None) -> "Manifests":
        """Returns this folder in a form that adds the name of each new file to `journal` before the file is created.

        Files are read and written through `io`, or through the storage of this folder if `io` is None.
        """
        other = Manifests(
            io or self._io, "", self._partition_types, world=self._world, merging=self._merging, encoding=self._encoding
        )
        other._directory, other._journal = self._directory, journal
        return other

    def delete(self, names: Iterable[str]) -> None:
        """Removes files of the folder. A missing file is no error."""
        all_at_once(self._io, [partial(self._io.delete, self.path(name)) for name in names])

    def exists(self, name: str) -> bool:
        """Returns True if the folder has a file of that name."""
        return self._io.exists(self.path(name))

    def read_list(self, name: str, size: int | None = None) -> list[ManifestFileMeta]:
        """Returns the manifests that a manifest list names, oldest first. `size` is the size of the list that the
        snapshot records; None if the snapshot records no size.
        """
        data = self._read(name, size)
        with naming_file(self.path(name)):
            return decode_manifest_list(data)

    def read(self, manifest: ManifestFileMeta | str) -> list[ManifestEntry]:
        """Returns the entries of a manifest, in order."""
        name, size = (manifest, None) if isinstance(manifest, str) else (manifest.file_name, manifest.file_size)
        data = self._read(name, size)
        with naming_file(self.path(name)):
            entries = decode_manifest(data)
            if not isinstance(manifest, str):
                deleted = sum(e.kind is FileKind.DELETE for e in entries)
                _check_counts(manifest, len(entries) - deleted, deleted)
            return entries

    def read_index(self, name: str | None) -> list[IndexManifestEntry]:
        """Returns the index files that an index manifest names; an empty list if `name` is None, that is for a snapshot
        without an index manifest.
        """
        if name is None:
            return []
        data = self._read(name, None)
        with naming_file(self.path(name)):
            return decode_index_manifest(data)

    def base_and_delta(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Returns all manifests of a snapshot, oldest first. These manifests become the base of the next snapshot."""
        base = partial(self.read_list, snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        return [m for metas in all_at_once(self._io, [base, partial(self.delta, snapshot)]) for m in metas]

    def delta(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """Returns the manifests that hold the changes of a snapshot."""
        return self.read_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)

    def delta_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Returns the manifest entries that a snapshot has added, in the order in which they were written."""
        return [e for meta in self.delta(snapshot) for e in self.read(meta)]

    def changelog_entries(self, snapshot: Snapshot) -> list[ManifestEntry]:
        """Returns the manifest entries of the changelog files of a snapshot."""
        if snapshot.changelog_manifest_list is None:
            return []
        metas = self.read_list(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
        return [e for meta in metas for e in self.read(meta)]

    def live_entries(self, snapshot: Snapshot, wanted: EntryFilter = EVERYTHING) -> list[ManifestEntry]:
        """Returns the live files of a snapshot that meet the filter, as ADD entries in manifest order.

        Manifests whose bounds show that no entry can pass are not read.
        """
        return self.live_in(self.base_and_delta(snapshot), wanted)

    def live_in(self, metas: Iterable[ManifestFileMeta], wanted: EntryFilter = EVERYTHING) -> list[ManifestEntry]:
        """Returns the live files that meet the filter, as `live_entries` does. `metas` are all manifests of one
        snapshot, oldest first.
        """
        choice = wanted.choice()
        reads = [partial(self._some, meta, wanted, choice) for meta in self.prune(metas, wanted)]
        return live_entries([e for entries in all_at_once(self._io, reads) for e in entries])

    def totals_in(self, metas: Sequence[ManifestFileMeta], partitions: Collection[bytes]) -> dict[bytes, int]:
        """Returns the bucket count of each partition in `partitions` that has live files, if the count is positive.
        Other partitions are left out.

        Reads the manifests from the newest backwards, and stops when every partition is known. This works because a
        DELETE never comes before the ADD that it removes.
        """
        missing, totals = set(partitions), dict[bytes, int]()
        deleted: set[EntryIdentity] = set()
        for meta in reversed(metas):
            if not missing:
                break
            wanted = EntryFilter(partitions=frozenset(missing))
            found = [e for m in self.prune([meta], wanted) for e in self._some(m, wanted, wanted.choice())]
            for entry in reversed(found):
                if entry.kind is FileKind.DELETE:
                    deleted.add(entry.identity)
                elif entry.identity not in deleted and entry.total_buckets > 0:
                    totals.setdefault(entry.partition, entry.total_buckets)
            missing -= totals.keys()
        return totals

    def prune(self, metas: Iterable[ManifestFileMeta], wanted: EntryFilter) -> list[ManifestFileMeta]:
        """Returns, in their order, the manifests that may hold an entry that meets the filter `wanted`."""
        kept = [m for m in metas if wanted.may_hold_bucket(m.min_bucket, m.max_bucket)]
        partitions, types = wanted.wanted_partitions, self._partition_types
        if partitions is not None:
            rows = [decode_row(p, types) if types else () for p in sorted(partitions)]
            kept = [m for m in kept if may_hold_any(m.partition_stats, rows, types)]
        if wanted.condition is not None:
            kept = [m for m, keep in zip(kept, wanted.condition.may_hold(kept), strict=True) if keep]
        return kept

    def write(self, entries: Sequence[ManifestEntry], schema_id: int) -> list[ManifestFileMeta]:
        """Writes entries, in order, into as few manifests of about the target size as possible, and returns these
        manifests; an empty list if there are no entries.
        """
        if not entries:
            return []
        data = encode_manifest(entries, self._encoding)
        parts = min(-(-len(data) // self._merging.target_size_bytes), len(entries))
        if parts <= 1:
            return [self._write_one(data, entries, schema_id)]
        step = -(-len(entries) // parts)
        chunks = [entries[i : i + step] for i in range(0, len(entries), step)]
        return [self._write_one(encode_manifest(c, self._encoding), c, schema_id) for c in chunks]

    def write_list(self, metas: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Writes a manifest list, and returns its name and its size in bytes."""
        name, data = manifest_list_name(self._world.ids.new_uuid(), 0), encode_manifest_list(metas, self._encoding)
        self._write_new(name, data)
        return name, len(data)

    def write_index(self, entries: Sequence[IndexManifestEntry]) -> str:
        """Writes an index manifest, and returns its name."""
        name = index_manifest_name(self._world.ids.new_uuid(), 0)
        self._write_new(name, encode_index_manifest(entries, self._encoding))
        return name

    def merge(self, metas: Sequence[ManifestFileMeta], schema_id: int) -> list[ManifestFileMeta]:
        """Merges manifests, if a merge is due, and returns the manifests that now list the same live files. New
        manifests are written; old manifests stay in storage.

        Entries that contradict each other, for example after another writer has added a file twice, are left unchanged.
        """
        plan = plan_manifest_merge(metas, self._merging)
        if plan.changes_nothing:
            return list(metas)
        if plan.full is not None:
            deleted = deleted_identities(e for m in plan.full.with_deletes for e in self.read(m))
            full = narrow_full_merge(plan.full, deleted, self._partition_types)
            if full is not None:
                return self._merge_fully(metas, full, deleted, schema_id)
        try:
            merged = [self._merge_group(group) for group in plan.minor]
        except CommitConflictError:
            return list(metas)
        merged_metas: list[ManifestFileMeta] = []
        for group, entries in zip(plan.minor, merged, strict=True):
            merged_metas += group.manifests if entries is None else self._write_merged(entries, schema_id)
        return merged_metas

    def path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _merge_fully(
        self, metas: Sequence[ManifestFileMeta], full: FullMerge, deleted: set[EntryIdentity], schema_id: int
    ) -> list[ManifestFileMeta]:
        rewritten: list[ManifestEntry] = []
        replaced: set[str] = set()
        for meta in full.merge:
            after = rewrite_fully(full, meta, self.read(meta), deleted)
            if after is not None:
                rewritten += after
                replaced.add(meta.file_name)
        return [m for m in metas if m.file_name not in replaced] + self._write_merged(rewritten, schema_id)

    def _write_merged(self, entries: Sequence[ManifestEntry], schema_id: int) -> list[ManifestFileMeta]:
        return self.write(in_partition_order(entries, self._partition_types), schema_id)

    def _merge_group(self, group: MergeGroup) -> list[ManifestEntry] | None:
        """Returns the entries to write in place of the group's manifests; None if the group stays unchanged."""
        return None if group.is_kept else merge_entries(e for m in group.manifests for e in self.read(m))

    def _write_new(self, name: str, data: bytes) -> None:
        self._journal.append(name)
        self._io.write_new(self.path(name), data)

    def _write_one(self, data: bytes, entries: Sequence[ManifestEntry], schema_id: int) -> ManifestFileMeta:
        name = manifest_name(self._world.ids.new_uuid(), 0)
        self._write_new(name, data)
        return describe_manifest(name, len(data), entries, self._partition_types, schema_id)

    def _some(self, meta: ManifestFileMeta, wanted: EntryFilter, choice: PartitionChoice | None) -> list[ManifestEntry]:
        """Returns the entries of a manifest that meet the filter, in order. `choice` is the result of
        `wanted.choice()`, which is made once for all manifests.
        """
        if choice is None:
            return self.read(meta)
        data = self._read(meta.file_name, meta.file_size)
        with naming_file(self.path(meta.file_name)):
            found = decode_chosen(data, self._partition_types, choice)
            _check_counts(meta, found.added, found.deleted)
        return [e for e in found.entries if wanted.wants_bucket(e)]

    def _read(self, name: str, size: int | None) -> bytes:
        """Returns the bytes of the file. Raises CorruptFileError if its size differs from the size that the table
        records. Paimon reads only as many bytes as recorded, and would miss entries if the recorded size were too
        small.
        """
        path = self.path(name)
        data = self._io.read_unchanging(path)
        if size is not None and size != len(data):
            raise CorruptFileError(
                f"{path} has {counted(len(data), 'byte')}, the table says {size}: "
                + ("Paimon would read only a part of it" if size < len(data) else "the end of the file is missing"),
                path=path,
                expected=size,
                found=len(data),
                offset=min(size, len(data)),
            )
        return data


def _check_counts(meta: ManifestFileMeta, added: int, deleted: int) -> None:
    """Raises CorruptFileError if a manifest does not have as many ADD and DELETE entries as its manifest list says."""
    if (added, deleted) != (meta.num_added_files, meta.num_deleted_files):
        raise CorruptFileError(
            (
                f"the manifest adds {counted(added, 'file')} and deletes {counted(deleted, 'file')}, but the manifest "
                f"list says that it adds {meta.num_added_files} and deletes {meta.num_deleted_files}"
            ),
            offset=0,
        )
