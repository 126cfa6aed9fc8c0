"""Refuses to use clients with threads in a forked process.

A forked process does not get the threads of its parent, so a client that needs these threads would wait for ever.
"""

import os
from collections.abc import Callable

from bucketline.state.errors import StorageError

_FORKED: list[int] = []


def check_not_forked(path: str) -> None:
    """Raises StorageError if this process was forked from a process that already used storage over the network: the
    threads of its connections do not exist here.
    """
    if _FORKED:
        raise StorageError(
            f"{path}: this process was forked from a process that uses storage over the network, and the threads "
            "that the connection needs do not exist here; start processes by 'spawn' or 'forkserver', or open the "
            "first table only after the fork",
            path=path,
            retryable=False,
            missing=False,
        )


def refuse_after_fork(has_clients: Callable[[], bool]) -> None:
    """Registers a check for forks: if this process has clients when it is forked, the new process refuses to use
    clients.
    """

    def note() -> None:
        if has_clients():
            _FORKED.append(os.getpid())

    os.register_at_fork(after_in_child=note)
