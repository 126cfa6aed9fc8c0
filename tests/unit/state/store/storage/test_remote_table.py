"""A table on storage that is opened by URI: every byte goes there, whichever way the table is written."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from bucketline.state.determinism import World
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.storage import plain_io
from bucketline.state.store.table.table import create_table, open_table
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.live_table import live_table
from tests.support.storage.arrow_io import ArrowIO

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
URI = "hdfs://namenode/warehouse/shop.db/t"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `hdfs://namenode/` stands for; the path it names there means something else on the local disk."""
    root = tmp_path / "hdfs"
    root.mkdir()
    (tmp_path / "local").mkdir()
    monkeypatch.chdir(tmp_path / "local")

    def put_if_absent(path: str, data: bytes) -> bool:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            return False
        target.write_bytes(data)
        return True

    def remote(uri: str, options: Mapping[str, str], world: World) -> tuple[ArrowIO, str]:
        assert uri.startswith("hdfs://namenode/")
        files = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())
        return ArrowIO(files, put_if_absent=put_if_absent), uri.removeprefix("hdfs://namenode/").rstrip("/")

    monkeypatch.setattr(plain_io, "hdfs_io_for", remote)
    return root


@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_rows_written_and_compacted_without_spark_stay_on_the_tables_own_storage(store: Path, bucket: str) -> None:
    table = create_table(URI, COLUMNS, ("id",), options={"bucket": bucket})
    for n in range(3):
        rows = pa.table({"id": [1, n], "n": pa.array([n, n], pa.int32())}, schema=COLUMNS)
        (table if n == 0 else open_table(URI)).write(rows)
    open_table(URI).compact()
    if bucket == "1":
        open_table(URI).rescale(2)
    assert sorted(open_table(URI).to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert list((store.parent / "local").iterdir()) == []
    assert list(store.glob("warehouse/shop.db/t/bucket-0/*.parquet"))


@pytest.mark.parametrize("work", ["write", "compact", "rescale", "overwrite", "stream"])
def test_a_store_without_safe_commits_is_refused_before_a_file_is_written(
    store: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    rows = pa.table({"id": [1], "n": pa.array([1], pa.int32())}, schema=COLUMNS)
    create_table(URI, COLUMNS, ("id",), options={"bucket": "1"}).write(rows)
    there = sorted(store.rglob("*"))

    def unsafe(uri: str, options: Mapping[str, str], world: World) -> tuple[ArrowIO, str]:
        files = fs.SubTreeFileSystem(str(store), fs.LocalFileSystem())
        return ArrowIO(files), uri.removeprefix("hdfs://namenode/").rstrip("/")

    monkeypatch.setattr(plain_io, "hdfs_io_for", unsafe)
    table = open_table(URI)
    works: dict[str, Callable[[], object]] = {
        "write": lambda: table.write(rows),
        "compact": lambda: table.compact(),
        "rescale": lambda: table.rescale(2),
        "overwrite": lambda: table.overwrite(rows),
        "stream": lambda: live_table(URI, {}, "q"),
    }
    with pytest.raises(UnsupportedTableError, match="cannot commit safely"):
        works[work]()
    assert sorted(store.rglob("*")) == there


def test_what_travels_to_tasks_names_the_table_absolutely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory of an executor is not the driver's."""
    made = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    monkeypatch.chdir(tmp_path)
    for path in ("shop.db/t", f"file:{made.path}", f"{made.path}/"):
        session = table_at(open_handle(path), {})
        assert session.plan.uri == made.path
        assert open_table(path).uri == made.path
