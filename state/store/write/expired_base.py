"""Decides whether work may have failed only because the snapshot on which the work was planned has expired meanwhile.
Such work is planned again.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from bucketline.state.errors import CommitConflictError, CorruptFileError, StorageError
from bucketline.state.store.commit.commit_check import history_gone
from bucketline.state.store.write.table_at import TableAt


def planned_too_early(at: TableAt, error: Exception) -> CommitConflictError | None:
    """Returns a conflict if `error` may come from files that were removed because the snapshot of `at` has expired;
    otherwise None. The work that raised `error` was planned on `at`. If the caller raises the conflict, the work is
    planned again on the newest snapshot. Raises the errors of `Snapshots.get`.

    Files of the newest snapshot do not expire. So if the snapshot of `at` is still the newest, a missing file means
    that the table is damaged, and the result is None. Otherwise these errors give a conflict:

    - a StorageError about a missing file;
    - a CorruptFileError, because some missing files are reported as damaged, for example a missing HASH index file;
    - any other StorageError, if the snapshot of `at` does not exist any more. The error of a Spark task comes as text,
      and the text does not say whether a file was missing.
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
    """Replaces an error of the `with` block by the conflict of `planned_too_early`, if this function returns a
    conflict. The block must only plan work on `at`, and commit nothing.
    """
    try:
        yield
    except (CorruptFileError, StorageError) as e:
        conflict = planned_too_early(at, e)
        if conflict is None:
            raise
        raise conflict from e
