"""Decides when a compaction plan is due, which buckets become items of the plan, in which order, and with which input
files.

`lsm.tree.pick` finds the compaction that a bucket needs. A strategy only decides which of these compactions the plan
takes, and in which order. Times are local times, like the creation times of files.
Source: Paimon 2.0 CompactProcedure (partition_idle_time); Hudi 1.x, for the names of strategies and triggers.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from bucketline.conf.plan_options import PlanOptions, PlanTrigger, Strategy
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.lsm.tree.append_pick import AppendCompactOptions, pick_append
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.pick import CompactUnit, last_full_ms, pick_compaction, pick_full, pick_level0
from bucketline.state.lsm.tree.run import ToComparable
from bucketline.state.plans.item_unit import why_unsound
from bucketline.state.plans.plan import InputFile, Item

PartitionTest = Callable[[bytes], bool]
BucketTest = Callable[[tuple[bytes, int]], bool]


@dataclass(frozen=True, slots=True)
class PlannedBucket:
    """A bucket that may become an item of a plan: its live files, the index files with its deletion vectors
    (`vector_files`), and the names of the data files that have a deletion vector (`masked`). `expired` has the names of
    the data files with expired rows. For a postpone bucket, `total_buckets` is the number of real buckets of the
    partition.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    files: tuple[DataFileMeta, ...]
    vector_files: tuple[str, ...] = ()
    masked: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()

    @property
    def place(self) -> tuple[bytes, int]:
        return self.partition, self.bucket


@dataclass(frozen=True, slots=True)
class _Choice:
    """A possible compaction of a bucket. Compactions with a larger `urgency` come first."""

    bucket: PlannedBucket
    unit: CompactUnit
    urgency: tuple[float, ...]


def choose_keyed(
    buckets: Iterable[PlannedBucket],
    options: CompactOptions,
    plan: PlanOptions,
    *,
    key_order: ToComparable,
    local_ms: int,
    busy: Collection[tuple[bytes, int]] = (),
    chosen: PartitionTest = lambda partition: True,
    fully: BucketTest = lambda place: False,
) -> tuple[Item, ...]:
    """Returns the items of a plan for a table with a primary key. An item is the compaction of one bucket. The most
    urgent item comes first, and each bucket has at most one item.

    - `busy` are the buckets that have an open item in an earlier plan.
    - `chosen` returns True for the partitions to look at.
    - `fully` returns True for the buckets that are compacted fully under any strategy.

    Items that move rows out of postpone buckets come first under any strategy, because readers do not see these rows
    yet. If a partition has an item that moves rows, the partition has no other item.
    """
    looked_at = _looked_at(buckets, plan, local_ms, chosen)
    is_full = partial(_is_fully_due, options=options, plan=plan, key_order=key_order, local_ms=local_ms, fully=fully)
    moves = _moves(looked_at, options.num_levels - 1, busy, is_full)
    moving = {c.bucket.partition for c in moves} | {partition for partition, n in busy if n == POSTPONE_BUCKET}
    choices = list(moves)
    for b in looked_at:
        if b.place in busy or b.bucket < 0 or b.partition in moving:
            continue
        levels = Levels.from_files(b.files, options.num_levels, key_order)
        must_rewrite = b.expired | (b.masked if options.deletion_vectors else frozenset())
        full = fully(b.place) or fully((b.partition, POSTPONE_BUCKET))
        unit = _unit(levels, options, plan, must_rewrite, local_ms, full=full)
        if unit is not None:
            assert why_unsound(unit, levels) is None, why_unsound(unit, levels)
            choices.append(_Choice(b, unit, _urgency(levels, plan)))
    return _within_budget(choices, plan.max_bytes)


def _moves(
    buckets: Sequence[PlannedBucket],
    last_level: int,
    busy: Collection[tuple[bytes, int]],
    is_full: Callable[[PlannedBucket], bool],
) -> list[_Choice]:
    """Returns a possible compaction for each postpone bucket whose rows are to be moved to real buckets.

    A partition is left out if one of its buckets has an open item (a planned compaction that is not finished): moving
    the rows would make the work on the item useless. If `is_full` returns True for a bucket of the partition, the
    move also compacts the real buckets of the partition fully, to `last_level`.
    """
    busy_partitions = {partition for partition, _ in busy}
    waiting = [b for b in buckets if b.bucket == POSTPONE_BUCKET and b.partition not in busy_partitions]
    partitions = {b.partition for b in waiting}
    full = {b.partition for b in buckets if b.partition in partitions and is_full(b)}
    return [
        _Choice(b, CompactUnit(b.files, last_level if b.partition in full else 0), (inf, float(len(b.files))))
        for b in waiting
    ]


def _is_fully_due(
    b: PlannedBucket,
    *,
    options: CompactOptions,
    plan: PlanOptions,
    key_order: ToComparable,
    local_ms: int,
    fully: BucketTest,
) -> bool:
    """Returns True if a bucket is to be compacted fully now: because of the strategy, because `fully` says so, or
    because the last full compaction was too long ago.
    """
    if plan.strategy is Strategy.FULL or fully(b.place):
        return True
    if b.bucket < 0 or plan.full_after_ms is None:
        return False
    return _is_old(Levels.from_files(b.files, options.num_levels, key_order), plan, local_ms)


