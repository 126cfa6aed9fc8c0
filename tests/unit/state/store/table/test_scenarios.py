"""Acceptance scenarios that need no Spark: what is seen after the statements, with the numbers they were measured
at."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table

ORDERS = pa.schema([pa.field("order_id", pa.int64()), ("price", pa.decimal128(32, 2)), ("ts", pa.timestamp("ms"))])
KV = pa.schema([pa.field("pk", pa.int32(), nullable=False), ("v", pa.int32()), ("pt", pa.int32())])


def orders(*ids: int) -> pa.Table:
    return pa.table({"order_id": list(ids), "price": [None] * len(ids), "ts": [None] * len(ids)}, schema=ORDERS)


def kv(*triples: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(KV.names, t, strict=True)) for t in triples], schema=KV)


def make(
    path: Path, schema: pa.Schema, *, key: tuple[str, ...] = (), by: tuple[str, ...] = (), **options: str
) -> Table:
    return create_table(
        str(path / "shop.db" / "t"), schema, key, by, {k.replace("_", "-"): v for k, v in options.items()}
    )


def snapshots(table: Table) -> list[tuple[str, int, int]]:
    columns = ("commit_kind", "total_record_count", "delta_record_count")
    return [tuple(s[c] for c in columns) for s in table.snapshots().to_pylist()]  # type: ignore[misc]


def files(table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.files().sort_by([("bucket", "ascending"), ("level", "descending"),
                                                         ("min_sequence_number", "ascending")]).to_pylist()  # fmt: skip
    return found


def test_5_bucketed_append(tmp_path: Path) -> None:
    table = make(tmp_path, ORDERS, bucket="2", bucket_key="order_id")
    table.write(orders(1))
    table.write(orders(2, 3))
    assert snapshots(table) == [("APPEND", 1, 1), ("APPEND", 3, 2)]
    assert [(f["bucket"], f["record_count"], f["level"], f["min_key"]) for f in files(table)] == [
        (0, 1, 0, None),
        (0, 1, 0, None),
        (1, 1, 0, None),
    ]
    assert sorted(table.to_arrow()["order_id"].to_pylist()) == [1, 2, 3]


def test_6_a_bucket_key_without_a_bucket_count_leaves_no_table(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        make(tmp_path, ORDERS, bucket="-1", bucket_key="order_id")
    assert caught.value.message == (
        "Cannot define 'bucket-key' with bucket = -1, please remove the 'bucket-key' setting or "
        "specify a bucket number."
    )
    assert not (tmp_path / "shop.db").exists()


def test_7_dynamic_buckets_with_deletes_and_a_full_compaction(tmp_path: Path) -> None:
    table = make(tmp_path, ORDERS, key=("order_id",))
    for ids in ((1,), (2, 3), (4, 5, 6, 7)):
        table.write(orders(*ids))
    table.write(orders(2, 3), pa.array([3, 3], pa.int8()))
    assert sum(f["deleteRowCount"] for f in files(table)) == 2
    table.compact()
    assert snapshots(table) == [
        ("APPEND", 1, 1),
        ("APPEND", 3, 2),
        ("APPEND", 7, 4),
        ("APPEND", 9, 2),
        ("COMPACT", 5, -4),
    ]
    assert sorted(table.to_arrow()["order_id"].to_pylist()) == [1, 4, 5, 6, 7]
    assert {f["level"] for f in files(table)} == {5}
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    assert sum(e.row_count for e in handle_of(table).manifests.read_index(newest.index_manifest)) == 7


def test_8_and_9_the_target_bounds_each_bucket_and_means_nothing_for_fixed_ones(tmp_path: Path) -> None:
    for target in ("2", "3"):
        table = make(tmp_path / target, KV, key=("pk",), **{"dynamic-bucket.target-row-num": target})
        table.write(kv((1, 10, 1)))
        table.write(kv(*((i, 10, 1) for i in range(2, 7))))
        table.write(kv((1, 11, 1)))
        newest = handle_of(table).snapshot_store.latest()
        assert newest is not None
        index = handle_of(table).manifests.read_index(newest.index_manifest)
        assert max(e.row_count for e in index) <= int(target) and sum(e.row_count for e in index) == 6
        assert table.to_arrow().num_rows == 6
    fixed = make(tmp_path / "fixed", KV, key=("pk",), bucket="1", **{"dynamic-bucket.target-row-num": "3"})
    fixed.write(kv(*((i, 10, 1) for i in range(5))))
    assert {f["bucket"] for f in files(fixed)} == {0}


def test_19_dynamic_buckets_under_a_key_with_its_partition(tmp_path: Path) -> None:
    table = make(tmp_path, KV, key=("pk", "pt"), by=("pt",), **{"dynamic-bucket.target-row-num": "2"})
    table.write(kv((1, 10, 1), (2, 20, 1), (3, 30, 1), (4, 40, 1)))
    table.write(kv((1, 11, 2)))
    assert table.to_arrow().num_rows == 5
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    assert max(e.row_count for e in handle_of(table).manifests.read_index(newest.index_manifest)) == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (1, 11, 2)),
        ({"merge-engine": "partial-update"}, (1, 11, 1)),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, (1, 21, 1)),
    ],
)
def test_20_upserts_across_partitions(options: dict[str, str], expected: tuple[int, int, int], tmp_path: Path) -> None:
    table = make(tmp_path, KV, key=("pk",), by=("pt",), **options)
    table.write(kv((1, 10, 1), (2, 20, 1), (3, 30, 1), (4, 40, 1)))
    table.write(kv((1, 11, 2)))
    assert sorted(tuple(r.values()) for r in table.to_arrow().to_pylist())[0] == expected
    assert table.to_arrow().num_rows == 4
    assert snapshots(table)[1][2] == (2 if not options else 1)
    if not options:
        assert [f["deleteRowCount"] for f in files(table) if "pt=1" in f["file_path"]] == [0, 1]


def test_23_a_key_is_unique_inside_its_partition_only(tmp_path: Path) -> None:
    table = make(tmp_path, KV, key=("pk", "pt"), by=("pt",), bucket="2")
    table.write(kv((1, 10, 1), (2, 20, 1), (3, 30, 1), (4, 40, 1)))
    table.write(kv((1, 10, 1)), pa.array([3], pa.int8()))
    table.write(kv((1, 11, 2)))
    table.write(kv((1, 11, 2)), pa.array([3], pa.int8()))
    table.write(kv((1, 12, 3)))
    assert [t for _, t, _ in snapshots(table)] == [4, 5, 6, 7, 8]
    assert sorted(tuple(r.values()) for r in table.to_arrow().to_pylist()) == [
        (1, 12, 3),
        (2, 20, 1),
        (3, 30, 1),
        (4, 40, 1),
    ]


def test_24_another_bucket_count_is_refused_for_every_row_of_an_existing_partition(tmp_path: Path) -> None:
    table = make(tmp_path, KV, key=("pk",), bucket="2")
    table.write(kv(*((i, 10, 1) for i in range(20))))
    table.set_options({"bucket": "4"})
    altered = open_table(table.path)
    for pk in range(20, 60):
        with pytest.raises(OptionError, match="with a new bucket num 4, but the previous bucket num is 2"):
            altered.write(kv((pk, 1, 1)))
    assert altered.snapshots().num_rows == 1


def test_32_and_33_levels_after_a_compaction_and_the_read_optimized_view(tmp_path: Path) -> None:
    for bucket in ("1", "2"):
        table = make(tmp_path / bucket, KV, key=("pk",), bucket=bucket)
        table.write(kv((1, 10, 1), (2, 20, 1), (3, 30, 1), (4, 40, 1)))
        table.write(kv((1, 11, 1)))
        table.compact()
        table.write(kv((5, 50, 1)))
        table.write(kv((6, 60, 1)))
        columns = ("bucket", "level", "record_count", "min_sequence_number", "max_sequence_number", "file_source")
        found = [tuple(f[c] for c in columns) for f in files(table)]
        if bucket == "1":
            assert found == [(0, 5, 4, 1, 4, "COMPACT"), (0, 0, 1, 5, 5, "APPEND"), (0, 0, 1, 6, 6, "APPEND")]
        else:
            assert found == [
                (0, 5, 3, 1, 3, "COMPACT"),
                (0, 0, 1, 4, 4, "APPEND"),
                (0, 0, 1, 5, 5, "APPEND"),
                (1, 5, 1, 0, 0, "APPEND"),
            ]
        assert snapshots(table) == [
            ("APPEND", 4, 4),
            ("APPEND", 5, 1),
            ("COMPACT", 4, -1),
            ("APPEND", 5, 1),
            ("APPEND", 6, 1),
        ]
        top = next(f for f in files(table) if f["level"] == 5)
        assert (top["min_value_stats"], top["deleteRowCount"], top["write_cols"]) == ("{pk=1, pt=1, v=11}", 0, None)
        assert table.to_arrow(filter=pc.field("pk") == 1)["v"].to_pylist() == [11]
        assert table.to_arrow().num_rows == 6
        optimized = sorted((r["pk"], r["v"]) for r in table.to_arrow(read_optimized=True).to_pylist())
        assert optimized == [(1, 11), (2, 20), (3, 30), (4, 40)]


def test_34_full_compaction_with_every_commit(tmp_path: Path) -> None:
    table = make(tmp_path, KV, key=("pk",), bucket="1", **{"full-compaction.delta-commits": "1"})
    for i in range(3):
        table.write(kv((i, i, 1)))
        assert [f["level"] for f in files(table)] == [5]
    assert [kind for kind, _, _ in snapshots(table)] == ["APPEND", "COMPACT"] * 3


def test_36_an_insert_that_compacts_at_once_upgrades_its_own_file(tmp_path: Path) -> None:
    table = make(tmp_path, KV, key=("pk",), bucket="1", **{"full-compaction.delta-commits": "1"})
    table.write(kv((1, 10, 1), (2, 20, 1)))
    found = files(table)
    assert [(f["level"], f["file_source"]) for f in found] == [(5, "APPEND")]
    assert snapshots(table) == [("APPEND", 2, 2), ("COMPACT", 2, 0)]
    assert {s["commit_identifier"] for s in table.snapshots().to_pylist()} == {9223372036854775807}
    assert len({s["commit_user"] for s in table.snapshots().to_pylist()}) == 1
