"""Chooses the fold (the function that merges the rows of each key) for readers and writers. In tables whose compactions
look up older values, rows of several levels are merged in a different way.

Source: Paimon 2.0 LookupStrategy, LookupMergeFunction.wrap (readers of such tables merge with this function, too).
"""

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.changelog_folds import FullChangelog
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.fold import Fold, KeepAll, Selection
from bucketline.state.lsm.merge.lookup_fold import FirstRowLookup, LookupFold, NewestValue


def reading_fold(schema: TableSchema) -> Fold:
    """Returns the fold (a function that merges the rows of each key) with which readers merge the files of a bucket.
    If compactions have already merged older rows into newer rows, the fold does not count the older rows again.
    Raises the errors of `fold_for`.
    """
    fold = fold_for(schema)
    if isinstance(fold, ComputedFold) and schema.settings.lookup_cause is not None:
        return NewestValue(fold)
    return fold


def sealing_fold(schema: TableSchema) -> Fold | None:
    """Returns a fold (a function that merges the rows of each key) with which a task may merge some rows of a batch
    before the other rows have arrived. Returns None if every row is needed later, or if the table has no primary key.
    """
    if not schema.primary_keys or schema.settings.changelog.producer.logs_input:
        return None
    return fold_for(schema)


def strict_fold(fold: Fold) -> Fold:
    """Returns a variant of a fold (which merges the rows of a key into one row) for rows that are not in the table yet.
    The variant raises SchemaMismatchError if a column cannot hold the result, for example if a sum overflows. The given
    fold returns null or an older value instead, because it must be able to merge all rows that are in a table.
    """
    if isinstance(fold, ComputedFold | NewestValue):
        return fold.strict()
    return fold


def early_fold(schema: TableSchema) -> Fold:
    """Returns a fold (a function that merges the rows of each key) for some sorted runs of a batch, before the other
    sorted runs are known. This is the fold of `sealing_fold` if that fold selects one row of each key; otherwise it is
    `KeepAll`, which keeps every row.
    """
    fold = sealing_fold(schema)
    return fold if isinstance(fold, Selection) else KeepAll()


def needs_levels(fold: Fold) -> bool:
    """Returns True if the input of the fold must have the column LEVEL, which has the level of the file from which a
    row comes.
    """
    return isinstance(fold, NewestValue | LookupFold | FirstRowLookup | FullChangelog)
