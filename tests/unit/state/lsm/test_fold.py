"""Which fold a table gets, and what folds do at the edges; the general case is a property."""

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.aggregation import Aggregation
from bucketline.state.lsm.merge.deduplicate import Deduplicate
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.first_row import FirstRow
from bucketline.state.lsm.merge.fold import Fold, drop_deletes
from bucketline.state.lsm.merge.partial_update import PartialUpdate


def _fold(**options: str) -> Fold:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return fold_for(TableSchema(0, (), 0, primary_keys=("k",), options=named))


def _select(fold: Fold, keys: list[int], kinds: list[int]) -> list[int]:
    starts = np.array([i == 0 or keys[i - 1] != k for i, k in enumerate(keys)], bool)
    return [int(i) for i in fold.select(starts, np.array(kinds, np.int8))]


def test_the_merge_engine_decides() -> None:
    assert _fold() == Deduplicate()
    assert _fold(deduplicate__ignore_delete="true") == Deduplicate(ignore_delete=True)
    assert _fold(merge_engine="first-row", ignore_delete="true") == FirstRow(ignore_delete=True)
    assert _fold(merge_engine="partial-update", ignore_delete="true") == PartialUpdate(keys=("k",), ignore_delete=True)
    assert _fold(merge_engine="aggregation") == Aggregation({})


def test_first_row_has_no_sequence_field() -> None:
    with pytest.raises(OptionError, match=r"'sequence\.field'"):
        _fold(merge_engine="first-row", sequence__field="v")


def test_deduplicate_takes_the_last_row_whatever_its_kind() -> None:
    assert _select(Deduplicate(), [1, 1, 2, 3, 3], [0, 3, 1, 3, 2]) == [1, 2, 4]


def test_ignored_deletes_lose_against_any_row_but_stay_when_alone() -> None:
    assert _select(Deduplicate(ignore_delete=True), [1, 1, 2, 3, 3], [0, 3, 3, 3, 1]) == [0, 2]


def test_first_row_takes_the_first_and_refuses_retracts_in_company() -> None:
    assert _select(FirstRow(), [1, 1, 2], [0, 2, 3]) == [0, 2]
    with pytest.raises(SchemaMismatchError, match="ignore-delete"):
        _select(FirstRow(), [1, 1], [0, 3])
    assert _select(FirstRow(ignore_delete=True), [1, 1, 1, 2, 3, 3], [3, 0, 2, 3, 1, 3]) == [1, 3]


def test_no_rows_fold_to_no_rows() -> None:
    for fold in (Deduplicate(), Deduplicate(True), FirstRow(), FirstRow(True)):
        assert _select(fold, [], []) == []


def test_fold_takes_what_select_chose() -> None:
    table = pa.table({"k": [1, 1, 2], "_VALUE_KIND": pa.array([0, 2, 0], pa.int8()), "v": ["a", "b", "c"]})
    starts = np.array([True, False, True])
    assert Deduplicate().fold(table, starts)["v"].to_pylist() == ["b", "c"]
    assert FirstRow().fold(table, starts)["v"].to_pylist() == ["a", "c"]


def test_deletes_are_dropped_and_empty_batches_with_them() -> None:
    kinds = [[0, 1, 2, 3], [1, 3], [0, 2]]
    batches = [pa.record_batch({"_VALUE_KIND": pa.array(k, pa.int8())}) for k in kinds]
    found = list(drop_deletes(batches))
    assert [b.column(0).to_pylist() for b in found] == [[0, 2], [0, 2]]
    assert found[1] is batches[2]
