"""CALL of Paimon's procedures that keep a table, and the same by methods of `Table`."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.sql.procedures import NOT_HERE, PROCEDURES
from tests.support.pages.sql_text import Run

TABLE = "CREATE TABLE t (k INT, v INT, dt STRING, PRIMARY KEY (k, dt) NOT ENFORCED) PARTITIONED BY (dt) WITH ({})"


@pytest.fixture
def orders(run: Run) -> Run:
    run(TABLE.format("'bucket'='1'"))
    run("INSERT INTO t VALUES (1, 1, '2020-01-01'); INSERT INTO t VALUES (2, 2, '2020-01-02')")
    run("INSERT INTO t VALUES (3, 3, '2099-01-01')")
    return run


def opened(folder: Path, name: str = "t") -> bl.Table:
    return bl.catalog(str(folder)).table(f"default.{name}")


def test_partitions_expire_and_are_marked_as_done(orders: Run, tmp_path: Path) -> None:
    with pytest.raises(bl.OptionError, match="nothing says when partitions expire"):
        orders("CALL sys.expire_partitions('t')")
    call = "CALL sys.expire_partitions(table => 't', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd')"
    assert orders(call) == ["dt=2020-01-01", "dt=2020-01-02"]
    assert orders(call) == ["No expired partitions."] and orders("SELECT k FROM t") == [3]
    assert orders("CALL sys.mark_partition_done('t', 'dt=2099-01-01')") == [True]
    assert list(Path(opened(tmp_path).path).glob("dt=2099-01-01/_SUCCESS"))


def test_tags_are_replaced_renamed_and_expire(orders: Run, tmp_path: Path) -> None:
    orders("CALL sys.create_tag('t', 'a', 1); CALL sys.create_tag('t', 'b', 2, '1 h')")
    assert orders("CALL sys.replace_tag(table => 't', tag => 'a', snapshot => 3)") == [True]
    assert orders("CALL sys.rename_tag('t', 'a', 'c')") == [True]
    assert orders("SELECT tag_name, snapshot_id FROM t$tags ORDER BY 1") == [("b", 2), ("c", 3)]
    with pytest.raises(bl.OptionError, match="Tag 'a' doesn't exist"):
        orders("CALL sys.replace_tag('t', 'a', 1)")
    assert orders("CALL sys.expire_tags('t')") == ["No expired tags."]
    assert orders("CALL sys.expire_tags(table => 't', older_than => '2000-01-01 00:00:00')") == ["No expired tags."]
    assert opened(tmp_path).expire_tags(timedelta(days=-1)) == ("b", "c")


def test_a_tag_is_made_of_the_first_snapshot_from_a_time_on(orders: Run, tmp_path: Path) -> None:
    table = opened(tmp_path)
    times = [row.timestamp() for row in table.snapshots()["commit_time"].to_pylist()]
    second = round(times[1] * 1000)
    ((name, snapshot, time, watermark),) = orders(f"CALL sys.create_tag_from_timestamp('t', 'x', {second})")
    assert (name, snapshot, time, watermark) == ("x", 2, second, "null")
    assert table.create_tag_from_timestamp("y", datetime.fromtimestamp(times[0] - 100)) == 1
    with pytest.raises(bl.OptionError, match=r"no snapshot that was committed at 9999999999999 .* or later"):
        orders("CALL sys.create_tag_from_timestamp('t', 'z', 9999999999999)")


def test_tags_that_are_due_are_made_by_hand(run: Run, tmp_path: Path) -> None:
    run(TABLE.format("'bucket'='1', 'write-only'='true'"))
    run("INSERT INTO t VALUES (1, 1, '2020-01-01')")
    assert run("CALL sys.trigger_tag_automatic_creation('t')") == [True] and run("SELECT * FROM t$tags") == []
    run("ALTER TABLE t SET ('tag.automatic-creation'='process-time', 'tag.creation-period'='daily')")
    assert run("CALL sys.trigger_tag_automatic_creation('t')") == [True]
    assert len(run("SELECT tag_name FROM t$tags")) == 1 and opened(tmp_path).create_due_tags() == ()


def test_a_branch_gets_another_name_and_keeps_its_history(orders: Run, tmp_path: Path) -> None:
    orders("CALL sys.create_tag('t', 'a', 2); CALL sys.create_branch('t', 'b', 'a')")
    orders("INSERT INTO t$branch_b VALUES (9, 9, '2020-01-01')")
    assert orders("CALL sys.rename_branch('t', 'b', 'c')") == [True]
    assert orders("SELECT k FROM t$branch_c ORDER BY k") == [1, 2, 9]
    table = opened(tmp_path)
    assert table.branches() == ["c"] and table.doctor(rows=True) == []
    orders("INSERT INTO t$branch_c VALUES (10, 1, '2020-01-01')")
    table.create_branch("b")
    with pytest.raises(bl.OptionError, match="already exists"):
        table.rename_branch("c", "b")
    with pytest.raises(bl.OptionError, match="doesn't exist"):
        table.rename_branch("x", "y")
    assert table.remove_orphan_files(no_writers=True, older_than=timedelta(0)).files == ()


def test_a_table_rolls_back_to_a_time_and_to_a_watermark(orders: Run, tmp_path: Path) -> None:
    table = opened(tmp_path)
    times = [row.timestamp() for row in table.snapshots()["commit_time"].to_pylist()]
    assert orders(f"CALL sys.rollback_to_timestamp('t', {round(times[1] * 1000)})") == [(3, 2)]
    with pytest.raises(bl.OptionError, match=r"no snapshot that was committed at 5 .* or before"):
        orders("CALL sys.rollback_to_timestamp('t', 5)")
    with pytest.raises(bl.OptionError, match="no snapshot with watermark 7 or earlier"):
        orders("CALL sys.rollback_to_watermark('t', 7)")
    assert table.rollback_to_timestamp(datetime.fromtimestamp(times[0])) == 1
    assert orders("SELECT k FROM t") == [1]


def test_consumers_are_moved_and_removed(orders: Run, tmp_path: Path) -> None:
    for name, at in (("etl-1", 1), ("etl-2", 2), ("other", 3)):
        assert orders(f"CALL sys.reset_consumer(table => 't', consumerId => '{name}', nextSnapshotId => {at})") == [
            True
        ]
    assert orders("SELECT * FROM t$consumers ORDER BY 1") == [("etl-1", 1), ("etl-2", 2), ("other", 3)]
    with pytest.raises(bl.OptionError, match="no snapshot 77"):
        orders("CALL sys.reset_consumer('t', 'etl-1', 77)")
    orders("CALL sys.clear_consumers(table => 't', includingConsumers => 'etl.*', excludingConsumers => '.*2')")
    orders("CALL sys.reset_consumer('t', 'other')")
    assert orders("SELECT consumer_id FROM t$consumers") == ["etl-2"]
    assert opened(tmp_path).clear_consumers() == ("etl-2",)
    with pytest.raises(bl.OptionError, match="is not a regular expression"):
        orders("CALL sys.clear_consumers('t', '[')")


def test_all_tables_of_databases_are_compacted(orders: Run, tmp_path: Path) -> None:
    orders("CREATE DATABASE d; CREATE TABLE d.u (a INT); CREATE TABLE d.w (a INT)")
    orders("INSERT INTO t VALUES (1, 5, '2020-01-01')")
    call = "CALL sys.compact_database(including_databases => 'default|d', excluding_tables => 'd\\.w')"
    assert orders(call) == ["Compact database finished. Success: 2, Failed: 0"]
    assert set(orders("SELECT level FROM t$files")) == {5}
    assert orders("CALL sys.compact_database('nothing')") == ["Compact database finished. Success: 0, Failed: 0"]


def test_manifests_are_merged_and_the_rows_stay(orders: Run, tmp_path: Path) -> None:
    table, before = opened(tmp_path), orders("SELECT * FROM t ORDER BY k")
    assert len(orders("SELECT * FROM t$manifests")) == 3
    assert orders("CALL sys.compact_manifest(table => 't', dry_run => true)") == [True]
    assert len(orders("SELECT * FROM t$manifests")) == 3
    assert orders("CALL sys.compact_manifest('t')") == [True]
    assert len(orders("SELECT * FROM t$manifests")) == 1 and orders("SELECT * FROM t ORDER BY k") == before
    assert table.compact_manifests() is None and table.doctor(rows=True) == []
    with pytest.raises(bl.OptionError, match="manifest_sort_enabled is not supported"):
        orders("CALL sys.compact_manifest(table => 't', manifest_sort_enabled => true)")


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("keys", [", PRIMARY KEY (k) NOT ENFORCED", ""])
def test_files_that_are_gone_are_taken_out_of_the_table(run: Run, tmp_path: Path, keys: str, vectors: str) -> None:
    bucket = "'bucket'='1'" if keys else "'bucket'='-1'"
    run(f"CREATE TABLE t (k INT, v INT{keys}) WITH ({bucket}, 'deletion-vectors.enabled'='{vectors}')")
    table = opened(tmp_path)
    for first in (0, 10):
        table.write(pa.table({"k": pa.array(range(first, first + 5), pa.int32()), "v": pa.nulls(5, pa.int32())}))
        table.delete(f"k = {first + 1}")
    assert run("CALL sys.remove_unexisting_files('t')") == []
    lost = table.files()["file_path"].to_pylist()[0]
    Path(lost).unlink()
    with pytest.raises(bl.StorageError):
        table.to_arrow()
    assert run("CALL sys.remove_unexisting_files(table => 't', dry_run => true)") == [lost]
    assert table.remove_unexisting_files() == (lost,)
    assert run("CALL sys.remove_unexisting_files('t')") == [lost]
    assert set(run("SELECT k FROM t")) <= {0, 2, 3, 4, 10, 12, 13, 14}
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0))
    assert table.doctor(rows=True) == []
    assert table.remove_unexisting_files() == ()


def test_a_purged_table_is_empty_and_can_be_written_again(orders: Run, tmp_path: Path) -> None:
    orders(
        "CALL sys.create_tag('t', 'a', 1); CALL sys.create_branch('t', 'b', 'a'); CALL sys.reset_consumer('t', 'c', 2)"
    )
    table = opened(tmp_path)
    with pytest.raises(bl.OptionError, match="no_writers=True"):
        table.purge_files(no_writers=False)
    with pytest.raises(bl.UnsupportedTableError, match="is a branch"):
        bl.open_table(table.path, options={"branch": "b"}).purge_files(no_writers=True)
    assert orders("CALL sys.purge_files('t')") == ["Success"]
    assert not list(Path(table.path).rglob("*.parquet")) and table.branches() == [] and table.tags().num_rows == 0
    assert orders("SELECT count(*) FROM t") == [0] and len(orders("SELECT * FROM t$snapshots")) == 1
    orders("INSERT INTO t VALUES (5, 5, '2020-01-01')")
    assert orders("SELECT k FROM t") == [5] and table.doctor(rows=True) == []


@pytest.mark.parametrize("kept", ["10 kb", "1 b"])
def test_files_from_before_get_the_index_that_the_options_ask_for(orders: Run, tmp_path: Path, kept: str) -> None:
    with pytest.raises(bl.OptionError, match=r"file-index\.bloom-filter\.columns"):
        orders("CALL sys.rewrite_file_index('t')")
    orders(f"ALTER TABLE t SET ('file-index.bloom-filter.columns'='v', 'file-index.in-manifest-threshold'='{kept}')")
    assert orders("CALL sys.rewrite_file_index(table => 't', where => 'dt < ''2020-01-02''')") == [(1, 1)]
    assert orders("CALL sys.rewrite_file_index('t')") == [(2, 2)] and orders("CALL sys.rewrite_file_index('t')") == [
        (0, 0)
    ]
    orders("ALTER TABLE t SET ('file-index.bloom-filter.columns'='v,k')")
    table = opened(tmp_path)
    assert table.rewrite_file_index([{"dt": "2099-01-01"}]).files == 1
    assert orders("SELECT k FROM t WHERE v = 2") == [2] and orders("SELECT k FROM t WHERE v = 77") == []
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0))
    assert table.doctor(rows=True) == [] and orders("SELECT count(*) FROM t") == [3]
    assert table.remove_orphan_files(no_writers=True, older_than=timedelta(0)).files == ()


@pytest.mark.parametrize("name", sorted(NOT_HERE))
def test_other_procedures_of_paimon_are_refused_by_name(orders: Run, name: str) -> None:
    assert name not in PROCEDURES
    with pytest.raises(bl.OptionError, match=rf"CALL sys\.{name} is not supported: \w"):
        orders(f"CALL sys.{name}('t')")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("rename_tag('t', 'a')", "'target_tag' is missing"),
        ("rollback_to_watermark('t', 'x')", "must be a number"),
        ("create_tag_from_timestamp('t', 'a', 'soon')", "must be a time"),
        ("compact_database(mode => 'combined')", "mode is not supported"),
        ("rename_brunch('t', 'a', 'b')", "rename_branch"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(orders: Run, call: str, said: str) -> None:
    with pytest.raises(bl.OptionError, match=said):
        orders(f"CALL sys.{call}")


def test_each_procedure_of_the_care_says_its_columns_as_paimon_does(orders: Run, tmp_path: Path) -> None:
    def columns(call: str) -> dict[str, Any]:
        found = bl.sql(None, f"CALL sys.{call}", str(tmp_path))
        return {f.name: f.type for f in found.schema}

    assert columns("expire_tags('t')") == {"expired_tags": pa.string()}
    assert columns("remove_unexisting_files('t')") == {"fileName": pa.string()}
    assert columns("compact_manifest('t')") == {"result": pa.bool_()}
