"""Batches of many tables without Spark: each table gets each change once, whatever the process dies of."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.store.table.table import open_table
from bucketline.streaming.job.kafka.table_offsets import newest_offsets
from tests.support.spark.many_shop import QUERY, Shop
from tests.support.spark.tasks import killed_at

ROUTES = """
create: {schema: "id BIGINT NOT NULL, v STRING, n BIGINT", primary-key: [id], options: {bucket: "2"}}
tables:
  - {source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}
"""


def shop(tmp_path: Path, text: str = ROUTES) -> Shop:
    return Shop(tmp_path, text)


class Day:
    """Changes of some tables, drawn from a seed, and what the tables hold after them."""

    def __init__(self, shop: Shop, seed: int, tables: int = 4) -> None:
        self.shop, self.draw = shop, random.Random(seed)
        self.tables: dict[str, dict[int, dict[str, Any]]] = {f"t{n}": {} for n in range(tables)}

    def hour(self, changes: int = 60) -> None:
        for _ in range(changes):
            name = self.draw.choice(list(self.tables))
            rows, key = self.tables[name], self.draw.randrange(20)
            row = {"id": key, "v": f"{name}-{self.draw.randrange(1000)}", "n": self.draw.randrange(100)}
            if key in rows and self.draw.random() < 0.3:
                self.shop.topic.change(name, rows.pop(key), "d")
                self.shop.topic.put({"id": key}, None)
            else:
                self.shop.topic.change(name, row, "u" if key in rows else "c", rows.get(key))
                rows[key] = row

    def check(self) -> None:
        for name, rows in self.tables.items():
            assert self.shop.rows(name) == [rows[key] for key in sorted(rows)], name


def test_each_table_gets_its_changes_and_commits_only_in_batches_that_bring_it_rows(tmp_path: Path) -> None:
    job = shop(tmp_path)
    day = Day(job, 1)
    day.hour()
    job.batch()
    day.check()
    job.topic.change("t1", {"id": 99, "v": "alone", "n": 1})
    day.tables["t1"][99] = {"id": 99, "v": "alone", "n": 1}
    told = job.batch()
    assert [report.table.rpartition("/")[2] for report in told.reports] == ["t1"]
    assert (list(job.appends("t0")), list(job.appends("t1"))) == ([0], [0, 1])
    day.check()


def test_tables_that_are_known_are_read_once(tmp_path: Path) -> None:
    job = shop(tmp_path)
    day = Day(job, 2)
    day.hour()
    job.batch()
    assert job.engine.reads == 2, "once to see which tables there are"
    day.hour()
    job.batch()
    assert job.engine.reads == 3
    day.check()


@pytest.mark.parametrize("way", ["before", "after", "torn"])
def test_a_batch_that_dies_at_any_call_to_storage_is_finished_by_the_next_process(tmp_path: Path, way: str) -> None:
    job = shop(tmp_path)
    day = Day(job, 3, tables=3)
    step, at = 8, 3
    for _ in range(7):
        day.hour(20)
        with killed_at(at, way) as death:
            job.batch()
        assert death.is_dead
        job.crash()
        job.batch()
        at += step
        day.check()
        for name in day.tables:
            identifiers = list(job.appends(name))
            assert identifiers == sorted(set(identifiers)), "each batch once"


def test_current_timestamp_is_the_time_of_the_batch_in_each_table_and_attempt(tmp_path: Path) -> None:
    create = 'create: {schema: "id BIGINT NOT NULL, seen TIMESTAMP_LTZ(3)", primary-key: [id], options: {bucket: "1"}}'
    select = 'select: "id, now() AS seen"'
    routes = 'tables: [{source-table: "regex:shop[.].*", table: "ROOT/w/{table}"}]'
    job = Shop(tmp_path, f"{create}\n{select}\n{routes}\n", time_ms=1_700_000_000_000)
    for number, at in enumerate((None, 15, 30)):
        for name in ("t0", "t1"):
            job.topic.change(name, {"id": number})
        with killed_at(at) as death:
            job.batch()
        assert death.is_dead is (at is not None)
        if death.is_dead:
            job.crash()
            job.batch()
    wanted = [datetime.fromtimestamp(1_700_000_000 + n / 1000, UTC) for n in range(3)]
    assert [row["seen"] for row in job.rows("t0")] == [row["seen"] for row in job.rows("t1")] == wanted


def test_the_tag_of_a_table_that_is_idle_for_long_is_renewed(tmp_path: Path) -> None:
    job = shop(tmp_path)
    for name in ("t0", "t1"):
        job.topic.change(name, {"id": 1, "v": "a", "n": 1})
    job.batch()
    before = {name: _marker(job, name) for name in ("t0", "t1")}
    for key in range(2, 8):
        job.topic.change("t0", {"id": key, "v": "a", "n": 1})
    job.batch()
    job.ahead_ms = 11 * 86_400_000
    job.crash()
    job.topic.change("t0", {"id": 9, "v": "a", "n": 1})
    job.batch()
    after = _marker(job, "t1")
    assert after["create_time"] > before["t1"]["create_time"]
    assert after["snapshot_id"] == before["t1"]["snapshot_id"]
    reached = next(newest_offsets(open_table(f"{tmp_path}/w/t1"), QUERY)).topics
    fed = {str(number) for _, number in job.entry("t1").fed}
    assert reached == {"shop": {number: end for number, end in job.plans[1].items() if number in fed}}
    assert job.entry("t1").marked_ms > job.entry("t1").commits + 11 * 86_400_000


def _marker(job: Shop, name: str) -> dict[str, Any]:
    tags = open_table(f"{job.root}/w/{name}").tags().to_pylist()
    return next(tag for tag in tags if tag["tag_name"].startswith(MARKER_TAG))
