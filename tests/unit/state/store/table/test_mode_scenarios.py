"""Acceptance scenarios of postponed buckets and of the key index, with the numbers they were measured at."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from bucketline.state.commit.author import Author
from bucketline.state.commit.change import Compact
from bucketline.state.errors import CommitConflictError
from bucketline.state.format.paths import partition_path
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.key_index.key_index import KeyIndex
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.key_index.table_keys import KeyShare
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.compact import compact_now
from bucketline.state.store.table.cycle import Commit, carry_out
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.bucket_writer import CompactTrigger, write_bucket
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster
from tests.support.tables.worlds import handle_in

ORDERS = pa.schema([
    pa.field("order_id", pa.int64(), nullable=False), ("customer_id", pa.int64()),
    pa.field("order_date", pa.string(), nullable=False), ("total_amount", pa.decimal128(10, 2)),
    ("status", pa.string()),
])  # fmt: skip
KV = pa.schema([pa.field("k", pa.int32(), nullable=False), ("v", pa.int32()), ("pt", pa.int32())])
FIXED = {"postpone.batch-write-fixed-bucket": "true"}


def orders(*ids: int, day: str) -> pa.Table:
    plain = {"order_date": day, "total_amount": Decimal("1.00"), "status": "new"}
    rows = [{"order_id": i, "customer_id": i, **plain} for i in ids]
    return pa.Table.from_pylist(rows, schema=ORDERS)


def kv(*triples: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(KV.names, t, strict=True)) for t in triples], schema=KV)


def visible(table: Table) -> list[int]:
    return sorted(open_table(table.path).to_arrow()["order_id"].to_pylist())


def snapshots(table: Table) -> list[tuple[str, int, int]]:
    columns = ("commit_kind", "total_record_count", "delta_record_count")
    return [tuple(s[c] for c in columns) for s in table.snapshots().to_pylist()]  # type: ignore[misc]


def totals(table: Table) -> dict[str, int]:
    """The bucket count of each day with real files."""
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    live = [e for e in handle_of(table).manifests.live_entries(newest) if e.bucket >= 0]
    days = [partition_path(handle_of(table).table_schema, e.partition).strip("/").partition("=")[2] for e in live]
    return {day: e.total_buckets for day, e in zip(days, live, strict=True)}


def waiting(table: Table) -> set[str]:
    return {str(p.relative_to(table.path)) for p in Path(table.path).rglob("bucket-postpone/*.avro")}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Scenarios 10 and 11: ids 1, 2 and 3 wait, 4 to 6 are in buckets."""
    options = {
        "bucket": "-2",
        "postpone.batch-write-fixed-bucket": "false",
        "postpone.default-bucket-num": "2",
        "file.format": "parquet",
    }
    found = create_table(str(tmp_path / "shop.db" / "t"), ORDERS, ("order_date", "order_id"), ("order_date",), options)
    found.write(pa.concat_tables([orders(1, 2, day="2023-10-01"), orders(3, day="2023-10-02")]))
    assert visible(found) == [] and snapshots(found) == [("APPEND", 3, 3)]
    assert {p.split("/")[0] for p in waiting(found)} == {"order_date=2023-10-01", "order_date=2023-10-02"}
    assert found.files().num_rows == 0
    write_table(handle_of(found), orders(4, day="2023-10-02"), options=FIXED)
    assert visible(found) == [4]
    (file,) = found.files().to_pylist()
    assert (file["level"], file["bucket"], file["file_format"]) == (0, 0, "parquet")
    write_table(handle_of(found), orders(5, 6, day="2023-10-03"), options=FIXED)
    assert visible(found) == [4, 5, 6]
    return found


@pytest.mark.parametrize("strategy", ["minor", "full"])
def test_12_13_and_26_one_compact_snapshot_takes_what_waits_to_its_buckets(table: Table, strategy: str) -> None:
    before = table.snapshots().num_rows
    table.compact(strategy)
    assert visible(table) == [1, 2, 3, 4, 5, 6]
    assert table.snapshots().num_rows == before + 1 and snapshots(table)[-1] == ("COMPACT", 6, 0)
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    delta = handle_of(table).manifests.delta_entries(newest)
    gone = {(e.bucket, e.total_buckets) for e in delta if e.kind.name == "DELETE"}
    assert (-2, -2) in gone and (strategy == "full" or gone == {(-2, -2)})
    assert all(e.bucket >= 0 for e in delta if e.kind.name == "ADD")
    counts = totals(table)
    assert counts["2023-10-01"] == 2 and counts["2023-10-02"] == 1
    files = [f for f in table.files().to_pylist() if "10-02" in f["file_path"]]
    # Asked for a full compaction Paimon leaves two files on level 0 all the same; ours does what it is told.
    assert [f["level"] for f in files] == ([0, 0] if strategy == "minor" else [5])
    assert table.compact(strategy) is None and table.snapshots().num_rows == before + 1


