"""Finds the files that hold a snapshot's changes.

Source: Paimon 2.0 DeltaFollowUpScanner, ChangelogFollowUpScanner, IncrementalDeltaStartingScanner.
"""

from bucketline.conf.table.choices import ChangeFiles
from bucketline.state.format.entries import CommitKind, FileKind, ManifestEntry, Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.store.catalog.table_handle import TableHandle


def change_files(schema: TableSchema) -> ChangeFiles:
    """Returns which kind of files holds a table's changes: changelog files if the table has a changelog producer,
    otherwise new data files.
    """
    mode = schema.settings.reading.change_files
    if mode is not ChangeFiles.AUTO:
        return mode
    return ChangeFiles.CHANGELOG if schema.settings.changelog.producer.writes_files else ChangeFiles.DELTA


def change_entries(
    table: TableHandle, snapshot: Snapshot, mode: ChangeFiles, *, postponed: bool = False
) -> list[ManifestEntry]:
    """Returns the files that hold a snapshot's changes. There are no such files for an overwrite, and for a compaction
    that writes no changelog.

    Rows in the postpone bucket do not count as changes until a compaction logs them, as in Paimon's batch reads. With
    `postponed`, the files of the postpone bucket are included, as in Paimon's streams of tables without a changelog.
    """
    if mode is ChangeFiles.CHANGELOG:
        if snapshot.commit_kind is CommitKind.OVERWRITE:
            return []
        entries = table.manifests.changelog_entries(snapshot)
    else:
        if snapshot.commit_kind is not CommitKind.APPEND:
            return []
        entries = table.manifests.delta_entries(snapshot)
    return [e for e in entries if e.kind is FileKind.ADD and (postponed or e.bucket != POSTPONE_BUCKET)]
