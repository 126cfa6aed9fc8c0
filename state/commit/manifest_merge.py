"""Decides which manifests of a snapshot are merged into fewer manifests, and computes the entries of the new manifests.

The caller reads and writes the files, and calls the functions of this module in this order:

1. `plan_manifest_merge` decides whether to try a full merge, and what a minor merge would do.
2. For a full merge, the caller reads the manifests that have DELETE entries, and collects the `deleted_identities`.
   Then `narrow_full_merge` decides which manifests need not be read. If `narrow_full_merge` returns None, the caller
   does the minor merge.
3. `rewrite_fully` or `merge_entries` computes the entries to write from the entries that were read, and
   `in_partition_order` brings these entries into the order in which they are written.

The input is the complete list of base manifests of the new snapshot, oldest first. So after a full merge no DELETE
entries are needed any more.
Source: Paimon 2.0 ManifestFileMerger, FileEntry.mergeEntries.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from bucketline.conf.table.table_settings import CommitSettings
from bucketline.state.errors import CommitConflictError
from bucketline.state.format.entries import EntryIdentity, FileKind, ManifestEntry, ManifestFileMeta
from bucketline.state.format.partition_stats import may_hold_any, sorted_partitions
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataType


@dataclass(frozen=True, slots=True)
class ManifestMergeOptions:
    """The options manifest.target-file-size, manifest.full-compaction-threshold-size and manifest.merge-min-count."""

    target_size_bytes: int = 8 << 20
    full_threshold_bytes: int = 16 << 20
    merge_min_count: int = 30

    @classmethod
    def of(cls, settings: CommitSettings) -> "ManifestMergeOptions":
        """Returns the options that a table's settings describe. Raises OptionError if a setting cannot be read."""
        return cls(
            target_size_bytes=settings.manifest_target_bytes,
            full_threshold_bytes=settings.manifest_full_threshold_bytes,
            merge_min_count=settings.manifest_merge_min_count,
        )


@dataclass(frozen=True, slots=True)
class FullMerge:
    """A full merge of manifests: the manifests in `keep` stay as they are, and the manifests in `merge` are read. Both
    are in the order of the input.

    `must_rewrite` has the names of the manifests that are always rewritten. Another manifest that is read is rewritten
    only if it has an entry of a deleted file.
    """

    keep: tuple[ManifestFileMeta, ...]
    merge: tuple[ManifestFileMeta, ...]
    must_rewrite: frozenset[str]

    @property
    def with_deletes(self) -> tuple[ManifestFileMeta, ...]:
        """Returns the manifests in `merge` that have DELETE entries. The caller must read these manifests before it
        calls `narrow_full_merge`.
        """
        return tuple(m for m in self.merge if m.num_deleted_files > 0)


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Consecutive manifests in a minor merge. A group of one manifest stays as it is; the manifests of a larger group
    are replaced by new manifests.
    """

    manifests: tuple[ManifestFileMeta, ...]

    @property
    def is_kept(self) -> bool:
        return len(self.manifests) == 1


@dataclass(frozen=True, slots=True)
class ManifestMergePlan:
    """A plan for merging manifests. `full` is a full merge, which is tried first; None if it is not due. `minor` is
    what a minor merge would do, for the case that there is no full merge: all manifests in order, in groups that are
    merged or stay.
    """

    full: FullMerge | None
    minor: tuple[MergeGroup, ...]

    @property
    def changes_nothing(self) -> bool:
        return self.full is None and all(g.is_kept for g in self.minor)


def plan_manifest_merge(manifests: Sequence[ManifestFileMeta], options: ManifestMergeOptions) -> ManifestMergePlan:
    """Returns the plan for merging the manifests of a base list, oldest first.

    A full merge always rewrites the manifests that have DELETE entries or are smaller than the target size. A full
    merge is planned if the total size of these manifests is at least the threshold size.
    """
    must_rewrite = [m for m in manifests if m.num_deleted_files > 0 or m.file_size < options.target_size_bytes]
    is_due = sum(m.file_size for m in must_rewrite) >= options.full_threshold_bytes
    full = FullMerge((), tuple(manifests), frozenset(m.file_name for m in must_rewrite)) if is_due else None
    return ManifestMergePlan(full, _minor_groups(manifests, options))


def narrow_full_merge(
    full: FullMerge, deleted: Collection[EntryIdentity], partition_types: Sequence[DataType]
) -> FullMerge | None:
    """Takes a planned merge of manifests, in which entries of deleted files disappear. Returns the merge with fewer
    manifests: manifests that need not be read are kept as they are. Returns None if at most one manifest is left to
    read.

    A large manifest without DELETE entries need not be read if its partition bounds show that it has no file of a
    partition in which files were deleted.
    """
    partitions = sorted({identity[0] for identity in deleted})
    rows = [decode_row(p, partition_types) for p in partitions] if partition_types else [() for _ in partitions]
    merge: list[ManifestFileMeta] = []
    keep: list[ManifestFileMeta] = []
    for meta in full.merge:
        must_read = meta.file_name in full.must_rewrite or may_hold_any(meta.partition_stats, rows, partition_types)
        (merge if must_read else keep).append(meta)
    if len(merge) <= 1:
        return None
    return FullMerge((*full.keep, *keep), tuple(merge), full.must_rewrite)


def rewrite_fully(
    full: FullMerge, meta: ManifestFileMeta, entries: Iterable[ManifestEntry], deleted: Collection[EntryIdentity]
) -> list[ManifestEntry] | None:
    """Takes the entries of one manifest (`meta`) of a full merge, which rewrites manifests without the entries of
    deleted files. Returns the live entries of the manifest, in order; None if the manifest can stay as it is. `deleted`
    are all files that the manifests delete.

    In the new manifest list, the manifests that stay come first. The manifests with the returned entries come after
    them.
    """
    before = list(entries)
    after = [e for e in before if e.kind is FileKind.ADD and e.identity not in deleted]
    return None if len(after) == len(before) and meta.file_name not in full.must_rewrite else after


def merge_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Returns the entries, in order, without the ADD and DELETE of files that are added and later deleted.

    A DELETE without its ADD stays, because the ADD is in an older manifest. Raises CommitConflictError if a file is
    added twice, added again after its DELETE, or deleted twice. A correct writer never writes such manifests.
    """
    merged: dict[EntryIdentity, ManifestEntry] = {}
    last: dict[EntryIdentity, FileKind] = {}
    for entry in entries:
        identity = entry.identity
        before = last.get(identity)
        if before is None:
            merged[identity] = entry
        elif before is FileKind.ADD and entry.kind is FileKind.DELETE:
            del merged[identity]
        else:
            raise CommitConflictError(
                f"the manifests have {entry.kind.name} of {entry.file.file_name} in bucket {entry.bucket} on "
                f"level {entry.file.level} after its {before.name}; run `bucketline doctor`",
                file=entry.file.file_name,
                bucket=entry.bucket,
                level=entry.file.level,
            )
        last[identity] = entry.kind
    return list(merged.values())