def test_14_and_25_partitions_that_wait_are_known_and_compacted_alone(table: Table) -> None:
    table.write(orders(8, day="2023-10-03"))
    assert {p.split("/")[0][-5:] for p in waiting(table)} == {"10-01", "10-02", "10-03"}
    kept = {p for p in waiting(table) if "10-03" not in p}
    names = {f["file_path"] for f in table.files().to_pylist() if "10-03" not in f["file_path"]}
    table.compact("minor", partitions=[{"order_date": "2023-10-03"}])
    assert visible(table) == [4, 5, 6, 8]
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert waiting(table) == kept
    assert {f["file_path"] for f in table.files().to_pylist() if "10-03" not in f["file_path"]} == names


def test_15_and_16_rescale_touches_one_partition_and_leaves_what_waits(table: Table) -> None:
    table.compact("full")
    others = {f["file_path"] for f in table.files().to_pylist() if "10-02" not in f["file_path"]}
    # It has one bucket already; what is named is written anew all the same.
    table.rescale(1, [{"order_date": "2023-10-02"}])
    assert snapshots(table)[-1] == ("OVERWRITE", 6, 0)
    (file,) = [f for f in table.files().to_pylist() if "10-02" in f["file_path"]]
    assert (file["level"], file["record_count"], file["min_key"], file["max_key"]) == (5, 2, "[3]", "[4]")
    assert others <= {f["file_path"] for f in table.files().to_pylist()}

    day, count = "2023-10-03", table.snapshots().num_rows
    write_table(handle_of(table), orders(7, day=day), options=FIXED)
    table.write(orders(8, day=day))
    table.write(orders(9, day=day))
    write_table(handle_of(table), orders(10, day=day), options=FIXED)
    assert visible(table) == [1, 2, 3, 4, 5, 6, 7, 10]
    assert snapshots(table)[count:] == [("APPEND", n, 1) for n in (7, 8, 9, 10)]
    everything = open_table(table.path, options={"postpone.merge-on-read": "true"})
    assert sorted(everything.to_arrow()["order_id"].to_pylist()) == list(range(1, 11))
    left = {p for p in waiting(table) if "10-03" in p}
    table.rescale(3, [{"order_date": day}])
    assert {p for p in waiting(table) if "10-03" in p} >= left and visible(table) == [1, 2, 3, 4, 5, 6, 7, 10]
    table.compact()
    assert visible(table) == list(range(1, 11))
    assert totals(table)["2023-10-03"] == 3


