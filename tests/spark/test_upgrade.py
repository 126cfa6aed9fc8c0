"""A job of the first release dies in the middle of a batch, and the new code goes on where it was.

The jobs of the first release run one after the other in a process with its code: `tests.support.processes.old_deaths`.
"""

import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.sink import TableSink
from tests.support.processes.old_release import FIRST_RELEASE, HistoryMissingError, OldRelease, unpack_release
from tests.support.processes.stream_job import Kill
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("pt", pa.int32()), ("n", pa.int64())])
DDL = "id long, pt int, n long"
BATCHES, KILLED = 3, 1


def batch(number: int) -> list[dict[str, int]]:
    """Rows of forty keys, some of them twice, which are in another partition in each batch."""
    return [{"id": i * 7 % 40, "pt": (i + number) % 3, "n": number * 1000 + i} for i in range(50)]


class Shop:
    """A stream into a table of each bucket mode whose writers keep something: sums, a hash index, a key index."""

    def __init__(self, root: Path) -> None:
        self.root, self.local = root, root / "index"
        self.stream = FileStream(root, DDL)
        for number in range(BATCHES):
            self.stream.add(pa.Table.from_pylist(batch(number), schema=COLUMNS))
        common = {"full-compaction.delta-commits": "2"}
        sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "bucket": "2"}
        self.sums = create_table(str(root / "shop.db" / "sums"), COLUMNS, ("id",), options=common | sums)
        self.dynamic = create_table(
            str(root / "shop.db" / "dynamic"),
            COLUMNS.set(1, pa.field("pt", pa.int32(), nullable=False)),
            ("pt", "id"),
            ("pt",),
            options=common | {"dynamic-bucket.target-row-num": "8"},
        )
        self.moving = create_table(str(root / "shop.db" / "moving"), COLUMNS, ("id",), ("pt",), options=common)
        self.tables = [self.sums.path, self.dynamic.path, self.moving.path]
        self.options = {"local-directory": str(self.local), "assigner-parallelism": "2"}

    def check(self, user: str, extra: int) -> None:
        """Every row of every batch is there once, by one user; `extra` was added to each sum by somebody else."""
        rows = [row for number in range(BATCHES) for row in batch(number)]
        sums: dict[int, int] = defaultdict(lambda: extra)
        for row in rows:
            sums[row["id"]] += row["n"]
        assert {r["id"]: r["n"] for r in found(self.sums)} == sums
        dynamic = found(self.dynamic)
        assert {(r["pt"], r["id"]): r["n"] for r in dynamic} == {(r["pt"], r["id"]): r["n"] for r in rows}
        moving = found(self.moving)
        assert {r["id"]: r for r in moving} == {r["id"]: r for r in rows}
        assert len(dynamic) == len({(r["pt"], r["id"]) for r in rows}) and len(moving) == len(sums)
        for path in self.tables:
            table = open_table(path)
            ours = [s for s in table.snapshots().to_pylist() if s["commit_user"] == user]
            done = [(s["commit_identifier"], s["commit_kind"]) for s in ours]
            assert len(set(done)) == len(done), done
            assert table.doctor(rows=True) == []
            tags = Tags(handle_of(table).io, table.path).list()
            assert [(t.name, t.snapshot.commit_identifier) for t in tags] == [(MARKER_TAG + user, BATCHES - 1)]

    def indexes(self) -> dict[str, str]:
        """What RocksDB calls each key index, by folder: one that is made anew has another name."""
        return {str(f.parent.relative_to(self.local)): f.read_text() for f in self.local.rglob("IDENTITY")}


def found(table: Table) -> list[dict[str, Any]]:
    return open_table(table.path).to_arrow().to_pylist()


def newest_batch(table: Table) -> int:
    return max(table.snapshots()["commit_identifier"].to_pylist())


KILLS = (
    Kill("after level 0", KILLED, table=0),
    Kill("after APPEND", KILLED, table=1),
    Kill("after manifests", KILLED, table=2),
    Kill("between APPEND and COMPACT", KILLED, table=2),
)


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> OldRelease:
    return unpack_release(FIRST_RELEASE, tmp_path_factory.mktemp("first-release") / "tree")


