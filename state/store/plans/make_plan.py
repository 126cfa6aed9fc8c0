"""Makes plans: the compactions that are due in a table's newest snapshot become a plan, which is published under the
next number.

Two planners at the same time cannot both plan a bucket: if a number is taken, the planner reads the plan that took it,
and plans again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bucketline.conf.plan_options import PlanOptions
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.plans.choose import BucketTest, PartitionTest, PlannedBucket, choose_append, choose_keyed
from bucketline.state.plans.plan import Item, Plan
from bucketline.state.store.compact.append_compact import append_options
from bucketline.state.store.engine.postpone_move import real_counts
from bucketline.state.store.plans.plan_files import Listing, PlanFolder
from bucketline.state.store.read.bucket_deletions import masked_files
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.types.order import key_order

KEPT_PLANS = 20
"""How many closed plans are kept for people to look at. Older closed plans are removed when a new plan is made."""


@dataclass(frozen=True, slots=True)
class OpenItems:
    """How many planned compactions (items) have no result yet, and when the oldest of their plans was made, by the
    clock of the process that made the plan.
    """

    count: int = 0
    since_ms: int | None = None

    @staticmethod
    def of(plans: Iterable[tuple[Plan, Item]]) -> "OpenItems":
        """Returns a summary of planned compactions (items) that have no result yet. Each item comes with its plan."""
        made = [plan.made_ms for plan, _ in plans]
        return OpenItems(len(made), min(made, default=None))

    def age_seconds(self, now_ms: int) -> int:
        """Returns for how many seconds the oldest open item (planned compaction that is not finished) has been open;
        0 if no item is open.
        """
        return 0 if self.since_ms is None else max(0, (now_ms - self.since_ms) // 1000)


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan of compactions that was made, or that a dry run would make. Each item of a plan is the compaction of one
    bucket. `number` is None if the plan was not published.

    `busy` are the open items of earlier plans, each with its plan.
    """

    plan: Plan
    number: int | None
    busy: tuple[tuple[Plan, Item], ...] = ()

    @property
    def busy_places(self) -> frozenset[tuple[bytes, int]]:
        return frozenset(item.place for _, item in self.busy)

    @property
    def open(self) -> OpenItems:
        """Returns a summary of all open items (compactions of buckets): the items in `busy`, and the plan's own items
        if the plan was published.
        """
        own = self.plan.items if self.number is not None else ()
        return OpenItems.of((*self.busy, *((self.plan, item) for item in own)))


def make_plan(
    at: TableAt,
    folder: PlanFolder,
    *,
    chosen: PartitionTest = lambda partition: True,
    fully: BucketTest = lambda place: False,
    dry_run: bool = False,
) -> MadePlan:
    """Plans the compactions that the strategy chooses in the partitions `chosen`, on the newest snapshot, and returns
    the plan. Each compaction of one bucket is an item of the plan.

    No plan is published for a dry run, or if no compaction is due. A bucket is left out while an item of an earlier
    plan for this bucket is not done. Buckets for which `fully` returns True are compacted fully. Closed plans are
    removed, except for the newest ones. Raises OptionError, UnsupportedTableError, StorageError.
    """
    check_plannable(at)
    clock, ids = at.table.world.clock, at.table.world.ids

    def choose(busy: Sequence[Item]) -> Plan:
        # The table is read after the folder of plans, because the result of an item is written after its snapshot. If
        # the table were read first, its snapshot could still have the inputs of items that the folder shows as done.
        newest = at.refreshed()
        settings = newest.plan.sink.plans
        return Plan(
            plan_id=ids.new_uuid(),
            base_snapshot=newest.snapshot_id,
            schema_id=newest.plan.schema.id,
            strategy=settings.strategy.value,
            made_ms=clock.now_ms(),
            items=_choose(newest, settings, busy, clock.local_ms(), chosen, fully),
        )

    return publish_next(folder, choose, dry_run=dry_run)


def publish_next(folder: PlanFolder, choose: Callable[[Sequence[Item]], Plan], *, dry_run: bool = False) -> MadePlan:
    """Publishes the plan that `choose` makes, under the next number, and returns the plan. `choose` gets the open items
    of all plans.

    If another planner takes the number first, `choose` is called again, and also gets the items of that planner's plan.
    """
    listing = folder.list()
    plans = folder.readable(listing)
    number = max(listing.plan_numbers, default=0) + 1
    while True:
        busy = tuple((p, i) for p in plans.values() for i in p.items if not listing.has_result(p, i.number))
        plan = choose([i for _, i in busy])
        if dry_run or not plan.items:
            return MadePlan(plan, None, busy)
        if folder.publish_plan(number, plan):
            _remove_old(folder, listing, plans)
            return MadePlan(plan, number, busy)
        with suppress(CorruptFileError):
            winner = folder.plan(number)
            if winner is not None:
                plans[number] = winner
        number += 1


def check_plannable(at: TableAt) -> None:
    """Raises UnsupportedTableError if compactions of the table cannot be planned."""
    at.table.io.require_publish()


def _choose(
    at: TableAt,
    settings: PlanOptions,
    busy: Collection[Item],
    local_ms: int,
    chosen: PartitionTest,
    fully: BucketTest,
) -> tuple[Item, ...]:
    schema, view, vectors = at.plan.schema, at.view, at.deletion_entries()
    access, real = at.plan.access, real_counts(view) if at.plan.mode.postpones else {}
    buckets = [
        PlannedBucket(
            *place,
            total_buckets=real.get(place[0], 0) if place[1] == POSTPONE_BUCKET else view.total_of_bucket(place),
            files=view.files(place),
            vector_files=tuple(e.file_name for e in vectors.get(place, ())),
            masked=masked_files(vectors.get(place, ())),
            expired=access.expired(view.files(place)) if schema.primary_keys else frozenset(),
        )
        for place in view.buckets()
    ]
    if not schema.primary_keys:
        busy_files = {f.name for i in busy for f in i.inputs}
        options = append_options(schema.settings)
        return choose_append(
            buckets, options, settings, local_ms=local_ms, busy_files=busy_files, chosen=chosen, fully=fully
        )
    return choose_keyed(
        buckets,
        at.plan.compact_options,
        settings,
        key_order=key_order([f.type for f in schema.select(schema.trimmed_primary_key)]),
        local_ms=local_ms,
        busy={i.place for i in busy},
        chosen=chosen,
        fully=fully,
    )


def _remove_old(folder: PlanFolder, listing: Listing, plans: Mapping[int, Plan]) -> None:
    """Removes closed compaction plans (plans without open items), except for the newest ones. If the storage fails, no
    error is raised, and the next planner removes the plans.
    """
    closed = [n for n in sorted(plans) if n in listing.plan_numbers and listing.is_closed(plans[n])]
    with suppress(StorageError):
        for number in closed[:-KEPT_PLANS]:
            folder.remove(number, plans[number], listing)
