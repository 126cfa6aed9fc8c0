"""A job of a file that dies where it is told to: `python shop_process.py DEATH ARGUMENTS...`.

DEATH is `never`, `call:N` (at the driver's call number N to local storage, counted from its first commit on), or
`between:N` (between two commits of one batch, once N batches have been begun). The arguments are those of `bucketline`.
"""

import os
import signal
import sys
from collections.abc import Callable
from threading import Lock
from typing import Any

from bucketline.state.format.entries import CommitKind
from bucketline.state.store.commit import snapshot_commit
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.streaming.start import main

_CALLS = ("read", "read_optional", "write_new", "publish", "overwrite", "delete", "open_input", "open_output")


def _die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


class Death:
    """Counts the steps of the driver, and ends the process group at the one that it was told."""

    def __init__(self, told: str) -> None:
        self._kind, _, number = told.partition(":")
        self._left = int(number or 0)
        self._lock = Lock()
        self._batches: dict[int, int] = {}

    def install(self) -> None:
        """Puts the counts around calls to storage, and around the publication of snapshots."""
        if self._kind == "call":
            for name in _CALLS:
                setattr(LocalIO, name, self._counted(getattr(LocalIO, name)))
        snapshot_commit.publish_snapshot = self._around_publish(snapshot_commit.publish_snapshot)

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            with self._lock:
                self._left -= bool(self._batches)
                is_dead = self._left < 0
            if is_dead:
                _die()
            return original(*args, **named)

        return call

    def _around_publish(self, publish: Callable[..., Any]) -> Callable[..., Any]:
        def published(snapshots: Any, manifests: Any, snapshot: Any, *rest: Any) -> Any:
            if self._kind == "between" and snapshot.commit_kind is CommitKind.APPEND:
                with self._lock:  # one commit after the other, so that the first of the batch is whole
                    batch = snapshot.commit_identifier
                    self._batches[batch] = self._batches.get(batch, 0) + 1
                    if len(self._batches) >= self._left and self._batches[batch] == 2:
                        _die()
                    return publish(snapshots, manifests, snapshot, *rest)
            with self._lock:
                self._batches.setdefault(snapshot.commit_identifier, 1)
            return publish(snapshots, manifests, snapshot, *rest)

        return published


if __name__ == "__main__":
    Death(sys.argv[1]).install()
    main(sys.argv[2:])
