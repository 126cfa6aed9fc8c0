"""Decides for each file of a compact unit whether the compaction upgrades it, rewrites it with others, or leaves it.

Source: Paimon 2.0 MergeTreeCompactTask, FileRewriteCompactTask, MergeTreeCompactRewriter,
LookupMergeTreeCompactRewriter, FullChangelogMergeTreeCompactRewriter.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.interval import sections
from bucketline.state.lsm.tree.pick import CompactUnit
from bucketline.state.lsm.tree.run import SortedRun, ToComparable


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A file that changes its level and nothing else.

    With `compares` its rows are read nevertheless: their changes are logged, and older rows are marked as deleted.
    """

    file: DataFileMeta
    output_level: int
    compares: bool = False

    @property
    def after(self) -> DataFileMeta:
        return self.file.upgraded(self.output_level)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Sections that are merged into one rolling output, in key order; runs within a section overlap."""

    sections: tuple[tuple[SortedRun, ...], ...]
    drop_deletes: bool = False

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(f for section in self.sections for run in section for f in run.files)


def plan_rewrite(
    unit: CompactUnit,
    options: CompactOptions,
    max_level: int,
    key_order: ToComparable,
    expired: Collection[str] = (),
) -> tuple[Upgrade | Rewrite, ...]:
    """Returns the steps of a compaction, in key order; outputs of one step never overlap those of another.

    A file that stays on its level is in no step, and belongs neither to the removed files nor to the new ones.
    `expired` names files with rows that are to be dropped, so that they are not only moved.
    """
    if unit.file_rewrite:
        return tuple(_alone(f, unit.drop_deletes) for f in unit.files)
    steps: list[Upgrade | Rewrite] = []
    pending: list[tuple[SortedRun, ...]] = []

    def move_up(file: DataFileMeta) -> None:
        loses_deletes = unit.output_level == max_level and file.may_hold_deletes
        if options.force_rewrite_all_files or loses_deletes or file.file_name in expired:
            steps.append(_alone(file, unit.drop_deletes))
        elif file.level != unit.output_level:
            steps.append(_moved_up(file, unit.output_level, options, max_level))

    for section in sections(unit.files, key_order):
        if len(section) > 1:
            pending.append(tuple(section))
            continue
        for file in section[0].files:
            if file.file_size < options.small_file_bytes:
                pending.append((SortedRun((file,)),))
            else:
                _settle(pending, steps, move_up, unit.drop_deletes)
                move_up(file)
    _settle(pending, steps, move_up, unit.drop_deletes)
    return tuple(steps)


def _settle(
    pending: list[tuple[SortedRun, ...]],
    steps: list[Upgrade | Rewrite],
    move_up: Callable[[DataFileMeta], None],
    drop_deletes: bool,
) -> None:
    """Turns the collected files into a step that rewrites all of them. A single small file is only moved up."""
    if len(pending) == 1 and len(pending[0]) == 1:
        for file in pending[0][0].files:
            move_up(file)
    elif pending:
        steps.append(Rewrite(tuple(pending), drop_deletes))
    pending.clear()


def _alone(file: DataFileMeta, drop_deletes: bool) -> Rewrite:
    return Rewrite(((SortedRun((file,)),),), drop_deletes)


def _moved_up(file: DataFileMeta, level: int, options: CompactOptions, max_level: int) -> Upgrade | Rewrite:
    """Returns the step that moves a file to a level. It is an upgrade, whose rows are compared if their changes are
    logged or looked up. Or it is a rewrite of this file alone, if the file may not stay as it is: its format differs,
    it has deletes that deletion vectors replace, or its rows need older values.
    """
    if options.changelog_producer.logs_full_compactions:
        return Upgrade(file, level, compares=level == max_level)
    if options.lookup_cause is None or file.level != 0:
        return Upgrade(file, level)
    same_format = options.format_of(file.level) == options.format_of(level)
    hides_deletes = options.deletion_vectors and file.may_hold_deletes
    whole_rows = level == max_level or (options.merge_engine.keeps_newest and not options.has_sequence_field)
    if same_format and not hides_deletes and whole_rows:
        return Upgrade(file, level, compares=True)
    # What a looked-up row adds must be in the file; only with deletion vectors may deletes be dropped below the last
    # level.
    return _alone(file, options.deletion_vectors)
