"""The merge engine `deduplicate`, which keeps the newest row of each key.

Source: Paimon 2.0 DeduplicateMergeFunction.
"""

from dataclasses import dataclass

import numpy as np

from bucketline.state.lsm.merge.fold import Indices, Kinds, Selection, Starts, eligible, ends_of, key_numbers, starts_of
from bucketline.state.lsm.merge.merging import Merging


@dataclass(frozen=True, slots=True)
class Deduplicate(Selection):
    """Keeps the last row of each key, of any row kind. If `ignore_delete` is true, the last +I or +U row is kept."""

    ignore_delete: bool = False

    def select(self, starts: Starts, kinds: Kinds) -> Indices:
        last = ends_of(starts)
        if not self.ignore_delete:
            return np.flatnonzero(last)
        candidates = eligible(starts, last, kinds)
        position = np.flatnonzero(candidates)
        return position[ends_of(starts_of(key_numbers(starts)[position]))]


@dataclass(frozen=True, slots=True)
class DeduplicateMerging(Merging):
    """The rules of a table with the merge engine `deduplicate`: every row can be merged, and replaces the previous row
    of its key.
    """

    takes_updates = True

    def fold(self) -> Deduplicate:
        return Deduplicate(self.schema.settings.merge.ignore_delete)

    def takes_deletes(self) -> bool:
        return True
