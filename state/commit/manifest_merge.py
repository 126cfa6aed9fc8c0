"""Chooses the manifests of the base list that are merged into fewer, and makes the entries of the new manifests.

The caller reads and writes. The decisions, in order:

1. `plan_manifest_merge` says whether a full merge is worth a try and what a minor one would do.
2. For a full merge the caller reads the manifests that have deletes, collects `deleted_identities`, and asks
   `narrow_full_merge` which manifests may be left alone; None means: do the minor merge.
3. `rewrite_fully` or `merge_entries` turns what was read into the entries to write.

Source: Paimon 2.0 ManifestFileMerger, FileEntry.mergeEntries; the input is the whole base of the new snapshot, oldest
first, so a full merge may forget deletes.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from bucketline.conf.table.table_settings import CommitSettings
from bucketline.state.errors import CommitConflictError
from bucketline.state.format.entries import EntryIdentity, FileKind, ManifestEntry, ManifestFileMeta
from bucketline.state.format.partition_stats import may_hold_any
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
    """Manifests, each in input order: `keep` stay as they are, `merge` are read.

    Of the manifests that are read, those in `must_rewrite` are always rewritten; any other is rewritten only if it
    holds a deleted file.
    """

    keep: tuple[ManifestFileMeta, ...]
    merge: tuple[ManifestFileMeta, ...]
    must_rewrite: frozenset[str]

    @property
    def with_deletes(self) -> tuple[ManifestFileMeta, ...]:
        """Returns the manifests to merge that hold DELETE entries. They are read before `narrow_full_merge`."""
        return tuple(m for m in self.merge if m.num_deleted_files > 0)


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Neighbouring manifests of a minor merge: one stays as it is, several become new ones in their place."""

    manifests: tuple[ManifestFileMeta, ...]

    @property
    def is_kept(self) -> bool:
        return len(self.manifests) == 1


@dataclass(frozen=True, slots=True)
class ManifestMergePlan:
    """`full`, if any, is tried first; `minor` covers all manifests in order and is done when there is no full merge."""

    full: FullMerge | None
    minor: tuple[MergeGroup, ...]

    @property
    def changes_nothing(self) -> bool:
        return self.full is None and all(g.is_kept for g in self.minor)


def plan_manifest_merge(manifests: Sequence[ManifestFileMeta], options: ManifestMergeOptions) -> ManifestMergePlan:
    """Returns the plan for merging the manifests of a base list, oldest first.

    A full merge is worth it once the manifests that hold deletes or are below target size reach its threshold.
    """
    must_rewrite = [m for m in manifests if m.num_deleted_files > 0 or m.file_size < options.target_size_bytes]
    is_due = sum(m.file_size for m in must_rewrite) >= options.full_threshold_bytes
    full = FullMerge((), tuple(manifests), frozenset(m.file_name for m in must_rewrite)) if is_due else None
    return ManifestMergePlan(full, _minor_groups(manifests, options))


def narrow_full_merge(
    full: FullMerge, deleted: Collection[EntryIdentity], partition_types: Sequence[DataType]
) -> FullMerge | None:
    """Returns the merge without the manifests that need not be read, or None when so few are left that it is not worth
    doing.

    A large manifest without deletes is kept unread if its partition bounds rule out every deleted partition.
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
    """Returns the live entries of one manifest of a full merge, in order, or None when the manifest can stay as it is.

    The rewritten entries come after the manifests that stay, in files of the target size.
    """
    before = list(entries)
    after = [e for e in before if e.kind is FileKind.ADD and e.identity not in deleted]
    return None if len(after) == len(before) and meta.file_name not in full.must_rewrite else after


def merge_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Returns the entries, in order, without the files that are added and later deleted.

    A DELETE without its ADD stays: the ADD is in an older manifest. Raises CommitConflictError when a file is added
    twice, added again after its DELETE, or deleted twice; no committer may have written such a base.
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
                f"{entry.kind.name} of {entry.file.file_name} in bucket {entry.bucket} on level {entry.file.level}"
                f" follows its {before.name}",
                file=entry.file.file_name,
                bucket=entry.bucket,
                level=entry.file.level,
            )
        last[identity] = entry.kind
    return list(merged.values())


def deleted_identities(entries: Iterable[ManifestEntry]) -> set[EntryIdentity]:
    """Returns the files that any of the entries deletes."""
    return {e.identity for e in entries if e.kind is FileKind.DELETE}


def live_entries(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """Returns the ADD entries whose file no DELETE among the entries removes, before or after. A scan of base and delta
    sees these entries.

    Source: Paimon 2.0 AbstractFileStoreScan: deletes are gathered first, so a deleted file cannot be added again.
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
