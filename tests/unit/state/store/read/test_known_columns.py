"""What a merge read takes from manifests instead of files, and that it finds the newest rows all the same."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from bucketline.state.lsm.merge.aggregation import Aggregation
from bucketline.state.lsm.merge.fold import Deduplicate, Fold
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.store.read.known_columns import known_columns, with_known
from bucketline.state.store.table.table import create_table, open_table
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND

FILE = DataFileMeta(
    "data-0.parquet", 1, 1, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 9, 0, 0, delete_row_count=0
)


def _run(*ranges: tuple[int, int], deletes: int | None = 0) -> SortedRun:
    return SortedRun(
        tuple(
            replace(FILE, min_sequence_number=low, max_sequence_number=high, delete_row_count=deletes)
            for low, high in ranges
        )
    )


@pytest.mark.parametrize(
    ("runs", "known"),
    [
        ([_run((0, 9)), _run((10, 19))], {SEQUENCE, VALUE_KIND}),
        ([_run((10, 19)), _run((0, 4), (2, 9))], {SEQUENCE, VALUE_KIND}),
        ([_run((0, 10)), _run((10, 19))], {VALUE_KIND}),
        ([_run((0, 2), (20, 29)), _run((10, 19))], {VALUE_KIND}),
        ([_run((0, 9)), _run((10, 19), deletes=1)], {SEQUENCE}),
        ([_run((0, 9)), _run((10, 19), deletes=None)], {SEQUENCE}),
    ],
)
def test_what_is_known_of_runs_without_deletes_that_were_written_one_after_the_other(
    runs: list[SortedRun], known: set[str]
) -> None:
    assert known_columns(runs, Deduplicate()) == known


def test_nothing_is_known_where_values_are_computed() -> None:
    fold: Fold = Aggregation({})
    assert known_columns([_run((0, 9)), _run((10, 19))], fold) == set()


def test_known_columns_come_in_their_places() -> None:
    out = pa.schema([("k", pa.int64()), (SEQUENCE, pa.int64()), (VALUE_KIND, pa.int8()), ("v", pa.string())])
    file = replace(FILE, min_sequence_number=7)
    batches = [pa.record_batch({"v": ["a", "b"], "k": [1, 2]})]
    (found,) = with_known(batches, file, out, {SEQUENCE, VALUE_KIND})
    assert found.schema == out
    assert found.to_pydict() == {"k": [1, 2], SEQUENCE: [7, 7], VALUE_KIND: [0, 0], "v": ["a", "b"]}


def test_the_newest_row_of_each_key_is_read_with_and_without_deletes(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    table = create_table(
        str(tmp_path / "w.db" / "t"), schema, primary_key=["k"], options={"bucket": "1", "write-only": "true"}
    )
    table.write(pa.table({"k": [1, 2, 3], "v": ["a", "a", "a"]}))
    table.write(pa.table({"k": [3, 2], "v": ["b", "b"]}))
    assert open_table(table.path).to_arrow().to_pydict() == {"k": [1, 2, 3], "v": ["a", "b", "b"]}
    table.write(pa.table({"k": [3, 1], "v": ["c", "c"], "_row_kind": pa.array([3, 2], pa.int8())}))
    assert open_table(table.path).to_arrow().to_pydict() == {"k": [1, 2], "v": ["c", "b"]}
