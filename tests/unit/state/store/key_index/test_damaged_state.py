"""Local state and index files damaged on purpose, as a job meets them: it recovers, or stops with the remedy; the table
never holds wrong rows."""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.determinism import SYSTEM_WORLD, SystemPause
from bucketline.state.errors import CorruptFileError, IndexStateError, StorageError
from bucketline.state.store.index.hash_index_store import shared_hash_cache
from bucketline.state.store.key_index.backup import BackupFolder, back_up
from bucketline.state.store.key_index.ready import IndexPlan, ready_index
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster
from tests.support.tables.moving_keys import MovingKeys

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
KEYS = 60


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


class Moving:
    """A cross-partition table, a stream into it that starts anew for each batch, and what it must hold."""

    def __init__(self, root: Path, name: str = "t", seed: int = 1) -> None:
        self.root = root
        self.table = create_table(str(root / "shop.db" / name), COLUMNS, ("id",), ("pt",), {"bucket": "-1"})
        self.draw = random.Random(seed)
        self.rows: dict[int, tuple[int, int]] = {}
        self.batch_id = 0
        self.pending: pa.Table | None = None

    @property
    def local(self) -> Path:
        return self.root / "local"

    def write(self, local: Path | None = None) -> None:
        """One batch; one that failed is tried again with the same rows."""
        if self.pending is None:
            ids = [self.draw.randrange(KEYS) for _ in range(40)]
            parts = [self.draw.randrange(3) for _ in ids]
            self.pending = pa.table(
                {"id": ids, "v": [self.batch_id * 1000 + i for i in range(40)], "pt": pa.array(parts, pa.int32())}
            )
        forget_table(self.table.path, "query")
        options = {"local-directory": str(local or self.local), "assigner-parallelism": "2"}
        number = self.batch_id
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        frame = Cluster(self.draw, 2).frame(self.pending, 2)
        TableSink(self.table.path, options, decode=as_is).write(frame, identity)
        self.rows |= {r["id"]: (r["v"], r["pt"]) for r in self.pending.to_pylist()}
        self.pending, self.batch_id = None, self.batch_id + 1

    def check(self) -> None:
        found = open_table(self.table.path).to_arrow().to_pylist()
        assert len(found) == len({r["id"] for r in found})
        assert {r["id"]: (r["v"], r["pt"]) for r in found} == self.rows

    def shards(self) -> list[Path]:
        return sorted((self.local / "key-index").glob("*/shard-*"))


@pytest.fixture
def moving(tmp_path: Path) -> Moving:
    found = Moving(tmp_path)
    for _ in range(3):
        found.write()
    return found


def go_on(moving: Moving) -> None:
    """The next batches are right, the first of which meets the damage."""
    for _ in range(2):
        moving.write()
        moving.check()


def gone(moving: Moving) -> None:
    shutil.rmtree(moving.local)


def one_shard_gone(moving: Moving) -> None:
    shutil.rmtree(moving.shards()[0])


def halves(moving: Moving) -> None:
    for path in moving.local.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty_files(moving: Moving) -> None:
    for path in moving.local.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


def other_table(moving: Moving) -> None:
    other = Moving(moving.root, "other", seed=2)
    for _ in range(3):
        other.write()
    tables = sorted({p.parent for p in moving.shards()})
    mine, theirs = ([p for p in moving.shards() if p.parent == table] for table in tables)
    for own, foreign in zip(mine, theirs, strict=True):
        moved = own.with_name("moved")
        own.rename(moved)
        foreign.rename(own)
        moved.rename(foreign)


def shards_swapped(moving: Moving) -> None:
    first, second = moving.shards()
    first.rename(first.with_name("moved"))
    second.rename(first)
    first.with_name("moved").rename(second)


def expired(moving: Moving) -> None:
    """The machine was away while others wrote and expired."""
    for _ in range(3):
        moving.write(moving.root / "elsewhere")
    moving.table.expire_snapshots(retain_max=1, retain_min=1)


def rolled_back(moving: Moving) -> None:
    """The table is put back behind what the index has seen, and goes on from there without the stream."""
    moving.table.create_tag("then", 2)
    at_two = {r["id"]: (r["v"], r["pt"]) for r in moving.table.to_arrow(snapshot=2).to_pylist()}
    moving.write()
    moving.table.rollback_to("then")
    moving.rows = at_two
    forget_table(moving.table.path, "query")
    moving.batch_id = 2


def old_copy(moving: Moving) -> None:
    """A copy of the local directory from three batches ago comes back."""
    shutil.copytree(moving.local, moving.root / "copy")
    for _ in range(3):
        moving.write()
    shutil.rmtree(moving.local)
    shutil.copytree(moving.root / "copy", moving.local)


HARMS = (gone, one_shard_gone, halves, empty_files, other_table, shards_swapped, expired, rolled_back, old_copy)


@pytest.mark.parametrize("harm", HARMS)
def test_a_job_goes_on_with_a_right_index_whatever_became_of_the_old_one(
    moving: Moving, harm: Callable[[Moving], None]
) -> None:
    harm(moving)
    go_on(moving)


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_file_of_the_index_is_never_believed(tmp_path: Path, seed: int) -> None:
    moving, draw = Moving(tmp_path, seed=seed), random.Random(seed)
    moving.write()
    for _ in range(4):
        files = sorted(p for p in moving.local.rglob("*") if p.is_file() and p.stat().st_size)
        path = draw.choice(files)
        data = path.read_bytes()
        cut = draw.randrange(len(data))
        flipped = bytes([data[cut] ^ 0xFF]) + data[cut + 1 :]
        path.write_bytes(data[:cut] + draw.choice((b"", flipped)))
        try:
            moving.write()
        except BucketlineError as e:
            # What only reading shows stops the batch once; the next attempt finds the mark and starts anew.
            assert isinstance(e, IndexStateError), e
            moving.write()
        moving.check()


