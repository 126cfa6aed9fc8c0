"""Recognises that work has failed only because the snapshot on which the work was planned has expired meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from bucketline.state.errors import CommitConflictError, CorruptFileError, StorageError
from bucketline.state.store.commit.commit_check import history_gone
from bucketline.state.store.write.table_at import TableAt


def planned_too_early(at: TableAt, error: Exception) -> CommitConflictError | None:
    """Returns the conflict with which work is planned again on the newest snapshot, if the work has failed with
    `error` because files of its snapshot may have been removed. Returns None if the error has another cause. `at` is
    the table on which the work was planned.

    Files of the newest snapshot do not expire. So if the table has no newer snapshot than `at`, a missing file means
    that the table is damaged. A missing file can also appear as a damaged file: for example, a missing HASH index file
    raises CorruptFileError. The error of a Spark task comes as text, which does not say whether a file was missing, so
    every StorageError counts if the snapshot of `at` does not exist any more. Raises the errors of `Snapshots.get`.
    """
    if not isinstance(error, CorruptFileError | StorageError):
        return None
    snapshots, base = at.table.snapshot_store, at.view.snapshot
    newest = snapshots.latest_id() or 0
    if newest == at.snapshot_id:
        return None
    if isinstance(error, StorageError) and not error.missing:
        is_there = base is None or base.is_same_as(snapshots.get(base.id))
        if is_there:
            return None
    return history_gone(at.snapshot_id, newest).error()


@contextmanager
def expiry_as_conflict(at: TableAt) -> Iterator[None]:
    """Raises the conflict of `planned_too_early` in place of an error of the `with` block, if there is such a conflict.
    The block plans work on `at`, and commits nothing.
    """
    try:
        yield
    except (CorruptFileError, StorageError) as e:
        conflict = planned_too_early(at, e)
        if conflict is None:
            raise
        raise conflict from e
