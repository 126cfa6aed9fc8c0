"""What every FileIO promises, on local files, through pyarrow, on S3 and on HDFS; and what each does on its own."""

import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from bucketline.conf.errors import OptionError
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.local_io import LocalIO
from tests.support.servers.azurite import Azurite
from tests.support.servers.fake_gcs import FakeGcs
from tests.support.servers.hdfs_cluster import HdfsCluster
from tests.support.servers.s3_server import S3Server
from tests.support.storage.arrow_io import ArrowIO
from tests.support.storage.fake_hdfs import FakeHdfs
from tests.support.storage.faulty_io import FaultyIO

ON_LOCAL_FILES: dict[str, Callable[[], FileIO]] = {
    "local": LocalIO,
    "arrow with a conditional put": lambda: ArrowIO(fs.LocalFileSystem(), put_if_absent=LocalIO().publish),
    "faulty without faults": lambda: FaultyIO(LocalIO()),
}


EMULATED = [pytest.param(name, marks=pytest.mark.stores) for name in ("azurite", "versitygw", "fake_gcs", "hdfs")]


@pytest.fixture(params=[*ON_LOCAL_FILES, "fake hdfs", "s3_server", *EMULATED])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileIO, str]:
    """An IO, and the path of an empty folder of its own."""
    if request.param == "fake hdfs":
        cluster = FakeHdfs(now_ms=lambda: int(time.time() * 1000))
        return cluster.io(), "/w"
    if request.param in ON_LOCAL_FILES:
        return ON_LOCAL_FILES[request.param](), str(tmp_path)
    server: S3Server | Azurite | FakeGcs | HdfsCluster = request.getfixturevalue(request.param)
    return server.new_folder()


@pytest.fixture
def io(place: tuple[FileIO, str]) -> FileIO:
    return place[0]


@pytest.fixture
def root(place: tuple[FileIO, str]) -> str:
    return place[1]


def test_new_files_are_read_back_with_their_folders_made(io: FileIO, root: str) -> None:
    path = f"{root}/a/b/f"
    io.write_new(path, b"12345")
    assert io.read(path) == io.read_optional(path) == b"12345"
    assert (io.size(path), io.exists(path)) == (5, True)
    assert abs(io.modified_ms(path) - time.time() * 1000) < 60_000


def test_a_new_file_never_replaces_another(io: FileIO, root: str) -> None:
    path = f"{root}/f"
    io.write_new(path, b"first")
    with pytest.raises(StorageError) as caught:
        io.write_new(path, b"second")
    assert caught.value.fields["retryable"] is False
    assert io.read(path) == b"first"


def test_publishing_makes_a_file_once(io: FileIO, root: str) -> None:
    path = f"{root}/snapshot/snapshot-1"
    io.require_publish()
    assert io.publish(path, b"first") is True
    assert io.publish(path, b"second") is False
    assert io.read(path) == b"first"
    assert io.list_names(f"{root}/snapshot") == ["snapshot-1"]


def test_overwriting_replaces_and_leaves_nothing_else(io: FileIO, root: str) -> None:
    for content in (b"1", b"22"):
        io.overwrite(f"{root}/LATEST", content)
        assert io.read(f"{root}/LATEST") == content
    assert io.list_names(root) == ["LATEST"]


def test_missing_files_are_named_as_missing(io: FileIO, root: str) -> None:
    path = f"{root}/none"
    assert io.read_optional(path) is None
    assert io.exists(path) is False
    for call in (io.read, io.size, io.modified_ms, io.open_input):
        with pytest.raises(StorageError) as caught:
            call(path)
        assert (caught.value.fields["missing"], caught.value.fields["retryable"]) == (True, False)
    io.delete(path)


def test_deleted_files_are_gone(io: FileIO, root: str) -> None:
    io.write_new(f"{root}/f", b"")
    io.delete(f"{root}/f")
    assert io.list_names(root) == []


def test_a_deleted_folder_is_gone_with_what_was_in_it(io: FileIO, root: str) -> None:
    for name in ("a/b/f", "a/g", "h"):
        io.write_new(f"{root}/{name}", b"")
    io.delete_folder(f"{root}/a")
    io.delete_folder(f"{root}/none")
    assert io.list_names(root) == ["h"]