HOLDER = """
import sys, time
from rocksdict import Rdict
held = [Rdict(path + "/db") for path in sys.argv[1:]]
print("held", flush=True)
sys.stdin.read()
"""


def test_an_index_that_a_living_process_holds_stops_the_batch_and_names_it(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemPause, "wait_ms", lambda self, duration_ms: None)
    command = [sys.executable, "-c", HOLDER, *map(str, moving.shards())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(IndexStateError, match="'local-directory'"):
            moving.write()
        moving.check()
    go_on(moving)


@contextmanager
def small_disk(path: Path, kib: int) -> Iterator[Path]:
    """A file system of so many KiB."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.parametrize("kib", [16, 400, 1200, 1600, 2400, 4800])
def test_a_full_disk_stops_the_write_and_says_what_to_do(tmp_path: Path, kib: int) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), ("pt",), {"bucket": "-1"})
    expected: dict[int, tuple[int, int]] = {}
    messages = []
    with small_disk(tmp_path / "disk", kib) as disk:
        for number in range(4):
            ids = np.arange(number * 2000, number * 2000 + 40000)
            data = pa.table({"id": ids, "v": ids * 7919 % 100003, "pt": np.full(len(ids), number % 3, np.int32)})
            local = disk if number % 2 else tmp_path / "large"
            options = {"local-directory": str(local), "merge-memory": "1 mb", "key-index-memory": "1 mb"}
            try:
                write_table(handle_of(table), data, options=options)
            except StorageError as e:
                assert "the disk is full" in e.message and "'local-directory'" in e.message
                messages.append(e.message)
                continue
            expected |= {i: (v, number % 3) for i, v in zip(ids.tolist(), data["v"].to_pylist(), strict=True)}
        assert not list(disk.rglob("*.building"))
    if kib < 1000 or kib > 3000:
        assert bool(messages) == (kib < 1000)
    found = table.to_arrow()
    assert found.num_rows == len(expected)
    assert {r["id"]: (r["v"], r["pt"]) for r in found.to_pylist()} == expected


@pytest.mark.parametrize("kib", [4, 16, 64])
def test_a_disk_too_full_for_a_backup_says_what_to_do(tmp_path: Path, kib: int) -> None:
    table = MovingKeys(tmp_path / "t", target_rows=1_000_000)
    folder = BackupFolder(LocalIO(), str(tmp_path / "checkpoint"))
    plan = IndexPlan(str(table.path), table.keys(), str(tmp_path / "large"), RocksSettings(8 << 20), folder)
    index, _ = ready_index(plan, table.source, None)
    with index:
        table.write([(i, "ab"[i % 2], i, 0) for i in range(20_000)], index)
    index, _ = ready_index(plan, table.source, table.latest())
    with index:
        back_up(index, folder, SYSTEM_WORLD)
    with small_disk(tmp_path / "disk", kib) as disk:
        with pytest.raises(StorageError, match=r"the disk is full.*'local-directory'"):
            ready_index(replace(plan, directory=str(disk)), table.source, table.latest())
        assert not list(disk.rglob("*.restoring")) and not list(disk.rglob("*.building"))


def dynamic(path: Path, name: str = "t") -> Table:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "10"}
    return create_table(str(path / "shop.db" / name), COLUMNS, ("id",), options=options)


def rows(ids: range) -> pa.Table:
    return pa.table({"id": list(ids), "v": list(ids), "pt": pa.array([0] * len(ids), pa.int32())})


@pytest.mark.parametrize("harm", ["gone", "short", "cut", "all gone"])
def test_a_damaged_hash_index_stops_the_write_and_names_the_file(tmp_path: Path, harm: str) -> None:
    table = dynamic(tmp_path)
    table.write(rows(range(35)))
    files = sorted((Path(table.path) / "index").iterdir())
    whole = files[1].read_bytes()
    if harm == "gone":
        files[1].unlink()
    elif harm == "all gone":
        shutil.rmtree(files[1].parent)
    else:
        files[1].write_bytes(whole[:-4] if harm == "short" else whole[:-1])
    shared_hash_cache.cache_clear()
    with pytest.raises(CorruptFileError, match="index-"):
        table.write(rows(range(20, 60)))
    assert table.snapshots().num_rows == 1 and table.to_arrow().num_rows == 35
    if harm != "all gone":
        files[1].write_bytes(whole)
        table.write(rows(range(20, 60)))
        assert table.to_arrow().num_rows == 60


def test_a_rolled_back_dynamic_table_goes_on_with_the_index_it_had(tmp_path: Path) -> None:
    table = dynamic(tmp_path)
    table.write(rows(range(15)))
    table.create_tag("then", 1)
    table.write(rows(range(10, 50)))
    table.rollback_to("then")
    table.write(rows(range(12, 30)))
    table.write(rows(range(40)))
    found = table.to_arrow()["id"].to_pylist()
    assert sorted(found) == list(range(40))
    assert not [f for f in table.doctor(rows=True) if f.severity.value == "error"]
