"""What a compaction does with each file of its unit: move it up as it is, rewrite it with others, or leave it.

Source: Paimon 2.0 MergeTreeCompactTask, FileRewriteCompactTask, MergeTreeCompactRewriter.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.compact_options import CompactOptions
from bucketline.state.lsm.interval import sections
from bucketline.state.lsm.pick import CompactUnit
from bucketline.state.lsm.run import KeyOrder, SortedRun


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A file that changes its level and nothing else."""

    file: DataFileMeta
    output_level: int

    @property
    def after(self) -> DataFileMeta:
        return self.file.upgraded(self.output_level)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Sections that are merged into one rolling output, in key order; runs within a section overlap."""

    sections: tuple[tuple[SortedRun, ...], ...]

    @property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(f for section in self.sections for run in section for f in run.files)


def plan_rewrite(
    unit: CompactUnit, options: CompactOptions, max_level: int, key_order: KeyOrder
) -> tuple[Upgrade | Rewrite, ...]:
    """The steps of a compaction, in key order; outputs of one step never overlap those of another.

    A file that stays where it is appears in no step, and belongs neither to the files before nor to those after.
    Raises UnsupportedTableError, naming the option, for tables whose compaction must look at older values.
    """
    _check_plain(options)
    if unit.file_rewrite:
        return tuple(_alone(f) for f in unit.files)
    steps: list[Upgrade | Rewrite] = []
    pending: list[tuple[SortedRun, ...]] = []

    def move_up(file: DataFileMeta) -> None:
        if options.force_rewrite_all_files or (unit.output_level == max_level and file.may_hold_deletes):
            steps.append(_alone(file))
        elif file.level != unit.output_level:
            steps.append(Upgrade(file, unit.output_level))

    for section in sections(unit.files, key_order):
        if len(section) > 1:
            pending.append(tuple(section))
            continue
        for file in section[0].files:
            if file.file_size < options.small_file_bytes:
                pending.append((SortedRun((file,)),))
            else:
                _settle(pending, steps, move_up)
                move_up(file)
    _settle(pending, steps, move_up)
    return tuple(steps)


def _settle(
    pending: list[tuple[SortedRun, ...]],
    steps: list[Upgrade | Rewrite],
    move_up: Callable[[DataFileMeta], None],
) -> None:
    """Turns what has gathered into a step. A lonely small file is not worth a rewrite."""
    if len(pending) == 1 and len(pending[0]) == 1:
        for file in pending[0][0].files:
            move_up(file)
    elif pending:
        steps.append(Rewrite(tuple(pending)))
    pending.clear()


def _alone(file: DataFileMeta) -> Rewrite:
    return Rewrite(((SortedRun((file,)),),))


def _check_plain(options: CompactOptions) -> None:
    cause = options.lookup_cause
    if cause is None and options.changelog_producer == "full-compaction":
        cause = "changelog-producer"
    if cause is not None:
        raise UnsupportedTableError(
            f"compaction of tables that set '{cause}' to look up older values or to compare with them is not supported",
            option=cause,
        )
