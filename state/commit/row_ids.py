"""Ids and versions of rows in tables with row tracking, which the commit gives to new files.

Every row has an id that no other row of the table has, and the snapshot that wrote it last. A file whose rows are new
says the first id in the manifest; a file of rows that are kept or changed holds both as columns.
Source: Paimon 2.0 RowTrackingCommitUtils, RowDataFileSequenceNumberTracker.
"""

from collections.abc import Sequence
from dataclasses import replace

from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.entries import FileKind, ManifestEntry
from bucketline.state.format.row_ranges import ROW_ID


def with_row_ids(
    entries: Sequence[ManifestEntry], snapshot_id: int, next_row_id: int
) -> tuple[tuple[ManifestEntry, ...], int]:
    """Returns the entries of a snapshot, where new files have the row ids and versions that the snapshot gives them;
    and the first id that is still free.
    """
    numbered = []
    for entry in entries:
        if entry.kind is FileKind.ADD:
            file = entry.file
            if _has_new_rows(file):
                file = replace(file, first_row_id=next_row_id)
                next_row_id += file.row_count
            entry = replace(entry, file=_with_versions(file, snapshot_id))
        numbered.append(entry)
    return tuple(numbered), next_row_id


def _has_new_rows(file: DataFileMeta) -> bool:
    holds_ids = file.write_cols is not None and ROW_ID in file.write_cols
    return file.file_source is FileSource.APPEND and file.first_row_id is None and not holds_ids


def _with_versions(file: DataFileMeta, snapshot_id: int) -> DataFileMeta:
    """Returns the file with the versions of its rows: this snapshot, unless the file holds the versions as a column."""
    if file.write_cols is None or file.min_sequence_number == 0:
        return replace(file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id)
    return file
