"""When an item may be taken: leases expire by the judge's own clock, and nobody compares clocks."""

import pytest

from bucketline.state.plans.lease import (
    MOST_EPOCHS,
    MOST_FAILURES,
    ItemView,
    Lease,
    Observation,
    Release,
    Verdict,
    judge,
    observe,
)
from bucketline.state.plans.plan import InputFile, Item, ItemResult, ItemState, Plan, executors_worth_having

LEASE = Lease("somebody", 1000)


def verdict(view: ItemView, now_ms: int, before: Observation | None = None) -> Verdict:
    return judge(view, observe(before, view, now_ms), now_ms, unread_period_ms=5000)


def test_an_item_without_a_lease_is_taken() -> None:
    assert verdict(ItemView(), 7) is Verdict.TAKE and ItemView().state is ItemState.REQUESTED


def test_a_lease_is_judged_from_when_its_heartbeat_was_first_seen_not_from_when_it_was_written() -> None:
    held = ItemView(1, LEASE, "b1")
    seen = observe(None, held, 5_000_000)
    assert verdict(held, 5_000_000) is Verdict.LEAVE and held.state is ItemState.LEASED
    assert verdict(held, 5_001_000, seen) is Verdict.LEAVE
    assert verdict(held, 5_001_001, seen) is Verdict.TAKE


def test_a_heartbeat_that_changes_begins_the_period_anew() -> None:
    seen = observe(None, ItemView(1, LEASE, "b1"), 0)
    renewed = ItemView(1, LEASE, "b2")
    seen = observe(seen, renewed, 900)
    assert seen == Observation(1, "b2", 900)
    assert judge(renewed, seen, 1900, unread_period_ms=1) is Verdict.LEAVE
    assert judge(renewed, seen, 1901, unread_period_ms=1) is Verdict.TAKE


def test_an_old_listing_neither_hides_a_newer_epoch_nor_frees_it() -> None:
    seen = observe(None, ItemView(2, LEASE, "b1"), 0)
    old = ItemView(1, LEASE, "b9", release=Release())
    assert observe(seen, old, 900) == seen
    assert judge(old, observe(seen, old, 99_000), 99_000, unread_period_ms=1) is Verdict.LEAVE


def test_what_was_given_back_is_free_at_once_and_what_failed_too_often_is_given_up() -> None:
    assert verdict(ItemView(1, LEASE, "b", Release()), 0) is Verdict.TAKE
    assert verdict(ItemView(1, LEASE, "b", Release("disk full"), failures=1), 0) is Verdict.TAKE
    failed = ItemView(MOST_FAILURES, LEASE, "b", Release("disk full"), failures=MOST_FAILURES)
    assert verdict(failed, 0) is Verdict.GIVE_UP and failed.state is ItemState.REQUESTED


def test_an_item_that_kills_its_workers_is_given_up() -> None:
    view = ItemView(MOST_EPOCHS, LEASE, "b")
    assert verdict(view, 2000, Observation(MOST_EPOCHS, "b", 0)) is Verdict.GIVE_UP


def test_a_lease_that_cannot_be_read_yet_is_held_for_the_judges_own_period() -> None:
    unread = ItemView(1)
    assert verdict(unread, 5000, Observation(1, None, 0)) is Verdict.LEAVE
    assert verdict(unread, 5001, Observation(1, None, 0)) is Verdict.TAKE


@pytest.mark.parametrize("state", [ItemState.DONE, ItemState.FAILED, ItemState.OBSOLETE])
def test_a_result_closes_an_item_for_ever(state: ItemState) -> None:
    view = ItemView(1, LEASE, "b", Release("x"), MOST_FAILURES, ItemResult(state))
    assert verdict(view, 10**9, Observation(1, "b", 0)) is Verdict.CLOSED and view.state is state


@pytest.mark.parametrize(
    ("sizes", "count"),
    [([], 0), ([5], 1), ([5, 5, 5, 5], 4), ([100, 1, 1, 1], 2), ([6, 5, 5, 4, 2, 2], 5), ([0, 0], 2)],
)
def test_more_executors_than_the_largest_item_can_use_are_not_worth_having(sizes: list[int], count: int) -> None:
    items = tuple(Item(n, b"", n, 9, (InputFile(f"f{n}", 0, s),), 5) for n, s in enumerate(sizes))
    assert executors_worth_having(items) == count


def test_a_plans_user_is_no_writers_name() -> None:
    plan = Plan("3f2b1c9e-0d4a-4f6b-8c7d-1e2f3a4b5c6d", 1, 0, "minor", 0, ())
    assert plan.user == f"compactor-{plan.plan_id}"