@pytest.fixture(scope="module")
def killed(first_release: OldRelease, tmp_path_factory: pytest.TempPathFactory) -> dict[Kill, Shop]:
    """For each of `KILLS`, what a job of the first release left that died there."""
    shops = {kill: Shop(tmp_path_factory.mktemp("shop")) for kill in KILLS}
    jobs = [
        {"root": str(shop.root), "ddl": DDL, "tables": shop.tables, "options": shop.options, "kill": asdict(kill)}
        for kill, shop in shops.items()
    ]
    log = tmp_path_factory.mktemp("died") / "log"
    assert first_release.die_at(jobs, log) == 0, log.read_text()[-4000:]
    return shops


@pytest.mark.parametrize("kill", KILLS, ids=lambda k: f"{k.point} of table {k.table}".replace(" ", "-"))
def test_a_job_of_the_first_release_that_died_goes_on_with_its_checkpoint_index_and_marker(
    spark: Any, killed: dict[Kill, Shop], kill: Kill
) -> None:
    shop, extra = killed[kill], 0
    written = kill.point in ("after APPEND", "between APPEND and COMPACT")
    assert newest_batch(open_table(shop.tables[kill.table])) == KILLED - 1 + written
    indexes = shop.indexes()
    assert len(indexes) == 2
    if kill.table != 0:
        # The marker of the first release is then all that is left of its batch.
        extra = 7
        shop.sums.write(pa.Table.from_pylist([{"id": i, "pt": 0, "n": extra} for i in range(40)], schema=COLUMNS))
        shop.sums.expire_snapshots(retain_max=1, retain_min=1)
        assert shop.sums.snapshots().num_rows == 1
    sinks = [TableSink(path, shop.options) for path in shop.tables]

    def write(frame: Any, batch_id: int) -> None:
        for sink in sinks:
            sink(frame, batch_id)

    query = shop.stream.run(spark, write)

    shop.check(str(query.id), extra)
    assert shop.indexes() == indexes, "the key index was made anew"


def test_the_first_release_and_this_one_write_one_table_side_by_side(first_release: OldRelease, tmp_path: Path) -> None:
    assert str(first_release.folder) in first_release.where(tmp_path / "where")
    options = {"bucket": "2", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    program = (
        "import sys, json, pathlib, time, pyarrow as pa, bucketline as bl\n"
        "path, go, start = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])\n"
        "pathlib.Path(str(go) + sys.argv[3]).touch()\n"
        "while not go.exists(): time.sleep(0.01)\n"
        "table = bl.open_table(path)\n"
        "for turn in range(15):\n"
        "    table.write(pa.table({'id': list(range(start, start + 20)), 'pt': pa.array([turn] * 20, pa.int32()),"
        " 'n': [1] * 20}))\n"
    )
    go = tmp_path / "go"
    old = first_release.start(["-c", program, table.path, str(go), "0"], tmp_path / "old.log")
    with (tmp_path / "new.log").open("ab") as log:
        new = subprocess.Popen(
            [sys.executable, "-c", program, table.path, str(go), "10"], stdout=log, stderr=log, env=os.environ
        )
    go.touch()
    assert (old.wait(120), new.wait(120)) == (0, 0), [(tmp_path / f"{n}.log").read_text() for n in ("old", "new")]

    sums = {r["id"]: r["n"] for r in found(table)}
    assert sums == {i: (15 if i < 20 else 0) + (15 if i >= 10 else 0) for i in range(30)}
    kinds = open_table(table.path).snapshots()
    assert kinds.filter(pa.compute.equal(kinds["commit_kind"], "APPEND")).num_rows == 30
    assert open_table(table.path).doctor(rows=True) == []


def test_a_checkout_without_its_history_is_told_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(HistoryMissingError, match=r"run `git fetch --unshallow`"):
        unpack_release("0" * 40, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
