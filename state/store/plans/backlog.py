"""Summarizes the open items of a table's compaction plans, for people."""

from dataclasses import dataclass

from bucketline.state.plans.plan import ItemState
from bucketline.state.store.plans.plan_files import PlanFolder


@dataclass(frozen=True, slots=True)
class PlanBacklog:
    """The open items of plans: how many there are, how many have a lease, how many bytes their files have, and when the
    oldest of their plans was made (in milliseconds since 1970; None without open items).
    """

    items: int = 0
    leased: int = 0
    size_bytes: int = 0
    since_ms: int | None = None


def plan_backlog(folder: PlanFolder) -> PlanBacklog:
    """Returns a summary of the open items in the plans that can be read. A lease that has ended is counted too, because
    a single look cannot show whether a lease has ended.

    Raises CorruptFileError, StorageError.
    """
    listing = folder.list()
    items = leased = size = 0
    since: list[int] = []
    for plan in folder.readable(listing).values():
        for item in plan.items:
            if listing.has_result(plan, item.number):
                continue
            items += 1
            leased += folder.view(listing, plan, item.number).state is ItemState.LEASED
            size += item.input_bytes
            since.append(plan.made_ms)
    return PlanBacklog(items, leased, size, min(since, default=None))