def test_listings_are_sorted_and_empty_where_there_is_no_folder(io: FileIO, root: str) -> None:
    for name in ("b", "a", "c/y", "c/x"):
        io.write_new(f"{root}/{name}", b"xy")
    assert io.list_names(root) == ["a", "b", "c"]
    found = io.list_files(root)
    assert [f.path for f in found] == [f"{root}/{n}" for n in ("a", "b", "c/x", "c/y")]
    assert {f.size_bytes for f in found} == {2}
    assert io.list_names(f"{root}/none") == []
    assert io.list_files(f"{root}/none") == []


def test_arrow_writes_and_reads_through_streams(io: FileIO, root: str) -> None:
    path, table = f"{root}/bucket-0/data.parquet", pa.table({"a": [1, 2]})
    with io.open_output(path) as sink:
        pq.write_table(table, sink)
    with io.open_input(path) as source:
        assert pq.read_table(source).equals(table)
    with pytest.raises(StorageError), io.open_output(path) as sink:
        sink.write(b"another")
    with io.open_input(path) as source:
        assert pq.read_table(source).equals(table)


def test_local_publishing_leaves_no_temporary_file_when_it_loses_or_fails(tmp_path: Path) -> None:
    io = LocalIO()
    io.publish(f"{tmp_path}/s", b"1")
    io.publish(f"{tmp_path}/s", b"2")
    with pytest.raises(StorageError):
        io.publish(f"{tmp_path}/{'n' * 250}", b"3")
    assert io.list_names(str(tmp_path)) == ["s"]


def test_a_folder_that_is_a_file_is_a_final_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        LocalIO().read(f"{tmp_path}/f/g")
    assert caught.value.fields["retryable"] is False


def test_a_store_without_conditional_put_refuses_commits_and_still_reads(tmp_path: Path) -> None:
    io = ArrowIO(fs.LocalFileSystem())
    (tmp_path / "f").write_bytes(b"x")
    assert io.read(f"{tmp_path}/f") == b"x"
    with pytest.raises(UnsupportedTableError, match="put-if-absent"):
        io.require_publish()
    with pytest.raises(UnsupportedTableError):
        io.publish(f"{tmp_path}/s", b"1")
    assert io.list_names(str(tmp_path)) == ["f"]


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "FILE:", "File://"])
def test_local_paths_come_with_and_without_a_scheme(prefix: str, tmp_path: Path) -> None:
    io, root = file_io_for(f"{prefix}{tmp_path}/w/k=a%20b//t/", {})
    assert isinstance(io, LocalIO)
    assert root == f"{tmp_path}/w/k=a%20b/t"


def test_a_file_uri_with_a_host_is_refused() -> None:
    with pytest.raises(OptionError):
        file_io_for("file://host/data", {})


def test_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="ftp"):
        file_io_for("ftp://host/data", {})


def test_the_local_io_can_be_sent_to_executors(tmp_path: Path) -> None:
    sent = pickle.loads(pickle.dumps(LocalIO()))
    assert sent.publish(f"{tmp_path}/s", b"1") is True


def test_a_path_with_a_null_byte_is_a_final_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        LocalIO().read(f"{tmp_path}/a\0b")
    assert caught.value.fields["retryable"] is False


@pytest.mark.parametrize("call", ["publish", "overwrite"])
def test_a_temporary_file_that_is_removed_as_an_orphan_is_written_again(call: str, tmp_path: Path) -> None:
    """Its process was stopped for a day before the file got its name."""
    stop = Event()

    def remove_each_once() -> None:
        removed = set[str]()
        while not stop.is_set():
            for name in os.listdir(tmp_path):
                if name.endswith(".tmp") and name not in removed:
                    removed.add(name)
                    with suppress(FileNotFoundError):
                        os.unlink(tmp_path / name)

    remover = Thread(target=remove_each_once)
    remover.start()
    try:
        for n in range(100):
            done = getattr(LocalIO(), call)(f"{tmp_path}/f{n}", b"content")
            assert done is (True if call == "publish" else None)
    finally:
        stop.set()
        remover.join()
    assert {(tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == {b"content"}


def test_what_a_writer_of_a_local_file_hands_over_in_small_pieces_reaches_it_together(tmp_path: Path) -> None:
    """A writer of Parquet hands over headers of a few bytes, and each write is a call of the system."""
    path = tmp_path / "data"
    with LocalIO().open_output(str(path)) as sink:
        for _ in range(1000):
            sink.write(b"header")
        assert (sink.tell(), path.stat().st_size) == (6000, 0)
        sink.write(bytes(1 << 20))
        assert path.stat().st_size >= 1 << 20
    assert path.read_bytes() == b"header" * 1000 + bytes(1 << 20)
