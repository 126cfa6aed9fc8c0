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
    """Raises CommitConflictError in place of an error of the `with` block, if the error may come from files that were
    removed because the snapshot of `at` has expired. `repeat_if_gone` then plans the batch again. In the block, the
    batch reads files of this snapshot, in this process or in tasks.
    """
    try:
        yield
    except Exception as e:
        conflict = _expired_meanwhile(at, e)
        if conflict is None:
            raise
        raise conflict from e


def _expired_meanwhile(at: TableAt, error: Exception) -> CommitConflictError | None:
    """Returns the conflict of `planned_too_early`. `error` may also be an error of Spark about a task that did not find
    a file. Returns None if the storage does not say which snapshots exist.
    """
    with suppress(StorageError):
        return planned_too_early(at, error_of_task(error) or error)
    return None
