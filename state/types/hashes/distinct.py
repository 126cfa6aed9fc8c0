"""The distinct values of integer arrays, by sorting.

numpy's own `unique` and `union1d` use a hash table since version 2.3. If most values differ, as hashes of keys do, the
hash table takes a hundred times as long as numpy's vectorised sort.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(*parts: NDArray[Any]) -> NDArray[Any]:
    """Takes integer arrays of one type, whose values have any order. Returns one array that has each value once,
    ascending.
    """
    values: NDArray[Any] = np.sort(parts[0]) if len(parts) == 1 else np.concatenate(parts)
    if len(parts) > 1:
        values.sort()
    if len(values) < 2:
        return values
    kept = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=kept[1:])
    return values[kept]
