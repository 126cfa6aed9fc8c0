"""Storage options reach everything that reads or writes a table, and no table ever holds one."""

import json
import pickle
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

import bucketline as bl
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.state.determinism import World
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage import plain_io
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.job.job_table import open_or_create
from tests.support.spark.tasks import Cluster
from tests.support.storage.arrow_io import ArrowIO
from tests.support.tables.edited_manifests import edit_manifests

COLUMNS = "id BIGINT NOT NULL, v BIGINT, pt INT"
HOST = "hdfs://namenode"
STORAGE = {"s3.access-key": "AKIA1234", "s3.secret-key": "hunter2", "s3.endpoint": "http://here:9000"}
KEYS = ("AKIA1234", "hunter2")


class Store:
    """What `hdfs://namenode/` stands for; it opens for those who have the keys, and notes who asks without."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.opened = 0
        self.asked: list[str] = []
        self.without: list[str] = []

    def open(self, uri: str, storage: Mapping[str, str], world: World) -> tuple[ArrowIO, str]:
        self.opened += 1
        self.asked.append(uri)
        if dict(storage) != STORAGE:
            self.without.append(uri)
        files = fs.SubTreeFileSystem(str(self.root), fs.LocalFileSystem())
        return ArrowIO(files, put_if_absent=self._put), uri.removeprefix(HOST).strip("/")

    def _put(self, path: str, data: bytes) -> bool:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            return False
        target.write_bytes(data)
        return True

    def texts(self) -> Iterator[bytes]:
        return (f.read_bytes() for f in self.root.rglob("*") if f.is_file())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    root = tmp_path / "store"
    root.mkdir()
    found = Store(root)
    monkeypatch.setattr(plain_io, "hdfs_io_for", found.open)
    return found


MODES = {
    "fixed": (("id",), (), {"bucket": "2"}),
    "dynamic": (("id",), (), {"bucket": "-1"}),
    "cross-partition": (("id",), ("pt",), {"bucket": "-1"}),
    "postpone": (("id",), (), {"bucket": "-2"}),
    "append": ((), (), {}),
    "deletion-vectors": (("id",), (), {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "lookup": (("id",), ("pt",), {"bucket": "1", "changelog-producer": "lookup"}),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_way_into_the_storage_is_given_them_and_nothing_that_is_stored_holds_them(
    mode: str, store: Store, tmp_path: Path
) -> None:
    primary_key, partition_by, options = MODES[mode]
    keys = primary_key if mode != "lookup" else ("id", "pt")
    uri = f"{HOST}/w/shop.db/t"
    create_table(uri, COLUMNS, keys, partition_by, options, storage_options=STORAGE)
    full = {} if mode == "lookup" or not keys else {"full-compaction.delta-commits": "2"}
    sink = TableSink(
        uri,
        {"local-directory": str(tmp_path / "local"), **full},
        storage_options=STORAGE,
        checkpoint=f"{HOST}/checkpoint",
        decode=_as_is,
    )
    for number in range(4):
        _write_batch(sink, number)
    forget_table(uri, "query")
    _write_batch(sink, 3)
    table = bl.open_table(uri, storage_options=STORAGE)
    _look_after(table)
    assert table.refreshed().to_arrow().num_rows > 0
    assert examine(open_to_examine(uri, storage_options=STORAGE), rows=True) == []
    assert store.without == [] and store.opened > 5
    assert not [key for text in store.texts() for key in KEYS if key.encode() in text]
    assert not [
        key for key in KEYS if key in f"{sink!r} {table!r} {handle_of(table).table_schema!r} {table.refreshed()!r}"
    ]
    assert pickle.loads(pickle.dumps(sink)).storage_options == STORAGE


def _move_away(store: Store, table: str) -> None:
    """Puts all data files and index files of a table where another table is, and says in its metadata that they are
    there; as Paimon does with `data-file.external-paths`."""
    root, away = store.root / table, store.root / "elsewhere"
    away.mkdir(exist_ok=True)
    there = f"{HOST}/elsewhere"
    for file in [*root.glob("index/*"), *root.rglob("bucket-*/*")]:
        file.rename(away / file.name)
    edit_manifests(root, lambda file: replace(file, external_path=f"{there}/{file.file_name}"))
    for file in (root / "manifest").glob("index-manifest-*"):
        entries = decode_index_manifest(file.read_bytes())
        file.write_bytes(encode_index_manifest([replace(e, external_path=f"{there}/{e.file_name}") for e in entries]))
    for file in [*root.rglob("snapshot/snapshot-*"), *root.rglob("tag/tag-*")]:
        found = json.loads(file.read_text())
        file.write_text(json.dumps({k: v for k, v in found.items() if not k.endswith("Size")}))


@pytest.mark.parametrize("mode", ["fixed", "dynamic", "cross-partition", "append", "deletion-vectors"])
def test_files_that_lie_elsewhere_are_reached_with_them(mode: str, store: Store, tmp_path: Path) -> None:
    primary_key, partition_by, options = MODES[mode]
    uri = f"{HOST}/w/shop.db/t"
    create_table(uri, COLUMNS, primary_key, partition_by, options, storage_options=STORAGE)

    def sink(number: int) -> TableSink:
        """With a local folder of its own, as on a new machine: the key index is built from the table."""
        return TableSink(uri, {"local-directory": str(tmp_path / str(number))}, storage_options=STORAGE, decode=_as_is)

    for number in range(3):
        _write_batch(sink(0), number)
    before = bl.open_table(uri, storage_options=STORAGE).to_arrow()
    _move_away(store, "w/shop.db/t")
    forget_table(uri, "query")
    store.asked.clear()

    table = bl.open_table(uri, storage_options=STORAGE)
    assert table.to_arrow().sort_by("id").equals(before.sort_by("id"))
    assert examine(open_to_examine(uri, storage_options=STORAGE), rows=True) == []
    _write_batch(sink(1), 3)
    table = table.refreshed()
    if primary_key:
        found = {r["id"]: r["v"] for r in table.to_arrow().to_pylist()}
        assert found == dict.fromkeys(range(50), 3)
        table.compact()
    else:
        assert table.to_arrow().num_rows == 200
    table.expire_snapshots(retain_max=1)
    table.remove_orphan_files(dry_run=False)
    assert examine(open_to_examine(uri, storage_options=STORAGE), rows=True) == []
    assert store.without == [] and [u for u in store.asked if u.startswith(f"{HOST}/elsewhere/")]


def test_the_partitions_of_a_fallback_branch_are_read_with_them(store: Store) -> None:
    uri = f"{HOST}/w/shop.db/t"
    options = {"bucket": "1", "file.format": "parquet"}
    table = create_table(uri, COLUMNS, ("id", "pt"), ("pt",), options, storage_options=STORAGE)
    rows = pa.table({"id": [1, 2], "v": [7, 8], "pt": [1, 2]}).cast(table.schema)
    table.write(rows)
    table.create_tag("x")
    table.create_branch("old", "x")
    table.overwrite(rows.slice(0, 1), partition={})
    _move_away(store, "w/shop.db/t")
    store.asked.clear()
    table = open_table(uri, options={"scan.fallback-branch": "old"}, storage_options=STORAGE)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
    assert store.without == [] and [u for u in store.asked if u.startswith(f"{HOST}/elsewhere/")]


def _as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def _write_batch(sink: TableSink, number: int) -> None:
    identity = BatchIdentity(
        "query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}", checkpoint=sink.checkpoint
    )
    data = pa.table({"id": range(50), "v": [number] * 50, "pt": pa.array([(number + i) % 3 for i in range(50)])})
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
    sink.write(Cluster(random.Random(number)).frame(data.cast(schema), 2), identity)


def _look_after(table: Table) -> None:
    rows = pa.table({"id": [1], "v": [7], "pt": [1]}).cast(table.schema)
    table.write(rows)
    table.create_tag("x")
    table = table.add_column("more", "INT")
    table.write(rows.append_column("more", pa.array([1], pa.int32())))
    table.compact()
    if table.options.get("bucket") == "2":
        table.rescale(3)
    table.to_arrow(snapshot="x")
    table.create_branch("b", "x")
    open_table(table.uri, options={"branch": "b"}, storage_options=STORAGE).to_arrow()
    table.delete_branch("b")
    table.expire_snapshots(retain_max=1)
    table.delete_tag("x")
    table.remove_orphan_files()
    table.files()


def test_a_job_reaches_table_and_bad_records_with_its_storage_section(store: Store) -> None:
    text = f"""
        table: {HOST}/w/shop.db/t
        source: {{format: rate}}
        checkpoint: /tmp/c
        storage: {{s3.access-key: AKIA1234, s3.secret-key: hunter2, "s3.endpoint": "http://here:9000"}}
        create: {{schema: "{COLUMNS}", primary-key: [id], options: {{bucket: "1"}}}}
    """
    config = resolve_job(read_settings(text, name="job.yaml"))
    assert handle_of(open_or_create(config)).storage == handle_of(open_or_create(config)).storage == STORAGE
    assert store.without == [] and "hunter2" not in repr(config)
