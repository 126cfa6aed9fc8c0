"""The aggregate functions bool_and and bool_or.

Source: Paimon 2.0 FieldBoolAndAgg, FieldBoolOrAgg.
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.aggregate.events import Events, Indices, Mask, validity
from bucketline.state.lsm.aggregate.function import AggregateFunction
from bucketline.state.types.logical import TypeRoot


class _Logic(AggregateFunction):
    """Base class of bool_and and bool_or, which ignore nulls."""

    __slots__ = ()

    takes = frozenset({TypeRoot.BOOLEAN})
    commutes = True

    def fold(self, values: pa.Array, events: Events) -> pa.Array:
        live = validity(values) & events.live
        holds = self._holds(values.fill_null(False).to_numpy(zero_copy_only=False), live, events.starts)
        return pa.array(holds, mask=~np.logical_or.reduceat(live, events.starts))

    @abstractmethod
    def _holds(self, values: np.ndarray, live: Mask, starts: Indices) -> np.ndarray:
        """Returns a boolean for each key: whether all values of the key are true (bool_and), or at least one value
        (bool_or). `live` marks the values that count, and `starts` has the index of the first row of each key.
        """


@dataclass(frozen=True, slots=True)
class BoolAnd(_Logic):
    """True if all values are true."""

    names = ("bool_and",)

    def _holds(self, values: np.ndarray, live: Mask, starts: Indices) -> np.ndarray:
        return np.logical_and.reduceat(values | ~live, starts)


@dataclass(frozen=True, slots=True)
class BoolOr(_Logic):
    """True if at least one value is true."""

    names = ("bool_or",)

    def _holds(self, values: np.ndarray, live: Mask, starts: Indices) -> np.ndarray:
        return np.logical_or.reduceat(values & live, starts)
