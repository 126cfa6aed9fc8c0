"""Which fold merges rows of several levels in tables whose compactions look up older values.

Source: Paimon 2.0 LookupStrategy, LookupMergeFunction.wrap (readers of such tables merge with it too).
"""

from dataclasses import replace

from bucketline.conf.table.choices import ChangelogProducer
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.merge.aggregation import Aggregation
from bucketline.state.lsm.merge.changelog_folds import FullChangelog
from bucketline.state.lsm.merge.computed_fold import ComputedFold
from bucketline.state.lsm.merge.fold import Fold, KeepAll, Selection, fold_for
from bucketline.state.lsm.merge.lookup_fold import FirstRowLookup, LookupFold, NewestValue
from bucketline.state.lsm.merge.partial_update import PartialUpdate


def reading_fold(schema: TableSchema) -> Fold:
    """The fold of readers over a bucket's files. Raises as `fold_for`. If compactions complete rows by older ones, the
    older rows must not count again.
    """
    fold = fold_for(schema)
    if isinstance(fold, ComputedFold) and schema.settings.lookup_cause is not None:
        return NewestValue(fold)
    return fold


def sealing_fold(schema: TableSchema) -> Fold | None:
    """The fold that may merge some rows of a flush early; None if every row is needed, or there is no key."""
    if not schema.primary_keys or schema.settings.changelog.producer is ChangelogProducer.INPUT:
        return None
    return fold_for(schema)


def strict_fold(schema: TableSchema, fold: Fold) -> Fold:
    """A fold of the table for rows that are not in it yet. Where merging gives no result that a column can hold, it
    raises SchemaMismatchError: a sum that overflows. The fold itself gives null there, as it must be able to merge
    whatever a table holds.
    """
    nullable = {f.name: f.type.nullable for f in schema.fields}
    if isinstance(fold, NewestValue):
        inner = strict_fold(schema, fold.inner)
        assert isinstance(inner, ComputedFold), "a strict fold computes as the fold does"
        return replace(fold, inner=inner)
    if isinstance(fold, Aggregation):
        columns = {name: c.strict(is_nullable=nullable[name]) for name, c in fold.columns.items()}
        return replace(fold, columns=columns)
    if isinstance(fold, PartialUpdate):
        aggregates = {name: c.strict(is_nullable=nullable[name]) for name, c in (fold.aggregates or {}).items()}
        return replace(fold, aggregates=aggregates)
    return fold


def early_fold(schema: TableSchema) -> Fold:
    """The fold that may merge some runs of a flush early: that of sealing if it selects rows, else none."""
    fold = sealing_fold(schema)
    return fold if isinstance(fold, Selection) else KeepAll()


def needs_levels(fold: Fold) -> bool:
    """Whether the fold needs the column LEVEL."""
    return isinstance(fold, NewestValue | LookupFold | FirstRowLookup | FullChangelog)
