"""A stream of files into two tables, on local disk or in an object store, whose runs are killed: what holds then."""

import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.recover import END_OFFSETS
from tests.support.processes.stream_job import Kill, StreamJob, left
from tests.support.spark.streams import FileStream

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int64())])
DDL = "id long, name string, n long"


def rows(number: int) -> pa.Table:
    """Rows of one batch: upserts of keys that other batches write as well, some of them twice."""
    ids = [(i * 7 + number * 3) % 90 for i in range(150)]
    return pa.table(
        {"id": ids, "name": [f"{number}-{i}" for i in range(150)], "n": [number * 1000 + i for i in range(150)]},
        schema=COLUMNS,
    )


class Shop:
    """A stream of files and the two tables it is written to: upserts with compaction, and a log of all rows.

    `base` is where the tables lie, if not in `root`; the environment says how it is reached.
    """

    def __init__(self, root: Path, base: str | None = None) -> None:
        self.stream = FileStream(root, DDL)
        self.root = root
        self.count = 0
        options = {"bucket": "3", "full-compaction.delta-commits": "2"}
        self.keyed = create_table(f"{base or root}/shop.db/keyed", COLUMNS, ("id",), options=options)
        self.log = create_table(f"{base or root}/shop.db/log", COLUMNS)

    def add(self, count: int) -> None:
        for _ in range(count):
            self.stream.add(rows(self.count))
            self.count += 1

    def run(self, kill: Kill | None = None, seconds: float | None = None) -> int:
        return self._job(kill=kill, kill_after_seconds=seconds).run()

    def killed_at(self, steps: Sequence[Kill]) -> Iterator[tuple[Kill, "Shop"]]:
        """The shop after each of these deaths, one process after the other; then it is finished."""
        for kill in steps:
            assert self.run(kill) == -9, self.job_log()
            yield kill, self
        self.finish()

    def given_up_at(self, steps: Sequence[Kill]) -> Iterator[tuple[Kill, "Shop"]]:
        """As `killed_at`, by one process that goes on with a copy of what each death leaves."""
        assert self._job(deaths=tuple(steps)).run() == 0, self.job_log()
        for number, kill in enumerate(steps):
            yield kill, self._left(number)
        self._left(len(steps)).check_end()

    def finish(self) -> None:
        """Runs to the end, which has to be that of a run in which nothing happened."""
        assert self.run() == 0, self.job_log()
        self.check_end()

    def check_end(self) -> None:
        """All rows are there once, and every batch that compacts has compacted."""
        assert self.check() == (self.count, self.count)
        done = kinds(self.keyed)
        newest = max(i for i, _ in done)
        assert done == [
            (i, kind) for i in range(newest + 1) for kind in (["APPEND", "COMPACT"] if i % 2 else ["APPEND"])
        ]
        if newest % 2:
            assert {f["level"] for f in self.keyed.files().to_pylist()} == {5}

    def check(self) -> tuple[int, int]:
        """How many files are in each table; its rows are exactly those of so many files, and no batch came twice."""
        found = []
        for table in (self.keyed, self.log):
            done = kinds(table)
            assert len(set(done)) == len(done), done
            appended = [i for i, kind in done if kind == "APPEND"]
            assert appended == list(range(len(appended)))
            # What a killed batch still owed is compacted under another name.
            users = {u.removeprefix("compactor-") for u in table.snapshots()["commit_user"].to_pylist()}
            assert len(users) <= 1, users
            found.append(files_in(table))
        keyed = open_table(self.keyed.uri).to_arrow().to_pylist()
        assert {r["id"]: r for r in keyed} == {r["id"]: r for i in range(found[0]) for r in rows(i).to_pylist()}
        assert len({r["id"] for r in keyed}) == len(keyed)
        log = open_table(self.log.uri).to_arrow()
        assert sum(log["n"].to_pylist()) == sum(n for i in range(found[1]) for n in rows(i)["n"].to_pylist())
        assert log.num_rows == 150 * found[1]
        return found[0], found[1]

    def _job(self, **ends: Any) -> StreamJob:
        return StreamJob(str(self.root), DDL, (self.keyed.uri, self.log.uri), **ends)

    def _left(self, number: int) -> "Shop":
        found = copy.copy(self)
        folder = left(self.root, number) / "shop.db"
        found.keyed, found.log = open_table(str(folder / "keyed")), open_table(str(folder / "log"))
        return found

    def job_log(self) -> str:
        return (self.root / "log").read_text()[-4000:]


def kinds(table: Table) -> list[tuple[int, str]]:
    return [(s["commit_identifier"], s["commit_kind"]) for s in table.snapshots().to_pylist()]


def files_in(table: Table) -> int:
    """How many input files the newest batch has taken in; a compaction that it owed says nothing of its input.

    Most often one a batch. Killed between its own log of files and its log of offsets, Spark starts again with the
    same batch id and one file more in it.
    """
    newest = handle_of(table).snapshot_store.latest()
    if newest is None:
        return 0
    batch = next(s for s in handle_of(table).snapshot_store.newest_first(newest.id) if END_OFFSETS in s.properties)
    return int(json.loads(batch.properties[END_OFFSETS])[0]["logOffset"]) + 1
