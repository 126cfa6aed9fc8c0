"""What HDFS does on its own: answers that are lost, errors by name, addresses, and tables on a real cluster."""

import json
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import bucketline as bl
from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.determinism import SYSTEM_CLOCK
from bucketline.state.errors import CommitOutcomeUnknownError, StorageError
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage import plain_io
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.folders import make_folder, rename_folder
from bucketline.state.store.storage.hdfs_client import hdfs_address
from bucketline.state.store.storage.ranged_reader import TAIL_BYTES
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.cli.commands import program
from tests.support.servers.hdfs_cluster import HdfsCluster
from tests.support.storage.fake_hdfs import FakeHdfs, Trouble

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])


def only(request: str, trouble: Trouble) -> FakeHdfs:
    """A cluster that treats the first request of a kind so."""
    left = [trouble]
    return FakeHdfs(lambda kind, path: left.pop() if left and kind == request else None)


@pytest.mark.parametrize("request_name", ["create", "complete", "rename"])
@pytest.mark.parametrize("trouble", Trouble)
def test_publishing_says_that_it_won_or_that_nobody_knows(request_name: str, trouble: Trouble) -> None:
    cluster = only(request_name, trouble)
    try:
        assert cluster.io().publish("/t/snapshot/snapshot-1", b"ours") is True
    except StorageError as e:
        assert e.fields["retryable"] or e.fields["published"] is False
        was_there = cluster.files.get("/t/snapshot/snapshot-1") == b"ours"
        assert not (was_there and e.fields.get("published") is False)
        # Whoever does not know publishes the same bytes again.
        assert cluster.io().publish("/t/snapshot/snapshot-1", b"ours") is True
    assert cluster.files["/t/snapshot/snapshot-1"] == b"ours"
    assert cluster.io().publish("/t/snapshot/snapshot-1", b"theirs") is False
    assert cluster.files["/t/snapshot/snapshot-1"] == b"ours"


def test_a_rename_that_the_client_repeats_is_won_by_the_bytes_that_are_there() -> None:
    cluster = only("rename", Trouble.REPEATED)
    assert cluster.io().publish("/t/snapshot-1", b"ours") is True
    assert list(cluster.files) == ["/t/snapshot-1"]


def test_publishing_leaves_no_temporary_file_where_another_was_first() -> None:
    cluster = FakeHdfs()
    cluster.io().write_new("/t/snapshot-1", b"theirs")
    assert cluster.io().publish("/t/snapshot-1", b"ours") is False
    assert list(cluster.files) == ["/t/snapshot-1"] and not cluster.being_written


def test_a_file_that_could_not_be_written_whole_is_removed() -> None:
    cluster = only("complete", Trouble.REQUEST_LOST)
    with pytest.raises(StorageError) as caught:
        cluster.io().write_new("/t/f", b"content")
    assert caught.value.fields["retryable"] is True
    assert not cluster.files and not cluster.being_written


def test_readers_of_a_file_that_is_replaced_see_the_old_or_the_new_content() -> None:
    cluster = FakeHdfs()
    cluster.io().overwrite("/t/LATEST", b"1")
    seen: list[bytes] = []

    def look(request: str, path: str) -> None:
        seen.append(cluster.files["/t/LATEST"])

    cluster.choose = look
    cluster.io().overwrite("/t/LATEST", b"2")
    assert set(seen) == {b"1"} and cluster.files == {"/t/LATEST": b"2"}


def test_errors_name_the_path_what_happened_and_whether_to_try_again() -> None:
    cluster = FakeHdfs()
    cluster.io().write_new("/t/f", b"")
    with pytest.raises(StorageError, match="/t/f/g: ParentNotDirectoryException: /t/f") as caught:
        cluster.io().write_new("/t/f/g", b"")
    assert caught.value.fields["retryable"] is False and "org.apache" not in caught.value.message
    says = 'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot create /t/g.\\n\\tat org...")'

    def refuse(request: str, path: str) -> None:
        raise RuntimeError(says)

    cluster.choose = refuse
    with pytest.raises(StorageError, match=r"/t/g: SafeModeException: Cannot create /t/g\.; the name node") as caught:
        cluster.io().write_new("/t/g", b"")
    assert caught.value.fields["retryable"] is True
    says = (
        'GSSAPIError(GssMajorCodes { raw: "0x00070000", routine_error: "GSS_S_NO_CRED", supplementary_info: "0x0" }, '
        '2529639053, "No credentials were supplied")'
    )
    with pytest.raises(StorageError, match=r"/t/g: No credentials were supplied; log in by `kinit`, or") as caught:
        cluster.io().write_new("/t/g", b"")
    assert caught.value.fields["retryable"] is False


