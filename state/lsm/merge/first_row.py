"""The merge engine `first-row`, which keeps the first row of each key.

Source: Paimon 2.0 FirstRowMergeFunction, SchemaValidation.
"""

from dataclasses import dataclass

import numpy as np

from bucketline.conf.errors import OptionError
from bucketline.conf.table.merge_options import MERGE_ENGINE, SEQUENCE_FIELD
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.lsm.merge.fold import Indices, Kinds, Selection, Starts, eligible, ends_of, key_numbers, starts_of
from bucketline.state.lsm.merge.merging import Merging
from bucketline.state.lsm.merge.row_checks import RowChecks
from bucketline.state.types.arrow import VALUE_KIND

RETRACTS_OF_FIRST_ROW = (
    "a table with merge-engine first-row takes no -D and -U rows; set 'ignore-delete' = 'true' to skip them"
)


@dataclass(frozen=True, slots=True)
class FirstRow(Selection):
    """Keeps the first row of each key. If `ignore_delete` is true, the first +I or +U row is kept. Otherwise
    SchemaMismatchError is raised if a key with several rows has a -U or -D row.
    """

    ignore_delete: bool = False

    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        candidates = eligible(starts, ends_of(starts), kinds)
        if not self.ignore_delete:
            if not candidates.all():
                raise SchemaMismatchError(RETRACTS_OF_FIRST_ROW, column=VALUE_KIND)
            return np.flatnonzero(starts)
        position = np.flatnonzero(candidates)
        return position[starts_of(key_numbers(starts)[position])]


@dataclass(frozen=True, slots=True)
class FirstRowMerging(Merging):
    """The rules of a table with the merge engine `first-row`: a row that is in the table is never changed or
    removed.
    """

    def fold(self) -> FirstRow:
        settings = self.schema.settings.merge
        if settings.sequence_fields:
            key = SEQUENCE_FIELD.key
            raise OptionError(
                f"'{key}' cannot be used with '{MERGE_ENGINE.key}' = '{settings.engine.value}'; remove '{key}'",
                key=key,
            )
        return FirstRow(settings.ignore_delete)

    def row_checks(self) -> RowChecks | None:
        return None if self.fold().ignore_delete else RowChecks(RETRACTS_OF_FIRST_ROW)
