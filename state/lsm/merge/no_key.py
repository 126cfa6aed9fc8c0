"""Tables without a primary key: no row is merged with another."""

from dataclasses import dataclass

from bucketline.state.lsm.merge.fold import Fold, KeepAll
from bucketline.state.lsm.merge.merging import Merging


@dataclass(frozen=True, slots=True)
class NoKey(Merging):
    """The engine of a table where nothing is merged: every row stays, in any order, and a changed row is written as it
    is."""

    takes_updates = True

    def fold(self) -> Fold:
        return KeepAll()

    def order_matters(self) -> bool:
        return False

    def takes_deletes(self) -> bool:
        return True
