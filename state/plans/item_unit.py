"""Finds the compact unit of an item in the present state of its bucket, or why the item has no compact unit any
more.
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
    """The bucket has changed, and the item cannot be done any more; a later plan looks at it anew.

    `inputs_gone` says that input files no longer exist, as after the item's own commit.
    """

    reason: str
    inputs_gone: bool = False


def live_inputs(
    item: Item, files: Sequence[DataFileMeta], *, total_buckets: int, vector_files: Collection[str]
) -> tuple[DataFileMeta, ...] | Obsolete:
    """Returns the item's input files among the bucket's live ones, in the item's order.

    `total_buckets` and `vector_files` are the bucket's present ones, which must equal those in the item. Rows of a
    postpone bucket may go to any number of buckets if there were none before.
    """
    live = {(f.file_name, f.level): f for f in files}
    missing = [f for f in item.inputs if (f.name, f.level) not in live]
    if missing:
        return Obsolete(f"{missing[0].name} is no longer live at level {missing[0].level}", inputs_gone=True)
    if total_buckets != item.total_buckets and not (item.moves_rows and item.total_buckets == 0):
        return Obsolete(f"the partition was rescaled from {item.total_buckets} to {counted(total_buckets, 'bucket')}")
    if set(vector_files) != set(item.vector_files):
        return Obsolete("rows of the bucket were deleted by other deletion vectors since it was planned")
    return tuple(live[f.name, f.level] for f in item.inputs)


def unit_of(
    item: Item, inputs: Sequence[DataFileMeta], levels: Levels, options: CompactOptions
) -> CompactUnit | Obsolete:
    """Returns the item's compact unit in the bucket's tree as it is now.

    Deletes are dropped only if no older run is outside of the unit now; the state when the item was planned does not
    matter.
    """
    unit = CompactUnit(tuple(inputs), item.output_level, item.file_rewrite)
    reason = why_unsound(unit, levels)
    if reason is not None:
        return Obsolete(reason)
    return replace(unit, drop_deletes=drops_deletes(levels, item.output_level, options))


def why_unsound(unit: CompactUnit, levels: Levels) -> str | None:
    """Returns why a unit must not be compacted in this tree; None when it may be.

    Its inputs must be whole runs, contiguous in age, and older rows must lie on levels above the output. Files that are
    rewritten alone stay on their level, so they need not be a whole run.
    """
    names = {f.file_name for f in unit.files}
    if unit.file_rewrite:
        other = next((f for f in unit.files if f.level != unit.output_level), None)
        return None if other is None else f"{other.file_name} would leave level {other.level} by itself"
    if unit.output_level < 1:
        return f"level {unit.output_level} is no level that a compaction writes to"
    is_taken = []
    for run in levels.runs():
        inside = [f.file_name in names for f in run.run.files]
        if any(inside) and not all(inside):
            return f"it takes a part of the run on level {run.level}"
        is_taken.append(all(inside))
    if True not in is_taken:
        return "it takes no file"
    first, last = is_taken.index(True), len(is_taken) - 1 - is_taken[::-1].index(True)
    if not all(is_taken[first : last + 1]):
        return "an older and a newer run are taken, and one between them is not"
    for run in levels.runs()[last + 1 :]:
        if run.level <= unit.output_level:
            return f"an older run on level {run.level} stays below the output on level {unit.output_level}"
    if any(run.level > unit.output_level for run in levels.runs()[first : last + 1]):
        return f"it takes a run above its output on level {unit.output_level}"
    return None
