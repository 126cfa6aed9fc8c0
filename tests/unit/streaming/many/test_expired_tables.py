"""A job of many tables, and tables whose snapshots expire while a batch is written."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketline.state.store.index.hash_index_store import shared_hash_cache
from bucketline.state.store.table.table import open_table
from bucketline.streaming.tasks.many.read_tables import ReadTables
from bucketline.streaming.tasks.many.spark_tables import Ahead, TableResults
from bucketline.streaming.tasks.many.table_notes import TaskNotes
from bucketline.streaming.tasks.many.write_tables import WriteTables
from tests.support.spark.local_tables import LocalTables
from tests.support.spark.many_shop import Shop

DYNAMIC = """
create:
  schema: "id BIGINT NOT NULL, v STRING, n BIGINT"
  primary-key: [id]
  options: {bucket: "-1", snapshot.ignore-empty-commit: "false"}
on-table-failure: park
commit-parallelism: 1
tables: [{source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}]
"""


@dataclass
class _ThenWrites:
    ahead: Ahead
    act: Callable[[], None]

    @property
    def notes(self) -> TaskNotes:
        return self.ahead.notes

    def write(self, tables: WriteTables) -> TableResults:
        self.act()
        return self.ahead.write(tables)


@dataclass
class Late(LocalTables):
    """Tasks that begin to write late: `meanwhile` happens before they write, as often as it says."""

    meanwhile: Callable[[], None] = lambda: None
    writes: int = 0

    @contextmanager
    def read(self, reading: ReadTables, source: Sequence[Sequence[pa.Table]]) -> Iterator[Ahead]:
        def act() -> None:
            self.writes += 1
            self.meanwhile()
            # Others write in other processes, so they share no cache with tasks.
            shared_hash_cache.cache_clear()

        with super().read(reading, source) as ahead:
            yield _ThenWrites(ahead, act)


def row(key: int, text: str = "a") -> dict[str, Any]:
    return {"id": key, "v": text, "n": key}


def write(path: str, key: int) -> None:
    """Another writer adds a row."""
    other = open_table(path)
    other.write(pa.table({"id": [key], "v": ["theirs"], "n": [None]}).cast(pa.schema(other.schema)))


def late_shop(tmp_path: Path) -> Shop:
    """A job with the tables a and b, whose next batch has a row for each. The newest snapshot of b is another
    writer's."""
    job = Shop(tmp_path, DYNAMIC, engine=Late())
    for name in ("a", "b"):
        job.topic.change(name, row(1))
    job.batch()
    write(f"{tmp_path}/w/b", 5)
    for name in ("a", "b"):
        job.topic.change(name, row(2))
    return job


def late(job: Shop) -> Late:
    assert isinstance(job.engine, Late)
    return job.engine


def test_a_table_whose_snapshot_has_expired_is_planned_again_and_not_parked(tmp_path: Path) -> None:
    job = late_shop(tmp_path)
    left = [7]

    def replaced() -> None:
        if left:
            write(f"{tmp_path}/w/b", left.pop())
            open_table(f"{tmp_path}/w/b").expire_snapshots(retain_min=1, retain_max=1)

    late(job).meanwhile = replaced
    told = job.batch()
    assert not told.failed and late(job).writes == 3
    assert job.rows("a") == [row(1), row(2)]
    assert [r["id"] for r in job.rows("b")] == [1, 2, 5, 7]
    files = {p.name for p in (tmp_path / "w" / "a" / "bucket-0").iterdir()}
    assert files == {f["file_path"].rpartition("/")[2] for f in open_table(f"{tmp_path}/w/a").files().to_pylist()}


def test_a_damaged_table_that_others_write_is_parked_in_the_end(tmp_path: Path) -> None:
    job = late_shop(tmp_path)

    def damaged() -> None:
        for index in (tmp_path / "w" / "b" / "index").glob("index-*"):
            index.unlink()
        other = open_table(f"{tmp_path}/w/b")
        other.write(other.to_arrow().slice(0, 0))

    late(job).meanwhile = damaged
    told = job.batch()
    assert [error.code for error in told.failed.values()] == ["CORRUPT_FILE"]
    parked = job.entry("b").parked
    assert parked is not None and "HASH index file of bucket 0 is missing" in parked.why
    assert job.rows("a") == [row(1), row(2)] and late(job).writes == 4