def choose_append(
    buckets: Iterable[PlannedBucket],
    options: AppendCompactOptions,
    plan: PlanOptions,
    *,
    local_ms: int,
    busy_files: Collection[str] = (),
    chosen: PartitionTest = lambda partition: True,
    fully: BucketTest = lambda place: False,
) -> tuple[Item, ...]:
    """Returns the items (parts of the work) of a compaction plan for an append table. Each item joins a group of small
    files that follow each other. A bucket may have several items, because these items do not depend on each other.

    `busy_files` are the input files of items of earlier plans that are not done yet; these files are left alone.
    `chosen` returns True for the partitions to look at, and `fully` returns True for the buckets that are compacted
    fully.
    """
    choices = []
    for b in _looked_at(buckets, plan, local_ms, chosen):
        for group in pick_append(b.files, options, full=plan.strategy is Strategy.FULL or fully(b.place)):
            if not any(f.file_name in busy_files for f in group):
                choices.append(_Choice(b, CompactUnit(group, 0), (float(len(group)),)))
    return _within_budget(choices, plan.max_bytes)


def is_due(plan: PlanOptions, *, commits: int, since_last_ms: int | None) -> bool:
    """Returns True if a writer must make a plan after its commit number `commits`, counted from 1. `since_last_ms` is
    the time since any writer made the last plan; None if there is no plan yet.
    """
    by_commits = commits % plan.commits == 0
    by_time = since_last_ms is None or since_last_ms >= plan.interval_ms
    if plan.trigger is PlanTrigger.COMMITS:
        return by_commits
    if plan.trigger is PlanTrigger.TIME:
        return by_time
    return by_commits and by_time if plan.trigger is PlanTrigger.BOTH else by_commits or by_time


def _looked_at(
    buckets: Iterable[PlannedBucket], plan: PlanOptions, local_ms: int, chosen: PartitionTest
) -> list[PlannedBucket]:
    candidates = sorted((b for b in buckets if b.files and chosen(b.partition)), key=lambda b: b.place)
    if plan.partition_idle_ms is None:
        return candidates
    newest: dict[bytes, int] = {}
    for b in candidates:
        made = max((f.creation_time_ms or 0 for f in b.files), default=0)
        newest[b.partition] = max(newest.get(b.partition, 0), made)
    return [b for b in candidates if local_ms - newest[b.partition] >= plan.partition_idle_ms]


def _unit(
    levels: Levels,
    options: CompactOptions,
    plan: PlanOptions,
    must_rewrite: frozenset[str],
    local_ms: int,
    *,
    full: bool,
) -> CompactUnit | None:
    if _is_old(levels, plan, local_ms):
        whole = pick_full(levels, options, must_rewrite=must_rewrite)
        if whole is not None:
            return whole
    if full or plan.strategy is Strategy.FULL:
        return pick_full(levels, options, must_rewrite=must_rewrite)
    if plan.strategy is Strategy.LEVEL_0:
        return pick_level0(levels, options, local_ms) if len(levels.level0) >= plan.min_runs else None
    if plan.strategy is Strategy.SIZE_AMPLIFICATION:
        enough = len(levels.runs()) > 1 and _amplification(levels) >= plan.min_amplification_percent
        return pick_full(levels, options) if enough else None
    if plan.strategy is Strategy.READ_AMPLIFICATION and len(levels.runs()) < plan.min_runs:
        return None
    picked = pick_compaction(levels, options, local_ms)
    if picked is None and plan.strategy is Strategy.READ_AMPLIFICATION and len(levels.runs()) > 1:
        return pick_full(levels, options)
    return picked


def _is_old(levels: Levels, plan: PlanOptions, local_ms: int) -> bool:
    """Returns True if the last full compaction was longer ago than the plan's options allow."""
    if plan.full_after_ms is None:
        return False
    full_ms = last_full_ms(levels)
    return full_ms is None or local_ms - full_ms >= plan.full_after_ms


def _urgency(levels: Levels, plan: PlanOptions) -> tuple[float, ...]:
    runs, level0 = float(len(levels.runs())), float(len(levels.level0))
    if plan.strategy is Strategy.SIZE_AMPLIFICATION:
        return _amplification(levels), runs
    if plan.strategy is Strategy.LEVEL_0:
        return level0, runs
    return runs, level0


def _amplification(levels: Levels) -> float:
    """Returns the total size of all sorted runs except the oldest, in percent of the size of the oldest run."""
    *newer, oldest = levels.runs()
    return 100.0 * sum(r.size_bytes for r in newer) / max(1, oldest.size_bytes)


def _within_budget(choices: Sequence[_Choice], max_bytes: int | None) -> tuple[Item, ...]:
    """Returns the most urgent choices as numbered items, as long as their total size is at most `max_bytes`. The first
    choice is always taken, even if it is larger.
    """
    ordered = sorted(choices, key=lambda c: (tuple(-u for u in c.urgency), c.bucket.place, c.unit.files[0].file_name))
    items: list[Item] = []
    left = max_bytes
    for c in ordered:
        size = sum(f.file_size for f in c.unit.files)
        if items and left is not None and size > left:
            continue
        left = None if left is None else left - size
        items.append(
            Item(
                number=len(items),
                partition=c.bucket.partition,
                bucket=c.bucket.bucket,
                total_buckets=c.bucket.total_buckets,
                inputs=tuple(InputFile.of(f) for f in c.unit.files),
                output_level=c.unit.output_level,
                file_rewrite=c.unit.file_rewrite,
                vector_files=tuple(sorted(c.bucket.vector_files)),
            )
        )
    return tuple(items)
