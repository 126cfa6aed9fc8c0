"""Computes the compaction of one bucket that an item of a plan asks for, from the present files of the bucket. If the
bucket has changed so much that the item cannot be done any more, says why.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bucketline.conf.wording import counted
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.pick import CompactUnit, drops_deletes
from bucketline.state.plans.plan import Item


@dataclass(frozen=True, slots=True)
class Obsolete:
    """Says that an item of a compaction plan cannot be done any more because the item's bucket has changed. A later
    plan looks at the bucket again.

    `inputs_gone` is true if files that the item was to compact are no longer live. `inputs_gone` is also true after the
    item itself was committed.
    """

    reason: str
    inputs_gone: bool = False


def live_inputs(
    item: Item, files: Sequence[DataFileMeta], *, total_buckets: int, vector_files: Collection[str]
) -> tuple[DataFileMeta, ...] | Obsolete:
    """Returns the metadata of the input files of an item (a planned compaction of one bucket), in the order of the
    item. Returns Obsolete if the item cannot be done any more. `files` are the live files of the bucket.

    `total_buckets` is the present number of buckets, and `vector_files` are the present index files with deletion
    vectors. Both must be the same as in the item. There is one exception: if the item is for a postpone bucket and was
    planned when the partition had no real buckets, any number of buckets is accepted.
    """
    live = {(f.file_name, f.level): f for f in files}
    missing = [f for f in item.inputs if (f.name, f.level) not in live]
    if missing:
        return Obsolete(f"{missing[0].name} is no longer live at level {missing[0].level}", inputs_gone=True)
    if total_buckets != item.total_buckets and not (item.moves_rows and item.total_buckets == 0):
        return Obsolete(f"the partition was rescaled from {item.total_buckets} to {counted(total_buckets, 'bucket')}")
    if set(vector_files) != set(item.vector_files):
        return Obsolete("rows of the bucket were deleted by other deletion vectors since the item was planned")
    return tuple(live[f.name, f.level] for f in item.inputs)


def unit_of(
    item: Item, inputs: Sequence[DataFileMeta], levels: Levels, options: CompactOptions
) -> CompactUnit | Obsolete:
    """Returns what a plan's item compacts now: its files, and the level of the result. Returns Obsolete if the
    compaction would be wrong for the present files of the bucket. `inputs` comes from `live_inputs`.

    Delete rows are dropped only if no sorted run outside of the inputs is older now. The state at the time of planning
    does not matter.
    """
    unit = CompactUnit(tuple(inputs), item.output_level, item.file_rewrite)
    reason = why_unsound(unit, levels)
    if reason is not None:
        return Obsolete(reason)
    return replace(unit, drop_deletes=drops_deletes(levels, item.output_level, options))


def why_unsound(unit: CompactUnit, levels: Levels) -> str | None:
    """Returns the reason why a compaction would be wrong for the present files of the bucket; None if the compaction is
    correct.

    The inputs of the compaction must be complete sorted runs that follow each other in age, and older rows must be on
    levels above the output level. Files that are rewritten by themselves stay on their level, so these files need not
    be a complete run.
    """
    names = {f.file_name for f in unit.files}
    if unit.file_rewrite:
        other = next((f for f in unit.files if f.level != unit.output_level), None)
        return (
            None
            if other is None
            else f"{other.file_name} would leave level {other.level} without the other files of the level"
        )
    if unit.output_level < 1:
        return f"no compaction writes to level {unit.output_level}"
    is_taken = []
    for run in levels.runs():
        inside = [f.file_name in names for f in run.run.files]
        if any(inside) and not all(inside):
            return f"it takes only a part of the sorted run on level {run.level}"
        is_taken.append(all(inside))
    if True not in is_taken:
        return "it takes no files"
    first, last = is_taken.index(True), len(is_taken) - 1 - is_taken[::-1].index(True)
    if not all(is_taken[first : last + 1]):
        return "it takes an older and a newer sorted run, but not the run between them"
    for run in levels.runs()[last + 1 :]:
        if run.level <= unit.output_level:
            return f"an older sorted run on level {run.level} would stay below the output on level {unit.output_level}"
    if any(run.level > unit.output_level for run in levels.runs()[first : last + 1]):
        return f"it takes a sorted run above its output on level {unit.output_level}"
    return None
