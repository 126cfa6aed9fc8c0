"""Leases on items of a plan. They work without a common clock and without a lock service, and listings of the storage
may be out of date.

A lease is a file of the item and an epoch, made if it is absent. Its owner alone renews a heartbeat of that epoch.
Others judge by clocks of their own: a heartbeat that has not changed for the lease's period, counted from when they
first saw it so, has an owner that is dead or asleep. The next epoch is then free to take. A lease only saves work that
would be done twice. What keeps it from being committed twice is the table: a compaction whose input files are gone
conflicts, so an owner that wakes up late does no harm.
"""

from dataclasses import dataclass
from enum import Enum

from bucketline.state.plans.plan import ItemResult, ItemState

MOST_FAILURES = 3
"""The failed tries after which an item is given up; a later plan may take up its bucket again."""

MOST_EPOCHS = 30
"""The number of leases after which an item is given up: it may be the cause that its workers die."""

BEATS_A_PERIOD = 4
"""How often a heartbeat is renewed within the period of its lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one owner to work on an item. `owner` is a UUID made for this one lease; `period_ms` is how long a
    heartbeat keeps the lease.
    """

    owner: str
    period_ms: int


@dataclass(frozen=True, slots=True)
class Release:
    """The owner of a lease gave the item back. `failure` is the error that was the cause; None if the owner was asked
    to stop.
    """

    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease that is held, with its item and epoch."""

    plan_id: str
    number: int
    epoch: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class ItemView:
    """The state of an item by its files. `epoch` is the highest epoch of a lease, 0 without any; `lease`, `beat` and
    `release` belong to this epoch. `failures` counts the releases with an error in all epochs; `failure` is the last
    such error.

    The lease is None where it could not be read yet: the storage lists its file, but does not give it out.
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
        """Returns the state that the files show. It does not say whether a lease has expired: each worker judges that
        by its own clock.
        """
        if self.result is not None:
            return self.result.state
        return ItemState.LEASED if self.epoch and self.release is None else ItemState.REQUESTED


@dataclass(frozen=True, slots=True)
class Observation:
    """An epoch and its heartbeat as a judge saw them, and since when, by the judge's monotonic clock."""

    epoch: int
    beat: str | None
    since_ms: int


def observe(before: Observation | None, view: ItemView, now_ms: int) -> Observation:
    """Returns what a judge remembers of an item after a look: the epoch and heartbeat, and since when they have not
    changed.
    """
    # An older epoch comes from an old listing, and is ignored.
    if before is not None and (view.epoch < before.epoch or (before.epoch, before.beat) == (view.epoch, view.beat)):
        return before
    return Observation(view.epoch, view.beat, now_ms)


class Verdict(Enum):
    """What a worker that looks for work decides about an item."""

    TAKE = "claim the next epoch"
    GIVE_UP = "record that it failed"
    LEAVE = "somebody is at it"
    CLOSED = "nothing is left to do"


def judge(view: ItemView, seen: Observation, now_ms: int, *, unread_period_ms: int) -> Verdict:
    """Returns the decision what may be done with an item now. `unread_period_ms` is the period of a lease that could
    not be read.
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
    """Returns how long an owner waits between two renewals."""
    return max(1, lease.period_ms // BEATS_A_PERIOD)
