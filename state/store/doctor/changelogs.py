"""Checks changelogs that are kept longer than their snapshots: the files that a reader of changes opens must exist.

Source: Paimon 2.0 ChangelogManager, ChangelogDeletion.
"""

from collections.abc import Iterator

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import CommitKind, FileKind, ManifestEntry, Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot
from bucketline.state.format.packed_changelog import part_of
from bucketline.state.store.catalog.changelogs import changelog_ids, changelog_path
from bucketline.state.store.catalog.kept_files import data_paths, reach, reraise_unless_missing
from bucketline.state.store.catalog.manifests import Manifests
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.doctor.problem import passable


def changelog_findings(table: TableHandle) -> Iterator[Finding]:
    """Yields a finding for each changelog that cannot be read, and for each changelog with a file that is missing, or
    whose size is not the recorded size.
    """
    for changelog_id in changelog_ids(table.io, table.metadata_path):
        path = changelog_path(table.metadata_path, changelog_id)
        try:
            data = table.io.read_optional(path)
            gone = None if data is None else list(_gone(table, decode_snapshot(data)))
        except BucketlineError as e:
            yield Finding(Severity.ERROR, "changelog", path, passable(e))
            continue
        # The changelog may have expired while it was checked.
        if gone and table.io.exists(path):
            yield Finding(Severity.ERROR, "changelog", path, f"its changes cannot be read: {gone[0]}")


def _gone(table: TableHandle, changelog: Snapshot) -> Iterator[str]:
    schema = table.table_schema
    logs = schema.settings.changelog.producer.writes_files
    for entry in _changes(table.manifests, changelog, logs=logs):
        for path, size in zip(data_paths(table.path, schema, entry), (entry.file.file_size,), strict=False):
            io, place = reach(table.io, schema, path)
            try:
                actual_size = io.size(place)
                if actual_size != size and part_of(entry.file.file_name) is None:
                    yield f"{path} does not have {counted(size, 'byte')}"
            except StorageError as e:
                reraise_unless_missing(e)
                yield f"{path} is missing"


def _changes(manifests: Manifests, changelog: Snapshot, *, logs: bool) -> list[ManifestEntry]:
    """Returns the files that hold the changes of a changelog: its changelog files, or, if the table writes no changelog
    files (`logs` is False), the new data files of an append.
    """
    if changelog.changelog_manifest_list is not None:
        return manifests.changelog_entries(changelog)
    if logs or changelog.commit_kind is not CommitKind.APPEND:
        return []
    return [e for e in manifests.delta_entries(changelog) if e.kind is FileKind.ADD]
