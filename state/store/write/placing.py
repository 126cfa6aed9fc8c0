"""Finds the bucket of each row if the bucket cannot be computed from the row alone. Takes the rows of a group of keys,
and returns sorted runs of rows, each run for one bucket.

Each way to find buckets is a class with its own method `place`: for new keys of dynamic buckets, for keys that move
between partitions, for postponed rows. The task that owns a group of keys calls `place`; no other code knows how
buckets are found.
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
    """A message about a bucket, in addition to the bucket's rows. The task that finds the buckets of rows sends the
    message to the task that writes the bucket. `payload` (for example the hashes of new keys) can only be read by the
    kind of `Placing` that wrote it.
    """

    partition: bytes
    bucket: int
    payload: bytes


class SharedBucket(Exception):
    """Raised if a task that handles one share of the keys was to write the rows of this share itself, but some of these
    rows belong to a bucket in which other shares also have keys. Two tasks must not write one bucket.
    """


@dataclass(frozen=True, slots=True)
class SnapshotNote:
    """The token of a note (a file beside a key index, with changes of keys). The snapshot of the write that has left
    the note must carry the token; otherwise the note is ignored.
    """

    token: str


Placed: TypeAlias = SealedRun | BucketNews | SnapshotNote | MixedKey | CommitMessage
"""A result for a group of rows: a sealed run of one bucket, a message for the writer of a bucket, the token of a note,
a key whose rows came from several feeds (topic partitions), or the commit message of files that were written at once.
"""


class Placing:
    """A way to find the buckets of rows. Objects of subclasses are plain values, so that they can be sent to tasks."""

    def place(self, share: int, runs: Sequence[tuple[SealedRun, Blob]]) -> Iterator[Placed]:
        """Finds the bucket of each row of one share (the keys that one task owns). Yields the results, for example a
        sealed run for each bucket. `runs` are the sealed runs (sorted, packed rows) with the share's rows, in order of
        arrival; there is at least one run.
        """
        raise NotImplementedError

    def in_one_task(self) -> "Placing":
        """Returns a `Placing` for a write in which a single task does everything: it finds the buckets of all keys, and
        writes these buckets.
        """
        return self

    def with_news(self, message: CommitMessage, payload: bytes, world: World) -> CommitMessage:
        """Returns the commit message of a written bucket, completed by what the `BucketNews` of the bucket says.
        `payload` are the bytes of this `BucketNews`. This method returns the message unchanged; subclasses complete
        it.
        """
        del payload, world
        return message
