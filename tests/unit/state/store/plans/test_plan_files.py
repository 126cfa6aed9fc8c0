"""The files of plans on storage whose answers are lost or late: what was made is ours, what may come later is not."""

from typing import cast

import pytest

from bucketline.state.errors import StorageError
from bucketline.state.plans.lease import ItemView, Lease, Release
from bucketline.state.plans.plan import InputFile, Item, ItemResult, ItemState, Plan
from bucketline.state.store.plans.plan_files import PlanFolder, named_by_plans
from bucketline.state.store.storage.file_io import FileIO
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.storage.memory_io import MemoryIO

PLAN = Plan(
    "3f2b1c9e-0d4a-4f6b-8c7d-1e2f3a4b5c6d", 7, 0, "minor", 5, (Item(0, b"p", 1, 4, (InputFile("f", 0, 9),), 5),)
)


def folder(io: FaultyIO) -> PlanFolder:
    return PlanFolder(cast(FileIO, io), "t")


@pytest.mark.parametrize("fault", [None, Fault.AFTER])
def test_what_was_made_is_ours_though_the_answer_was_lost(fault: Fault | None) -> None:
    io = FaultyIO(cast(FileIO, MemoryIO()), {} if fault is None else {1: fault})
    assert folder(io).publish_plan(1, PLAN)
    io.faults = {} if fault is None else {len(io.calls) + 1: fault}
    claim = folder(io).claim(PLAN, 0, 1, Lease("me", 1000))
    assert claim is not None and claim.epoch == 1
    assert folder(io).claim(PLAN, 0, 1, Lease("other", 1000)) is None


def test_a_claim_that_arrives_late_is_held_by_nobody_and_its_epoch_is_passed_over() -> None:
    io = FaultyIO(cast(FileIO, MemoryIO()))
    plans = folder(io)
    assert plans.publish_plan(1, PLAN)
    io.faults = {len(io.calls) + 1: Fault.LATE, len(io.calls) + 2: Fault.BEFORE}
    with pytest.raises(StorageError):
        plans.claim(PLAN, 0, 1, Lease("me", 1000))
    listing = plans.list()
    view = plans.view(listing, PLAN, 0)
    assert (view.epoch, view.beat, view.state) == (1, None, ItemState.LEASED)
    assert plans.claim(PLAN, 0, 2, Lease("other", 1000)) is not None


def test_the_files_of_an_item_tell_its_whole_story() -> None:
    io = FaultyIO(cast(FileIO, MemoryIO()))
    plans = folder(io)
    plans.publish_plan(1, PLAN)
    assert plans.view(plans.list(), PLAN, 0) == ItemView()
    first = plans.claim(PLAN, 0, 1, Lease("a", 1000))
    assert first is not None and not plans.is_superseded(first)
    plans.renew(first, 3)
    assert plans.view(plans.list(), PLAN, 0) == ItemView(1, Lease("a", 1000), "3")
    plans.release(first, "the disk is full")
    assert plans.view(plans.list(), PLAN, 0) == ItemView(
        1, Lease("a", 1000), None, Release("the disk is full"), failures=1, failure="the disk is full"
    )
    assert plans.claim(PLAN, 0, 2, Lease("b", 1000)) is not None and plans.is_superseded(first)
    assert plans.view(plans.list(), PLAN, 0).failures == 1
    done = ItemResult(ItemState.DONE, 12)
    assert plans.record(PLAN, 0, done) == done
    assert plans.record(PLAN, 0, ItemResult(ItemState.OBSOLETE, None, "late")) == done
    assert plans.list().is_closed(PLAN)
    before = len(io.calls)
    named = named_by_plans(cast(FileIO, io), "t")
    assert [name for name, _ in io.calls[before:]].count("list_names") == 1
    assert len(named) == 5 and all(name.startswith("item-") for name in named)
    plans.remove(1, PLAN, plans.list())
    assert plans.list().plan_numbers == () and named_by_plans(cast(FileIO, io), "t") == set()
