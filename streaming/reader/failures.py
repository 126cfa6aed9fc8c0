"""Failures of a read in words that name the remedy."""

from collections.abc import Iterator

import pyarrow as pa

from bucketline.state.errors import SnapshotExpiredError, StorageError


def naming_expiry(
    rows: Iterator[pa.RecordBatch], table: str, snapshot_id: int | None, remedy: str
) -> Iterator[pa.RecordBatch]:
    """The rows; a file that is gone is a SnapshotExpiredError, which names the snapshot and the remedy."""
    try:
        yield from rows
    except StorageError as e:
        if not e.missing:
            raise
        raise SnapshotExpiredError(
            f"{table}: a file of snapshot {snapshot_id} is gone ({e.message}); the snapshot expired while it was read; "
            f"{remedy}",
            path=table,
            snapshot=snapshot_id,
        ) from e
