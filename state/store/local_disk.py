"""Errors of local disk, where spills and indexes lie: named, with what to do about them."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from bucketline.state.errors import StorageError


@contextmanager
def local_disk(directory: str) -> Iterator[None]:
    """Turns the system's errors into StorageError; a full disk is told from the rest."""
    try:
        yield
    except OSError as e:
        full = e.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full; free some space, or let" if full else f"{e.strerror or e}; let"
        raise StorageError(
            f"{directory}: {what} 'local-directory' name another disk", path=directory, retryable=False, missing=False
        ) from e
