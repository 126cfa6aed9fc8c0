"""Plans the content of the next snapshot before anything is written.

`plan_snapshot` makes the plan, `state/store` writes the manifest lists of the plan, and `SnapshotPlan.snapshot` returns
the snapshot, which has the names of these lists.

With row tracking, every row has a unique id and a version, the id of the snapshot that last wrote the row. For a file
with new rows, the manifest has the first row id. A file with unchanged or updated rows stores their ids and versions as
columns. Source: Paimon 2.0 FileStoreCommitImpl.tryCommitOnce, RowTrackingCommitUtils, RowDataFileSequenceNumberTracker.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from bucketline.state.commit.author import Author
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.entries import (
    CommitKind,
    FileKind,
    IndexManifestEntry,
    ManifestEntry,
    Snapshot,
)
from bucketline.state.format.row_ranges import ROW_ID


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A written manifest list: its name, and its size in bytes."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The plan of one snapshot: the manifest lists to write, and the content of the snapshot. `index_entries` is the
    complete list of index files; None if the list of the previous snapshot stays.
    """

    latest: Snapshot | None
    kind: CommitKind
    author: Author
    schema_id: int
    uuid: str
    time_ms: int
    delta_entries: tuple[ManifestEntry, ...]
    changelog_entries: tuple[ManifestEntry, ...]
    index_entries: tuple[IndexManifestEntry, ...] | None
    next_row_id: int = 0

    @property
    def snapshot_id(self) -> int:
        return 1 if self.latest is None else self.latest.id + 1

    @property
    def delta_record_count(self) -> int:
        """Returns the number of rows in added files minus the number of rows in deleted files. Rows of kind -U and -D
        count as rows, and deletion vectors are ignored.
        """
        return sum(e.file.row_count if e.kind is FileKind.ADD else -e.file.row_count for e in self.delta_entries)

    def snapshot(
        self, *, base: WrittenList, delta: WrittenList, changelog: WrittenList | None, index_manifest: str | None
    ) -> Snapshot:
        """Returns the snapshot, given the manifest lists that were written. `index_manifest` is used only if the plan
        has `index_entries`.
        """
        latest = self.latest
        previous_rows = 0 if latest is None else latest.total_record_count
        kept_index = None if latest is None else latest.index_manifest
        same_schema = latest is not None and latest.schema_id == self.schema_id
        assert (changelog is not None) == bool(self.changelog_entries)
        return Snapshot(
            id=self.snapshot_id,
            schema_id=self.schema_id,
            base_manifest_list=base.name,
            base_manifest_list_size=base.size_bytes,
            delta_manifest_list=delta.name,
            delta_manifest_list_size=delta.size_bytes,
            changelog_manifest_list=None if changelog is None else changelog.name,
            changelog_manifest_list_size=None if changelog is None else changelog.size_bytes,
            changelog_record_count=None if changelog is None else sum(e.file.row_count for e in self.changelog_entries),
            index_manifest=kept_index if self.index_entries is None else index_manifest,
            commit_user=self.author.user,
            commit_identifier=self.author.identifier,
            commit_kind=self.kind,
            time_ms=self.time_ms,
            total_record_count=previous_rows + self.delta_record_count,
            delta_record_count=self.delta_record_count,
            watermark=later_watermark(None if latest is None else latest.watermark, self.author.watermark),
            statistics=latest.statistics if latest is not None and same_schema else None,
            properties=dict(self.author.properties),
            next_row_id=self.next_row_id,
            operation=None if self.author.operation is None else self.author.operation.value,
            uuid=self.uuid,
        )


def plan_snapshot(
    latest: Snapshot | None,
    *,
    kind: CommitKind,
    entries: Sequence[ManifestEntry],
    changelog: Sequence[ManifestEntry] = (),
    index: Sequence[IndexManifestEntry] | None = None,
    author: Author,
    schema_id: int,
    uuid: str,
    now_ms: int,
    tracks_rows: bool = False,
) -> SnapshotPlan:
    """Returns the plan of the snapshot that follows `latest`.

    `index` is the complete list of index files from `combine_index`; if it is None, the list of `latest` stays.
    `schema_id` is the id of the newest schema at the time of the commit, even if the writers used an older schema. In
    `entries`, all DELETEs must come first. If `tracks_rows` is true, new files get row ids and versions.
    """
    assert deletes_come_first(entries), (
        "DELETEs must come first: after an ADD, a DELETE lets expiration remove live files"
    )
    next_row_id = 0 if latest is None or latest.next_row_id is None else latest.next_row_id
    if tracks_rows:
        entries, next_row_id = with_row_ids(entries, 1 if latest is None else latest.id + 1, next_row_id)
    return SnapshotPlan(
        latest=latest,
        kind=kind,
        author=author,
        schema_id=schema_id,
        uuid=uuid,
        time_ms=now_ms,
        delta_entries=tuple(entries),
        changelog_entries=tuple(changelog),
        index_entries=None if index is None else tuple(index),
        next_row_id=next_row_id,
    )


def later_watermark(previous: int | None, new: int | None) -> int | None:
    """Returns the larger of two watermarks, because a watermark never goes back. None is smaller than every
    watermark.
    """
    known = [w for w in (previous, new) if w is not None]
    return max(known) if known else None


def deletes_come_first(entries: Iterable[ManifestEntry]) -> bool:
    """Returns True if no DELETE comes after an ADD."""
    kinds = [e.kind for e in entries]
    return FileKind.DELETE not in kinds[kinds.index(FileKind.ADD) :] if FileKind.ADD in kinds else True


def overwrite_entries(live: Iterable[ManifestEntry], new: Sequence[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    """Returns the delta that replaces the `live` entries by the `new` ones: a DELETE for each live entry, and then the
    new ADDs.
    """
    gone = [ManifestEntry(FileKind.DELETE, e.partition, e.bucket, e.total_buckets, e.file) for e in live]
    return (*gone, *(e for e in new if e.kind is FileKind.ADD))


def with_row_ids(
    entries: Sequence[ManifestEntry], snapshot_id: int, next_row_id: int
) -> tuple[tuple[ManifestEntry, ...], int]:
    """Adds row ids and versions to the new files of a snapshot, and returns the entries and the next free row id.

    DELETEs come first, and then the ADDs, partition by partition. So the row ids of a partition's new rows have no
    gaps, even if several tasks wrote them.
    """
    added: dict[bytes, list[ManifestEntry]] = {}
    for entry in entries:
        if entry.kind is FileKind.ADD:
            added.setdefault(entry.partition, []).append(entry)
    numbered = [entry for entry in entries if entry.kind is FileKind.DELETE]
    for entry in chain.from_iterable(added.values()):
        file = entry.file
        if _has_new_rows(file):
            file = replace(file, first_row_id=next_row_id)
            next_row_id += file.row_count
        numbered.append(replace(entry, file=_with_versions(file, snapshot_id)))
    return tuple(numbered), next_row_id


def _has_new_rows(file: DataFileMeta) -> bool:
    holds_ids = file.write_cols is not None and ROW_ID in file.write_cols
    return file.file_source is FileSource.APPEND and file.first_row_id is None and not holds_ids


def _with_versions(file: DataFileMeta, snapshot_id: int) -> DataFileMeta:
    """Returns the file with `snapshot_id` as the version of its rows, unless the file stores the versions as a
    column.
    """
    if file.write_cols is None or file.min_sequence_number == 0:
        return replace(file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id)
    return file
