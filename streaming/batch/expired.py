"""Lets a batch be planned again on the newest snapshot if the snapshot on which the batch was planned expires while the
batch is planned or its tasks run.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bucketline.state.errors import CommitConflictError, StorageError
from bucketline.state.store.write.expired_base import planned_too_early
from bucketline.state.store.write.table_at import TableAt
from bucketline.streaming.batch.failure import error_of_task


@contextmanager
def planned_again_if_expired(at: TableAt) -> Iterator[None]:
    """Replaces an error of the `with` block by a CommitConflictError, if the snapshot of `at` may have expired and the
    error may come from a file that expiry has removed. `repeat_if_gone` catches the CommitConflictError, and plans the
    batch again. The block is the part of a batch that reads files of this snapshot, in this process or in tasks.
    """
    try:
        yield
    except Exception as e:
        conflict = _expired_meanwhile(at, e)
        if conflict is None:
            raise
        raise conflict from e


def _expired_meanwhile(at: TableAt, error: Exception) -> CommitConflictError | None:
    """Returns the conflict with which the batch is planned again; None if the error has another cause, or if the
    storage does not say which snapshots exist. `error` may be an error of this process, or an error of Spark about a
    task.
    """
    with suppress(StorageError):
        return planned_too_early(at, error_of_task(error) or error)
    return None
