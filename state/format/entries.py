"""The records in the files of a snapshot: the snapshot itself, manifests as a manifest list names them, and the entries
of manifests and index manifests.

Source: Paimon 2.0 Snapshot, ManifestFileMeta, ManifestEntry, IndexManifestEntry.
"""

from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum

from bucketline.state.format.data_file import DataFileMeta, SimpleStats


class FileKind(IntEnum):
    ADD = 0
    DELETE = 1


class Operation(Enum):
    """The kind of statement that made a snapshot. The kind is stored for information only: readers ignore it."""

    WRITE = "WRITE"
    OVERWRITE = "OVERWRITE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"
    UPDATE = "UPDATE"
    MERGE = "MERGE"


class CommitKind(Enum):
    APPEND = "APPEND"
    COMPACT = "COMPACT"
    OVERWRITE = "OVERWRITE"
    ANALYZE = "ANALYZE"

    @property
    def moves_rows(self) -> bool:
        """Returns True if commits of this kind can add or remove rows. Commits of the other kinds only rewrite files or
        change statistics.
        """
        return self not in (CommitKind.COMPACT, CommitKind.ANALYZE)


BATCH_COMMIT_IDENTIFIER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One published state of a table. A member that is None is left out of the snapshot file.

    The members are the same as in Paimon's snapshot file.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: CommitKind
    time_ms: int
    total_record_count: int
    delta_record_count: int
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    changelog_record_count: int | None = None
    index_manifest: str | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    next_row_id: int | None = None
    operation: str | None = None
    uuid: str | None = None
    version: int = 3

    def is_same_as(self, other: "Snapshot | None") -> bool:
        """Returns True if both snapshots are the same published state. The method compares the names of the manifest
        lists, which are never used twice. The uuid cannot be compared, because a catalog's server may not store it.
        """
        if other is None:
            return False
        return (self.id, self.base_manifest_list, self.delta_manifest_list, self.commit_kind) == (
            other.id,
            other.base_manifest_list,
            other.delta_manifest_list,
            other.commit_kind,
        )

    def without_changelog(self) -> "Snapshot":
        """Returns the snapshot without the fields that describe its changelog, for a changelog that was removed."""
        return replace(
            self, changelog_manifest_list=None, changelog_manifest_list_size=None, changelog_record_count=None
        )


EntryIdentity = tuple[bytes, int, int, str, tuple[str, ...], bytes | None, str | None]


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A data file that was added to a bucket or deleted from it. `partition` is a BinaryRow, with its number of
    fields in 4 bytes before it.
    """

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> EntryIdentity:
        """Returns the fields that identify a file. An entry that deletes a file has the same values in these
        fields as the entry that added the file. Source: Paimon 2.0 FileEntry.Identifier.
        """
        f = self.file
        return (self.partition, self.bucket, f.level, f.file_name, f.extra_files, f.embedded_index, f.external_path)


@dataclass(frozen=True, slots=True)
class ManifestFileMeta:
    """A manifest as a manifest list describes it. The bounds include all entries of the manifest, both ADD and
    DELETE.

    The members are the same as in an entry of Paimon's manifest list.
    """

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionVectorRange:
    """The position of one data file's deletion vector in an index file (offset and length in bytes), and how many rows
    the vector deletes.
    """

    data_file_name: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True)
class IndexManifestEntry:
    """One live index file: `index_type` is HASH, DELETION_VECTORS or a global index type."""

    kind: FileKind
    partition: bytes
    bucket: int
    index_type: str
    file_name: str
    file_size: int
    row_count: int
    deletion_vector_ranges: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: dict[str, object] | None = None
