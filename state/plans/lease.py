"""Leases on items of a compaction plan: a worker takes a lease before it works on an item, so that two workers do not
do the same work.

Leases need no common clock and no lock service, and work even if listings of the storage are out of date. A lease is a
file for an item and an epoch number. A worker takes the lease by creating this file, which succeeds only if the file
does not exist. Only the owner of the lease renews the heartbeat, which is a second file. Other workers use their own
clocks: if they have not seen the heartbeat change for the period of the lease, they assume that the owner is dead or
asleep, and may take the lease of the next epoch. Leases are not needed for correctness. If two workers do the same
compaction, the second commit conflicts, because its input files are gone. So an owner that wakes up late does no harm.
"""

from dataclasses import dataclass
from enum import Enum

from bucketline.state.plans.plan import ItemResult, ItemState

MOST_FAILURES = 3
"""The number of failed attempts after which an item is given up. A later plan may include its bucket again."""

MOST_EPOCHS = 30
"""The number of leases after which an item is given up, because the item may be what makes its workers die."""

BEATS_A_PERIOD = 4
"""How many times a heartbeat is renewed during the period of its lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of a worker to work on an item (a planned compaction of a bucket). `owner` is a UUID that is created
    for each lease. The worker renews the lease by heartbeats; `period_ms` is how long the lease lasts after a
    heartbeat, in milliseconds.
    """

    owner: str
    period_ms: int


@dataclass(frozen=True, slots=True)
class Release:
    """Records that a compactor gave back an item of a compaction plan, whose lease it owned. `failure` is the error for
    which the compactor gave up; None if the compactor was asked to stop.
    """

    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease that this worker holds, with its item (a planned compaction of one bucket) and its epoch."""

    plan_id: str
    number: int
    epoch: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class ItemView:
    """The state of an item (a planned compaction of one bucket), as the files of its leases show it.

    - `epoch` is the highest epoch of a lease, or 0 if there is no lease.
    - `lease`, `beat` (the heartbeat) and `release` belong to this epoch. `lease` is None if the storage lists the file
      of the lease but cannot read the file yet.
    - `failures` is the number of releases with an error in all epochs, and `failure` is the last of these errors.
    """

    epoch: int = 0
    lease: Lease | None = None
    beat: str | None = None
    release: Release | None = None
    failures: int = 0
    result: ItemResult | None = None
    failure: str | None = None

    @property
    def state(self) -> ItemState:
        """Returns the state of the item (a planned compaction), as its files in the plan folder show it. The state
        does not say whether a lease has expired, because each worker decides this by its own clock.
        """
        if self.result is not None:
            return self.result.state
        return ItemState.LEASED if self.epoch and self.release is None else ItemState.REQUESTED


@dataclass(frozen=True, slots=True)
class Observation:
    """What a worker remembers of an item: the epoch and the heartbeat that the worker saw, and since when it has seen
    no change of the two, by its monotonic clock.
    """

    epoch: int
    beat: str | None
    since_ms: int


def observe(before: Observation | None, view: ItemView, now_ms: int) -> Observation:
    """Returns what a worker must remember after it has looked at an item (a planned compaction) again: the epoch and
    the heartbeat of the item's lease, and since when they have not changed. `before` is what the worker remembered
    before.
    """
    # An older epoch comes from an outdated listing and is ignored.
    if before is not None and (view.epoch < before.epoch or (before.epoch, before.beat) == (view.epoch, view.beat)):
        return before
    return Observation(view.epoch, view.beat, now_ms)


class Verdict(Enum):
    """What a worker that looks for work may do with an item (a planned compaction of one bucket)."""

    TAKE = "claim the next epoch"
    GIVE_UP = "record that it failed"
    LEAVE = "another worker is working on it"
    CLOSED = "nothing is left to do"


def judge(view: ItemView, seen: Observation, now_ms: int, *, unread_period_ms: int) -> Verdict:
    """Returns what a worker may do with an item (a planned compaction) now: take it, leave it to another worker, or
    record that it has failed. `seen` is what the worker remembers of the item. `unread_period_ms` is how long a lease
    is assumed to last if its file cannot be read.
    """
    if view.result is not None:
        return Verdict.CLOSED
    if view.epoch == 0 or (view.release is not None and view.epoch == seen.epoch):
        return _free(view)
    period_ms = unread_period_ms if view.lease is None else view.lease.period_ms
    if view.epoch == seen.epoch and now_ms - seen.since_ms > period_ms:
        return _free(view)
    return Verdict.LEAVE


def _free(view: ItemView) -> Verdict:
    return Verdict.GIVE_UP if view.failures >= MOST_FAILURES or view.epoch >= MOST_EPOCHS else Verdict.TAKE


def next_beat_ms(lease: Lease) -> int:
    """Returns how many milliseconds the owner of a lease waits between two renewals of its heartbeat."""
    return max(1, lease.period_ms // BEATS_A_PERIOD)
