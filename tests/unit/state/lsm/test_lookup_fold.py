"""Folds that move only the rows that stay, against the same folds on rows that were put in order before."""

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.lsm.merge.change_rows import LEVEL, ChangeRule, split_marked
from bucketline.state.lsm.merge.deduplicate import Deduplicate
from bucketline.state.lsm.merge.fold import Fold
from bucketline.state.lsm.merge.lookup_fold import LookupFold, OlderMatches
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND


class _Asked:
    """Higher levels that have none of the keys, and note which they were asked for."""

    def __init__(self) -> None:
        self.keys: list[int] = []

    def find(self, keys: pa.Table) -> OlderMatches:
        self.keys += keys["id"].to_pylist()
        return OlderMatches(np.empty(0, np.int64), None)


def _rows(seed: int) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Rows as they lie in their runs, the order by key and age, and where keys start in that order."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 60))
    ids = draw.integers(0, 20, count)
    order = np.lexsort((np.arange(count), ids))
    table = pa.table(
        {
            "id": pa.array(ids),
            "v": pa.array([f"v{i}" for i in range(count)]),
            SEQUENCE: pa.array(np.arange(count)),
            VALUE_KIND: pa.array(draw.choice([0, 3], count).astype(np.int8)),
            LEVEL: pa.array(draw.choice([0, 0, 2, 4], count).astype(np.int32)),
        }
    )
    starts = np.append(True, np.diff(ids[order]) != 0)
    return table, order, starts


def _fold(inner: Fold, older: _Asked | None, *, stores: bool, logs: bool) -> LookupFold:
    rule = ChangeRule() if logs else None
    return LookupFold(inner, (), False, ("id",), older, rule, stores)


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize(("ignores", "logs"), [(False, False), (True, False), (False, True)])
def test_rows_fold_alike_wherever_they_lie(stores: bool, ignores: bool, logs: bool) -> None:
    for seed in range(100):
        table, order, starts = _rows(seed)
        older, expected_older = _Asked(), _Asked()
        expected = _fold(Deduplicate(ignores), expected_older, stores=stores, logs=logs).fold(table.take(order), starts)
        found = _fold(Deduplicate(ignores), older, stores=stores, logs=logs).fold_in_order(table, order, starts)
        if logs or ignores:
            assert found.equals(expected)
        else:
            (batch,) = expected.combine_chunks().to_batches() or [None]
            stored = expected.slice(0, 0).drop_columns(["_PART"]) if batch is None else split_marked(batch)[0]
            assert found.to_pylist() == stored.to_pylist()
        assert older.keys == expected_older.keys
        in_order = _fold(Deduplicate(ignores), _Asked(), stores=stores, logs=logs)
        assert in_order.fold_in_order(table.take(order), None, starts).equals(found)
