"""Refuses to use clients with threads in a forked process.

The threads of a client do not exist in the new process, where the client would wait for ever.
"""

import os
from collections.abc import Callable

from bucketline.state.errors import StorageError

_FORKED: list[int] = []


def check_not_forked(path: str) -> None:
    """Raises StorageError in a process that was forked from one that had clients."""
    if _FORKED:
        raise StorageError(
            f"{path}: this process was forked from one that uses storage over the network, whose threads did not come "
            "along; start processes by 'spawn' or 'forkserver', or open the first table in each of them",
            path=path,
            retryable=False,
            missing=False,
        )


def refuse_after_fork(has_clients: Callable[[], bool]) -> None:
    """Makes processes that are forked from now on, while there are clients, refuse to use these clients."""

    def note() -> None:
        if has_clients():
            _FORKED.append(os.getpid())

    os.register_at_fork(after_in_child=note)
