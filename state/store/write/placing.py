"""Finds the buckets of rows after they were read: a group of keys in, runs of buckets out.

Each way to find the buckets is a class with its own method `place`: new keys of dynamic buckets, keys that move between
partitions, postponed rows. A task that owns a group of keys calls it; no other code knows how buckets are found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import World
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.write.run_buffer import Blob
from bucketline.state.store.write.sealed_runs import SealedRun


@dataclass(frozen=True, slots=True)
class BucketNews:
    """A message for the task that writes a bucket, which comes in addition to the rows. Only the `Placing` that made
    the payload can read it.
    """

    partition: bytes
    bucket: int
    payload: bytes


class SharedBucket(Exception):
    """Raised if rows of a share must go to a bucket in which other shares have keys: the task that places the rows
    cannot write them.
    """


@dataclass(frozen=True, slots=True)
class SnapshotNote:
    """The token of a note about changes of keys; the snapshot of this write must carry it."""

    token: str


Placed: TypeAlias = SealedRun | BucketNews | SnapshotNote | MixedKey | CommitMessage
"""A result for a group of rows: a sealed run of one bucket, news for the writer of a bucket, the token of a note, a key
whose rows came from several feeds, or the commit message of files that were written at once.
"""


class Placing:
    """A way to find the buckets of rows; subclasses are plain values, so that they can be sent to tasks."""

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[Placed]:
        """Yields the results for the rows of one share of the keys; `runs` are in arrival order, and there is at least
        one.
        """
        raise NotImplementedError

    def in_one_task(self) -> "Placing":
        """Returns the placing for a task that places and writes all shares."""
        return self

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        """Returns the commit message of a written bucket, completed as the payload of its `BucketNews` says."""
        del payload, world
        return message
