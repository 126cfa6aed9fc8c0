"""Collects the manifest entries of a batch's two snapshots from the commit messages of the batch.

Source: Paimon 2.0 ManifestEntryChanges. Unlike in Paimon, all DELETEs of a delta come before all ADDs, because snapshot
expiration reads a delta in order, and an ADD after the DELETE of the same file cancels the file's removal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.entries import CommitKind, FileKind, IndexManifestEntry, ManifestEntry
from bucketline.state.format.index.deletion_vector import DELETION_VECTORS
from bucketline.state.format.index.hash_index import HASH


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a batch makes to a table, for two snapshots. The fields `append_*` are for the first snapshot,
    which has the new files of the batch. The fields `compact_*` are for the second snapshot, which has the compactions.

    In every tuple, the entries of the kind DELETE come first. Apart from this, the entries are in the order of the
    commit messages.
    """

    append_entries: tuple[ManifestEntry, ...] = ()
    append_changelog: tuple[ManifestEntry, ...] = ()
    append_index: tuple[IndexManifestEntry, ...] = ()
    compact_entries: tuple[ManifestEntry, ...] = ()
    compact_changelog: tuple[ManifestEntry, ...] = ()
    compact_index: tuple[IndexManifestEntry, ...] = ()

    @property
    def has_append(self) -> bool:
        return bool(self.append_entries or self.append_changelog or self.append_index)

    @property
    def has_compact(self) -> bool:
        return bool(self.compact_entries or self.compact_changelog or self.compact_index)

    @property
    def append_kind(self) -> CommitKind:
        """Returns OVERWRITE if the first snapshot removes files or changes deletion vectors, and APPEND otherwise.

        Source: Paimon 2.0 FileStoreCommitImpl.commit.
        """
        takes_away = any(e.kind is FileKind.DELETE for e in self.append_entries)
        masks_rows = any(e.index_type == DELETION_VECTORS for e in self.append_index)
        return CommitKind.OVERWRITE if takes_away or masks_rows else CommitKind.APPEND


def collect_changes(messages: Iterable[CommitMessage]) -> Changes:
    """Takes all commit messages of a batch, and returns their changes together: the files that are added, and the files
    that are removed.
    """
    all_messages = list(messages)
    return Changes(
        append_entries=tuple(
            [_entry(FileKind.DELETE, m, f) for m in all_messages for f in m.deleted_files]
            + [_entry(FileKind.ADD, m, f) for m in all_messages for f in m.new_files]
        ),
        append_changelog=tuple(_entry(FileKind.ADD, m, f) for m in all_messages for f in m.changelog_files),
        append_index=_index(all_messages, "deleted_index_files", "new_index_files"),
        compact_entries=tuple(
            [_entry(FileKind.DELETE, m, f) for m in all_messages for f in m.compact_before]
            + [_entry(FileKind.ADD, m, f) for m in all_messages for f in m.compact_after]
        ),
        compact_changelog=tuple(_entry(FileKind.ADD, m, f) for m in all_messages for f in m.compact_changelog),
        compact_index=_index(all_messages, "deleted_compact_index_files", "compact_index_files"),
    )


def changed_buckets(entries: Sequence[ManifestEntry], index: Sequence[IndexManifestEntry] = ()) -> frozenset[BucketId]:
    """Returns each partition and bucket that an entry belongs to. A conflict check reads only these buckets."""
    return frozenset({(e.partition, e.bucket) for e in entries} | {(e.partition, e.bucket) for e in index})


def combine_index(
    base: Sequence[IndexManifestEntry], delta: Sequence[IndexManifestEntry], *, vectors_by_file: bool
) -> tuple[IndexManifestEntry, ...]:
    """Applies changes of index files (`delta`) to a snapshot's list of index files (`base`). Returns the new list:
    first the entries that stay, in the same order, and then the added entries.

    A bucket has one HASH file and one deletion-vector file, so a new file replaces the old one. Entries of global
    indexes are identified by their file names. If `vectors_by_file` is true (append tables without buckets), entries of
    deletion vectors are identified by their file names, too. Source: Paimon 2.0 IndexManifestFileHandler.
    """

    def place(entry: IndexManifestEntry) -> tuple[object, ...]:
        one_per_bucket = entry.index_type == HASH or (entry.index_type == DELETION_VECTORS and not vectors_by_file)
        if one_per_bucket:
            return (entry.partition, entry.bucket, entry.index_type)
        return (entry.index_type, entry.file_name)

    kept = {place(e): e for e in base}
    for entry in delta:
        if entry.kind is FileKind.DELETE:
            kept.pop(place(entry), None)
    for entry in delta:
        if entry.kind is FileKind.ADD:
            kept.pop(place(entry), None)
            kept[place(entry)] = entry
    return tuple(kept.values())


def _entry(kind: FileKind, message: CommitMessage, file: DataFileMeta) -> ManifestEntry:
    return ManifestEntry(kind, message.partition, message.bucket, message.total_buckets, file)


def _index(messages: Sequence[CommitMessage], deleted: str, added: str) -> tuple[IndexManifestEntry, ...]:
    gone = [replace(e, kind=FileKind.DELETE) for m in messages for e in getattr(m, deleted)]
    return tuple(gone + [replace(e, kind=FileKind.ADD) for m in messages for e in getattr(m, added)])
