"""When a merge read takes the age of rows from manifests instead of files, and that it finds the newest rows."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.format.data_file import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from bucketline.state.lsm.merge.aggregation import Aggregation
from bucketline.state.lsm.merge.deduplicate import Deduplicate
from bucketline.state.lsm.merge.fold import Fold
from bucketline.state.lsm.merge.run_ages import are_ages_known
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.sql.compute.condition import ALL_ROWS
from bucketline.state.store.read.merge_read import read_buckets
from bucketline.state.store.read.projection import plan_projection
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.store.read.table_read import file_access
from bucketline.state.store.table.table import create_table, handle_of, open_table

FILE = DataFileMeta(
    "data-0.parquet", 1, 3, EMPTY_ROW, EMPTY_ROW, EMPTY_STATS, EMPTY_STATS, 0, 9, 0, 0, delete_row_count=0
)
KEYED = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def _run(*ranges: tuple[int, int]) -> SortedRun:
    return SortedRun(tuple(replace(FILE, min_sequence_number=low, max_sequence_number=high) for low, high in ranges))


@pytest.mark.parametrize(
    ("runs", "known"),
    [
        ([_run((0, 9)), _run((10, 19))], True),
        ([_run((10, 19)), _run((0, 4), (2, 9))], True),
        ([_run((0, 10)), _run((10, 19))], False),
        ([_run((0, 2), (20, 29)), _run((10, 19))], False),
        ([_run((0, 9)), _run((11, 12))], False),
    ],
)
def test_ages_are_known_of_runs_that_were_written_one_after_the_other_with_a_number_for_each_row(
    runs: list[SortedRun], known: bool
) -> None:
    assert are_ages_known(runs, Deduplicate()) == known


def test_ages_of_runs_are_not_enough_where_values_are_computed() -> None:
    fold: Fold = Aggregation({})
    assert not are_ages_known([_run((0, 9)), _run((10, 19))], fold)


def test_the_newest_row_of_each_key_is_read_with_and_without_deletes(tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "w.db" / "t"), KEYED, primary_key=["k"], options={"bucket": "1", "write-only": "true"}
    )
    table.write(pa.table({"k": [1, 2, 3], "v": ["a", "a", "a"]}))
    table.write(pa.table({"k": [3, 2], "v": ["b", "b"]}))
    assert open_table(table.path).to_arrow().to_pydict() == {"k": [1, 2, 3], "v": ["a", "b", "b"]}
    table.write(pa.table({"k": [3, 1], "v": ["c", "c"], "_row_kind": pa.array([3, 2], pa.int8())}))
    assert open_table(table.path).to_arrow().to_pydict() == {"k": [1, 2], "v": ["c", "b"]}


def test_deletes_that_a_writer_did_not_count_are_deletes(tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "w.db" / "t"), KEYED, primary_key=["k"], options={"bucket": "1", "write-only": "true"}
    )
    table.write(pa.table({"k": [1, 2, 3], "v": ["a", "a", "a"]}))
    table.write(pa.table({"k": [2, 3], "v": ["b", "b"], "_row_kind": pa.array([3, 2], pa.int8())}))
    handle = handle_of(table)
    snapshot = handle.snapshot_store.latest()
    assert snapshot is not None
    schema = handle.table_schema
    access = file_access(handle, schema, ())
    buckets = [
        replace(b, files=tuple(replace(f, delete_row_count=0) for f in b.files))
        for b in group_by_bucket(handle.manifests.live_entries(snapshot))
    ]
    found = pa.Table.from_batches(read_buckets(access, buckets, plan_projection(schema, None, ALL_ROWS)))
    assert found.to_pydict() == {"k": [1, 3], "v": ["a", "b"]}
