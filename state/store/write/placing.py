"""What becomes of rows whose bucket is not known where they are read: a group of keys in, runs of buckets out.

Each way to find the buckets is a value with a `place` of its own: new keys of dynamic buckets, keys that move between
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
    """What the writer of a bucket must know in addition to its rows; only the `Placing` that made the payload can read
    it."""

    partition: bytes
    bucket: int
    payload: bytes


class SharedBucket(Exception):
    """Rows of a share have to go to a bucket that is not the share's alone: the task that places them cannot write
    them."""


@dataclass(frozen=True, slots=True)
class SnapshotNote:
    """A token that the snapshot of this write has to carry."""

    token: str


Placed: TypeAlias = SealedRun | BucketNews | SnapshotNote | MixedKey | CommitMessage
"""What comes of a group: runs of buckets, what goes with them, a key of several feeds, or files that were written at
once."""


class Placing:
    """A way to find the buckets of rows; subclasses are plain values, so that they travel."""

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[Placed]:
        """What comes of the rows of one share of the keys; `runs` are in arrival order, and there is at least one."""
        raise NotImplementedError

    def in_one_task(self) -> "Placing":
        """The same for a task that places and writes all shares."""
        return self

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        """The message of a bucket that was written, with what its news ask for."""
        del payload, world
        return message
