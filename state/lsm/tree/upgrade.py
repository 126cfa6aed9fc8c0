"""Decides for each file of a compaction whether it only moves to a higher level (an upgrade), is rewritten together
with others, or stays unchanged.

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
    """A file that moves to a higher level without being rewritten.

    If `compares` is true, the rows of the file are read nevertheless. Then their changes are written to the changelog,
    or the older rows of their keys are marked as deleted.
    """

    file: DataFileMeta
    output_level: int
    compares: bool = False

    @property
    def after(self) -> DataFileMeta:
        return self.file.upgraded(self.output_level)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Sections that are merged one after the other, in key order, into new files of the target size. Within a section,
    the key ranges of the sorted runs overlap.
    """

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
    """Divides the compaction `unit` into steps, and returns the steps in key order. A step moves one file to the output
    level (Upgrade) or merges files into new files (Rewrite). The outputs of two steps never overlap in their keys.
    `key_order` makes keys comparable.

    A file that stays on its level is in no step, and counts neither as removed nor as new. `expired` has the names of
    files with expired rows. Such files are rewritten and not only moved, so that the rows are dropped.
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
    """Turns the sections in `pending` into one step, a rewrite, adds the step to `steps`, and empties `pending`. (A
    section is a list of sorted runs whose key ranges overlap.) If there is only a single sorted run in `pending`,
    nothing has to be rewritten, and `move_up` is called for the files of this run instead.
    """
    if len(pending) == 1 and len(pending[0]) == 1:
        for file in pending[0][0].files:
            move_up(file)
    elif pending:
        steps.append(Rewrite(tuple(pending), drop_deletes))
    pending.clear()


def _alone(file: DataFileMeta, drop_deletes: bool) -> Rewrite:
    return Rewrite(((SortedRun((file,)),),), drop_deletes)


def _moved_up(file: DataFileMeta, level: int, options: CompactOptions, max_level: int) -> Upgrade | Rewrite:
    """Returns the step that moves a file to a level. Normally the step is an upgrade: the file stays as it is, and only
    its level changes. In an upgrade, the rows of the file are compared with older rows if changes are logged or older
    rows are looked up.

    The step is a rewrite of this file alone if the level has another file format, if the file has deletes that deletion
    vectors replace, or if its rows must be merged with older values.
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
    # Values from an older row that was looked up must be written to the file. Only with deletion vectors may deletes be
    # dropped below the last level.
    return _alone(file, options.deletion_vectors)
