"""The columns that tell where a row lies: its file, its position there, its partition and its bucket."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.store.read.splits import SplitSizes, pack, plan_scan, read_split
from bucketline.state.store.read.table_read import ReadRequest
from bucketline.state.store.table.table import Table, create_table, handle_of

PLACES = ["__paimon_file_path", "__paimon_row_index", "__paimon_partition", "__paimon_bucket"]


def appended(path: Path, **options: str) -> Table:
    return create_table(str(path / "w/d.db/t"), "id INT, p STRING", partition_by=("p",), options=options)


def given(*ids: int, part: str = "x") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "p": pa.array([part] * len(ids), pa.string())})


def ids_at_places(table: Table, columns: list[str], **read: Any) -> None:
    """Asserts that each row that is read lies where its places say."""
    found = table.refreshed().to_arrow(columns=columns, **read).to_pylist()
    assert found
    for row in found:
        stored = pq.read_table(row["__paimon_file_path"], partitioning=None)["id"].to_pylist()
        assert stored[row["__paimon_row_index"]] == row["id"]


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_rows_lie_where_their_places_say_though_others_were_deleted(tmp_path: Path, vectors: str) -> None:
    draw = random.Random(7)
    table = appended(tmp_path, **{"deletion-vectors.enabled": vectors, "file.block-size": "1 kb"})
    for number in range(4):
        table.write(given(*(draw.sample(range(5000), 1500)), part="xy"[number % 2]))
    table.delete("id % 3 = 0")
    ids_at_places(table, ["id", *PLACES])
    ids_at_places(table, [*PLACES, "id"], filter="id > 4000 AND p = 'y'")
    ids_at_places(table, [*reversed(PLACES), "id"], filter="__paimon_row_index > 7 AND __paimon_partition.p = 'x'")


def test_places_alone_have_a_value_for_each_row_and_are_not_columns_of_the_table(tmp_path: Path) -> None:
    table = appended(tmp_path)
    table.write(given(1, 2))
    table.write(given(3, part="y"))
    table = table.refreshed()
    assert table.to_arrow().column_names == ["id", "p"]
    found = table.to_arrow(columns=PLACES[1:])
    assert found.schema.field("__paimon_partition").type == pa.struct([pa.field("p", pa.string())])
    assert sorted((row["__paimon_partition"]["p"], row["__paimon_row_index"]) for row in found.to_pylist()) == [
        ("x", 0),
        ("x", 1),
        ("y", 0),
    ]
    assert {row["__paimon_bucket"] for row in found.to_pylist()} == {0}
    with pytest.raises(SchemaMismatchError, match="unknown column '__paimon_score'; the table has id, p"):
        table.to_arrow(columns=["__paimon_score"])


def test_a_column_of_the_table_with_such_a_name_is_read_as_it_is(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "id INT, __paimon_bucket STRING")
    table.write(pa.table({"id": pa.array([1], pa.int32()), "__paimon_bucket": ["own"]}))
    assert table.refreshed().to_arrow(columns=["__paimon_bucket"]).to_pylist() == [{"__paimon_bucket": "own"}]


def test_merged_rows_have_a_partition_and_a_bucket_and_a_file_only_after_compaction(tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "t"), "id INT NOT NULL, v STRING", ("id",), options={"bucket": "3", "write-only": "true"}
    )
    for text in ("a", "b"):
        table.write(pa.table({"id": pa.array(range(20), pa.int32()), "v": [text] * 20}))
    table = table.refreshed()
    buckets = {
        row["id"]: row["__paimon_bucket"] for row in table.to_arrow(columns=["id", "__paimon_bucket"]).to_pylist()
    }
    assert set(buckets.values()) == {0, 1, 2} and len(buckets) == 20
    assert len(table.to_arrow(columns=["__paimon_bucket"])) == 20
    assert len(table.to_arrow(columns=["__paimon_partition"], filter="__paimon_bucket = 1 AND v = 'a'")) == 0
    for name in PLACES[:2]:
        with pytest.raises(UnsupportedTableError, match=f"{name} cannot be read here.*compact the table"):
            table.to_arrow(columns=[name])
    with pytest.raises(OptionError, match="table with a primary key cannot read '__paimon_bucket'"):
        table.delete("__paimon_bucket = 1")
    table.compact(strategy="full")
    ids_at_places(table, ["id", *PLACES])
    found = table.refreshed().to_arrow(columns=["id", "__paimon_bucket"]).to_pylist()
    assert {row["id"]: row["__paimon_bucket"] for row in found} == buckets


def test_postponed_rows_have_no_place(tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}
    table = create_table(str(tmp_path / "t"), "id INT NOT NULL, v STRING", ("id",), options=options)
    table.write(pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]}))
    with pytest.raises(UnsupportedTableError, match="__paimon_bucket cannot be read here"):
        bl.open_table(table.path, options={"postpone.merge-on-read": "true"}).to_arrow(columns=["__paimon_bucket"])


def test_splits_that_share_a_file_know_the_positions_of_their_rows(tmp_path: Path) -> None:
    table = appended(tmp_path, **{"file.block-size": "1 kb"})
    table.write(given(*range(4000)))
    sizes = SplitSizes(target_bytes=400, open_cost_bytes=1, least_share_bytes=100)
    scan = plan_scan(handle_of(bl.open_table(table.path)), ReadRequest(columns=["id", "__paimon_row_index"]))
    found = [row for split in pack(scan.units, sizes) for batch in read_split(scan, split) for row in batch.to_pylist()]
    assert [row["__paimon_row_index"] for row in found] == [row["id"] for row in found] == list(range(4000))