def test_17_and_18_deletes_are_dealt_as_well_and_keys_are_unique_in_their_partition_only(tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false", "postpone.default-bucket-num": "2"}
    table = create_table(str(tmp_path / "shop.db" / "t"), KV, ("k",), ("pt",), options)

    def content() -> list[tuple[int, int, int]]:
        return sorted(tuple(r.values()) for r in open_table(table.path).to_arrow().to_pylist())  # type: ignore[misc]

    table.write(kv((1, 10, 1), (2, 20, 1), (3, 30, 1), (4, 40, 1)))
    assert content() == []
    table.write(kv((1, 11, 2)))
    table.compact("minor")
    assert content() == [(1, 10, 1), (1, 11, 2), (2, 20, 1), (3, 30, 1), (4, 40, 1)]
    assert snapshots(table)[-1] == ("COMPACT", 5, 0)
    table.write(kv((1, 10, 1), (1, 11, 2)), pa.array([3, 3], pa.int8()))
    assert len(content()) == 5
    table.compact("minor")
    assert content() == [(2, 20, 1), (3, 30, 1), (4, 40, 1)]


def test_26_a_compaction_that_fails_or_loses_leaves_no_files_behind(table: Table) -> None:
    files = {p for p in Path(table.path).rglob("bucket-*/*") if p.is_file()}
    calls = []

    def failing(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("the second bucket fails")
        return write_bucket(*arguments, **named)

    with (
        patch("bucketline.state.store.write.bucket_threads.write_bucket", failing),
        pytest.raises(RuntimeError, match="second bucket"),
    ):
        table.compact()
    assert {p for p in Path(table.path).rglob("bucket-*/*") if p.is_file()} == files
    session = table_at(open_handle(table.path), {}).refreshed()
    late = compact_now(session, CompactTrigger.MINOR, lambda partition: True, engine=LOCAL_ENGINE)
    table.compact("minor")
    with pytest.raises(CommitConflictError):
        carry_out(session, LOCAL_ENGINE, lambda made: Commit(Compact(late), Author("late")))
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
    assert visible(table) == [1, 2, 3, 4, 5, 6]


@dataclass(frozen=True)
class At:
    """A clock that stands still."""

    ms: int

    def now_ms(self) -> int:
        return self.ms

    def local_ms(self) -> int:
        return self.ms


def test_21_keys_older_than_the_ttl_are_not_in_the_index(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"bucket": "-1", "cross-partition-upsert.index-ttl": "1 d"}
    table = create_table(str(tmp_path / "shop.db" / "t"), KV, ("k",), ("pt",), options)

    def local(name: str) -> dict[str, str]:
        return {"local-directory": str(tmp_path / name)}

    write_table(handle_in(table, clock=At(1_700_000_000_000)), kv((1, 10, 1), (2, 20, 1)), options=local("a"))
    write_table(handle_of(table), kv((3, 30, 1)), options=local("a"))
    caplog.set_level("INFO")
    write_table(handle_of(table), kv((1, 11, 2), (3, 31, 2)), options=local("b"))
    assert [r.args[1] for r in caplog.records if r.msg.endswith("loaded%s")] == ["1 key"]  # type: ignore[index]
    found = sorted(tuple(r.values()) for r in table.to_arrow().to_pylist())
    assert found == [(1, 10, 1), (1, 11, 2), (2, 20, 1), (3, 31, 2)]
    # Both places of key 1 are there: the younger one counts from now on.
    write_table(handle_of(table), kv((1, 12, 3)), options=local("c"))
    assert sorted(r["v"] for r in table.to_arrow().to_pylist() if r["k"] == 1) == [10, 12]


def test_21_the_index_of_keys_that_expire_grows_with_those_that_live(tmp_path: Path) -> None:
    """A stream of ever new keys: one hour of them lives, of a day that has gone by."""
    options = {"bucket": "-1", "cross-partition-upsert.index-ttl": "1 h", "write-only": "true"}
    table = create_table(str(tmp_path / "shop.db" / "t"), KV, ("k",), ("pt",), options)
    start, hourly = 1_700_000_000_000, 5000
    sizes = []
    for hour in range(24):
        keys = range(hour * hourly, (hour + 1) * hourly)
        rows = pa.table({"k": keys, "v": [hour] * hourly, "pt": [hour % 3] * hourly}).cast(KV)
        clock = At(start + hour * 3_600_000)
        write_table(handle_in(table, clock=clock), rows, options={"local-directory": str(tmp_path / "local")})
        (directory,) = (tmp_path / "local").rglob("shard-0-of-1")
        index = KeyIndex.open(
            str(directory), KeyShare(handle_of(table).table_schema).scope(table.path), RocksSettings()
        )
        with index:
            sizes.append(len(index.items(b"\x01", 1_000_000)))
            counted = sum(sum(index.rows(int(code)).values()) for code in range(3))
            assert counted == sizes[-1]
    assert max(sizes) <= 5 * hourly, sizes
    assert table.to_arrow().num_rows == 24 * hourly


@contextmanager
def opened() -> Iterator[list[str]]:
    """The data files that are opened for reading inside."""
    found: list[str] = []
    original = LocalIO.open_input

    def watched(self: LocalIO, path: str) -> Any:
        if "/bucket-" in path:
            found.append(path)
        return original(self, path)

    with patch.object(LocalIO, "open_input", watched):
        yield found


def test_22_the_key_index_is_built_once_a_run_and_no_batch_after_reads_data_files(tmp_path: Path) -> None:
    options = {"bucket": "-1", "write-only": "true"}
    table = create_table(str(tmp_path / "shop.db" / "t"), KV, ("k",), ("pt",), options)
    other = {"local-directory": str(tmp_path / "other")}
    for n in range(3):
        write_table(handle_of(table), kv(*((k, n, k % 4) for k in range(40))), options=other)
    sink = TableSink(
        table.path,
        {"local-directory": str(tmp_path / "local"), "assigner-parallelism": "2"},
        decode=DecodedRows,
    )
    draw = random.Random(2)
    counts = []
    for number in range(6):
        if number == 3:
            forget_table(table.path, "query")
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        rows = kv(*((k, 100 + number, draw.randrange(4)) for k in range(10, 50)))
        with opened() as found:
            sink.write(Cluster(draw, 2).frame(rows, 2), identity)
        counts.append(len(found))
    # The first batch reads each live file once a share; a restart in between reads nothing again.
    assert counts[0] > 0 and counts[1:] == [0] * 5
    assert table.to_arrow().num_rows == 50