def test_a_folder_of_a_table_is_made_and_renamed_in_one_step() -> None:
    cluster = FakeHdfs()
    io = cluster.io()
    make_folder(io, "/w/shop.db")
    assert io.list_names("/w") == ["shop.db"] and io.list_names("/w/shop.db") == []
    io.write_new("/w/shop.db/t/schema/schema-0", b"{}")
    rename_folder(io, "/w/shop.db/t", "/w/other.db/u")
    assert [f.path for f in io.list_files("/w")] == ["/w/other.db/u/schema/schema-0"]
    with pytest.raises(StorageError, match="no such folder"):
        rename_folder(io, "/w/shop.db/t", "/w/shop.db/v")
    make_folder(io, "/w/shop.db/t")
    with pytest.raises(StorageError, match="exists already"):
        rename_folder(io, "/w/other.db/u", "/w/shop.db/t")


def test_a_table_is_written_and_cleaned_on_hdfs_while_a_name_node_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are repeated or lost by chance: no row is lost or doubled, and no file in use is removed."""
    rng = random.Random(16)
    cluster = FakeHdfs(now_ms=SYSTEM_CLOCK.now_ms)
    monkeypatch.setattr(plain_io, "hdfs_io_for", lambda uri, options, world: (cluster.io(), "/w/shop.db/t"))
    uri = "hdfs://fake/w/shop.db/t"
    create_table(uri, COLUMNS, ("id",), options={"bucket": "1", "snapshot.num-retained.min": "1"})
    said: dict[int, str] = {}
    for number in range(30):
        cluster.choose = lambda request, path: rng.choice(list(Trouble)) if rng.random() < 0.03 else None
        try:
            table = open_table(uri)
            table.write(pa.table({"id": [number], "n": [number]}).cast(COLUMNS))
            said[number] = "written"
            table.expire_snapshots(retain_max=3)
        except CommitOutcomeUnknownError:
            said[number] = "unknown"
        except BucketlineError:
            said.setdefault(number, "not written")
    cluster.choose = lambda request, path: None
    open_table(uri).write(pa.table({"id": [99], "n": [99]}).cast(COLUMNS))
    # An expiry that was cut short leaves a wrong hint, until another one removes a snapshot.
    open_table(uri).expire_snapshots(retain_max=1)
    found = Counter(open_table(uri).to_arrow()["id"].to_pylist())
    assert Counter(said.values())["written"] > 10
    assert [n for n, what in said.items() if what == "written" and found[n] != 1] == []
    assert [n for n, what in said.items() if what == "not written" and found[n] != 0] == []
    assert max(found.values()) == 1
    assert examine(open_to_examine(uri), rows=True) == []


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("hdfs://cluster", "names no folder"),
        ("hdfs:/w/t", "names no folder"),
        ("hdfs://me@cluster/w/t", "HADOOP_USER_NAME"),
    ],
)
def test_an_address_that_means_nothing_is_refused_by_name(uri: str, says: str) -> None:
    pytest.importorskip("hdfs_native")
    with pytest.raises(OptionError, match=says):
        hdfs_address(uri, {})


def test_settings_that_name_no_cluster_are_one_line_without_their_values() -> None:
    pytest.importorskip("hdfs_native")
    with pytest.raises(OptionError, match="viewfs://none cannot be opened: No viewfs fallback") as caught:
        file_io_for("viewfs://none/t", {"hadoop.hadoop.security.key.provider.path": "kms://hunter2@h"})
    assert "\n" not in caught.value.message and "hunter2" not in caught.value.message


@pytest.mark.parametrize("name", ["dfs.replication", "dfs.blocksize", "my.password"])
def test_a_setting_of_hadoop_that_the_client_does_not_read_is_refused_by_name(name: str) -> None:
    pytest.importorskip("hdfs_native")
    with pytest.raises(OptionError, match=f"'hadoop.{name}' has no effect") as caught:
        file_io_for("hdfs://lake/t", {f"hadoop.{name}": "hunter2"})
    assert "hunter2" not in caught.value.message


def test_a_forked_process_says_so_and_does_not_wait_for_ever() -> None:
    pytest.importorskip("hdfs_native")
    program = """if True:
        import os
        from bucketline.state.errors import StorageError
        from bucketline.state.store.storage.file_io import file_io_for
        io, root = file_io_for("hdfs://localhost:1/t", {})
        if os.fork() == 0:
            try:
                io.read(root)
            except StorageError as e:
                print(e, flush=True)
            os._exit(0)
        os.wait()
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert "was forked from a process that uses storage over the network" in done.stdout


