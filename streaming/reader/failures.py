"""Replaces errors of a read by errors that name the remedy."""

from collections.abc import Iterator

import pyarrow as pa

from bucketline.state.errors import SnapshotExpiredError, StorageError


def naming_expiry(
    rows: Iterator[pa.RecordBatch], table: str, snapshot_id: int | None, remedy: str
) -> Iterator[pa.RecordBatch]:
    """Yields the rows unchanged. Raises SnapshotExpiredError, which names the snapshot and the remedy, if a file no
    longer exists.
    """
    try:
        yield from rows
    except StorageError as e:
        if not e.missing:
            raise
        raise SnapshotExpiredError(
            f"{table}: a file of snapshot {snapshot_id} no longer exists ({e.message}); the snapshot expired while it "
            f"was read; {remedy}",
            path=table,
            snapshot=snapshot_id,
        ) from e
