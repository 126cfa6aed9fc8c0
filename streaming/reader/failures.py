"""Replaces an error about a missing file by an error that says what to do."""

from collections.abc import Iterator

import pyarrow as pa

from bucketline.state.errors import SnapshotExpiredError, StorageError


def naming_expiry(
    rows: Iterator[pa.RecordBatch], table: str, snapshot_id: int | None, remedy: str
) -> Iterator[pa.RecordBatch]:
    """Yields the rows unchanged. If a file no longer exists, raises SnapshotExpiredError with the table, the snapshot
    and `remedy`.
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