@pytest.mark.stores
def test_of_many_that_rename_onto_one_name_one_wins_each_time(hdfs: HdfsCluster) -> None:
    io, root = hdfs.new_folder()
    for n in range(5):
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda w, n=n: io.publish(f"{root}/snapshot-{n}", b"%d" % w), range(8)))
        assert sum(won) == 1 and io.read(f"{root}/snapshot-{n}") == b"%d" % won.index(True)
    assert io.list_names(root) == [f"snapshot-{n}" for n in range(5)]


@pytest.mark.stores
def test_columns_of_a_large_file_are_read_by_ranges(hdfs: HdfsCluster) -> None:
    io, root = hdfs.new_folder()
    rng = random.Random(7)
    table = pa.table({c: pa.array(rng.randbytes(16) for _ in range(60_000)) for c in "abcd"})
    with io.open_output(f"{root}/f.parquet") as sink:
        pq.write_table(table, sink, compression="none", row_group_size=10_000)
    assert io.size(f"{root}/f.parquet") > 4 * TAIL_BYTES
    with io.open_input(f"{root}/f.parquet") as source:
        assert pq.read_table(source, columns=["c"])["c"].equals(table["c"])


@pytest.mark.stores
def test_a_table_outlives_a_name_node_and_is_the_same_through_its_mount(hdfs: HdfsCluster) -> None:
    uri, storage = hdfs.new_uri("viewfs://tables/w"), hdfs.storage
    create_table(uri, COLUMNS, ("id",), options={"bucket": "1"}, storage_options=storage)
    for n in range(4):
        open_table(uri, storage_options=storage).write(pa.table({"id": [1, n], "n": [n, n]}).cast(COLUMNS))
        hdfs.fail_over()
    place = uri.replace("viewfs://tables/w/", "hdfs://lake/mounted/")
    assert sorted(open_table(place, storage_options=storage).to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    assert examine(open_to_examine(uri, storage_options=storage), rows=True) == []


@pytest.mark.stores
def test_a_catalog_on_hdfs_makes_renames_and_drops_tables(hdfs: HdfsCluster) -> None:
    catalog = bl.catalog(hdfs.new_uri().removesuffix("/shop.db/t"), storage_options=hdfs.storage)
    catalog.create_database("shop")
    assert catalog.list_tables("shop") == []
    catalog.create_table("shop.orders", COLUMNS, primary_key=["id"])
    catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.list_tables("shop") == ["sales"]
    catalog.table("shop.sales").write(pa.table({"id": [1], "n": [1]}).cast(COLUMNS))
    assert catalog.table("shop.sales").to_arrow().num_rows == 1
    catalog.drop_table("shop.sales")
    assert catalog.list_tables("shop") == []


@pytest.mark.stores
def test_the_command_line_plans_compacts_expires_and_examines_on_hdfs(hdfs: HdfsCluster, tmp_path: Path) -> None:
    uri, storage = hdfs.new_uri(), hdfs.storage
    file = tmp_path / "storage.yaml"
    file.write_text(json.dumps(storage))
    create_table(uri, COLUMNS, ("id",), options={"bucket": "2", "write-only": "true"}, storage_options=storage)
    for n in range(3):
        open_table(uri, storage_options=storage).write(pa.table({"id": range(9), "n": [n] * 9}).cast(COLUMNS))

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(program, [*arguments, "--storage-file", str(file)])
        assert done.exit_code == 0, done.output
        return done.output

    assert "plan 1" in run("plan", uri, "--strategy", "full")
    run("compactor", uri, "--once")
    assert {f["level"] for f in open_table(uri, storage_options=storage).files().to_pylist()} == {5}
    run("expire", uri, "--retain-max", "1", "--retain-min", "1")
    assert len(open_table(uri, storage_options=storage).snapshots()) == 1
    run("orphans", uri)
    run("doctor", uri)
    assert open_table(uri, storage_options=storage).to_arrow()["n"].to_pylist() == [2] * 9


@pytest.mark.stores
def test_a_cluster_that_is_not_there_is_a_passing_error() -> None:
    io, root = file_io_for("hdfs://localhost:1/t", {"hadoop.dfs.client.failover.max.attempts": "1"})
    with pytest.raises(StorageError, match="refused") as caught:
        io.read(root)
    assert caught.value.fields["retryable"] is True
