"""Chooses the fold for rows of several levels, in tables whose compactions look up older values.

Source: Paimon 2.0 LookupStrategy, LookupMergeFunction.wrap (readers of such tables merge with it too).
"""

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.changelog_folds import FullChangelog
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.fold import Fold, KeepAll, Selection
from bucketline.state.lsm.merge.lookup_fold import FirstRowLookup, LookupFold, NewestValue


def reading_fold(schema: TableSchema) -> Fold:
    """Returns the fold of readers over a bucket's files. Where compactions have completed rows from older rows, it does
    not count the older rows again. Raises the errors of `fold_for`.
    """
    fold = fold_for(schema)
    if isinstance(fold, ComputedFold) and schema.settings.lookup_cause is not None:
        return NewestValue(fold)
    return fold


def sealing_fold(schema: TableSchema) -> Fold | None:
    """Returns the fold that may merge some rows of a flush early; None if every row is needed, or there is no key."""
    if not schema.primary_keys or schema.settings.changelog.producer.logs_input:
        return None
    return fold_for(schema)


def strict_fold(fold: Fold) -> Fold:
    """Returns a fold of the table for rows that are not in it yet. It raises SchemaMismatchError if a column cannot
    hold the result, such as a sum that overflows. The plain fold gives null or an older value instead, because it must
    be able to merge whatever a table holds.
    """
    if isinstance(fold, ComputedFold | NewestValue):
        return fold.strict()
    return fold


def early_fold(schema: TableSchema) -> Fold:
    """Returns the fold that may merge some runs of a flush early: the fold that `sealing_fold` returns, if it
    selects rows; else None.
    """
    fold = sealing_fold(schema)
    return fold if isinstance(fold, Selection) else KeepAll()


def needs_levels(fold: Fold) -> bool:
    """Whether the fold needs the column LEVEL."""
    return isinstance(fold, NewestValue | LookupFold | FirstRowLookup | FullChangelog)