def in_partition_order(entries: Sequence[ManifestEntry], types: Sequence[DataType]) -> list[ManifestEntry]:
    """Returns the entries ordered by the values of their partitions. Entries of one partition keep their order, so a
    DELETE stays after its ADD. `types` are the types of the partition columns.

    If the ordered entries fill several manifests, each manifest holds few neighbouring partitions. A reader of a few
    partitions then skips the manifests of other partitions.
    Source: Paimon 2.0 ManifestFileSorter, which orders entries in a similar way if `manifest-sort.enabled` is true.
    """
    if not types:
        return list(entries)
    places = {p: place for place, (_, p) in enumerate(sorted_partitions({e.partition for e in entries}, types))}
    return sorted(entries, key=lambda e: places[e.partition])


def deleted_identities(entries: Iterable[ManifestEntry]) -> set[EntryIdentity]:
    """Returns the files that any of the entries deletes."""
    return {e.identity for e in entries if e.kind is FileKind.DELETE}


def live_entries(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Returns the ADD entries of files for which the entries have no DELETE, neither before nor after the ADD. A reader
    that reads the manifests of a snapshot's base and delta lists together finds these files.

    Source: Paimon 2.0 AbstractFileStoreScan. As in Paimon, DELETE entries are collected first, so a deleted file cannot
    be added again.
    """
    deleted = deleted_identities(entries)
    return [e for e in entries if e.kind is FileKind.ADD and e.identity not in deleted]


def _minor_groups(manifests: Sequence[ManifestFileMeta], options: ManifestMergeOptions) -> tuple[MergeGroup, ...]:
    groups: list[MergeGroup] = []
    gathered: list[ManifestFileMeta] = []
    gathered_bytes = 0
    for meta in manifests:
        gathered.append(meta)
        gathered_bytes += meta.file_size
        if gathered_bytes >= options.target_size_bytes:
            groups.append(MergeGroup(tuple(gathered)))
            gathered, gathered_bytes = [], 0
    if gathered and len(gathered) >= options.merge_min_count:
        groups.append(MergeGroup(tuple(gathered)))
    else:
        groups += (MergeGroup((m,)) for m in gathered)
    return tuple(groups)
