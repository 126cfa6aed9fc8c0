"""A table that fails is parked: the others go on, and it gets what it has missed when somebody asks for it."""

from pathlib import Path
from typing import Any

import pytest

from bucketline.state.store.table.table import create_table
from bucketline.streaming.many.ledger_files import Wish
from tests.support.spark.many_shop import Shop
from tests.support.spark.tasks import killed_at

PARK = """
create: {schema: "id BIGINT NOT NULL, v STRING, n BIGINT", primary-key: [id], options: {bucket: "1"}}
on-table-failure: park
commit-parallelism: 1
tables: [{source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}]
"""
LENIENT = PARK + "bad-records: {path: ROOT/bad, max: 100}\n"


def row(key: int, text: str = "a") -> dict[str, Any]:
    return {"id": key, "v": text, "n": key}


def poisoned(tmp_path: Path) -> Shop:
    """A job whose table b was parked in batch 1, and has missed records of two batches more."""
    job = Shop(tmp_path, PARK)
    for name in ("a", "b"):
        job.topic.change(name, row(1))
    job.batch()
    job.topic.change("b", {"id": 2, "v": "x", "n": "no number"})
    for number in (2, 3, 4):
        for name in ("a", "b"):
            job.topic.change(name, row(10 * number))
        job.batch()
    return job


def all_rows() -> list[dict[str, Any]]:
    return [row(1), row(20), row(30), row(40)]


def test_a_table_that_fails_is_left_behind_and_the_others_go_on(tmp_path: Path) -> None:
    job = poisoned(tmp_path)
    assert job.rows("a") == all_rows()
    assert job.rows("b") == [row(1)]
    entry = job.entry("b")
    assert entry.parked is not None
    assert (entry.parked.batch, entry.parked.user, entry.parked.digest) == (1, "query", job.identity(1).digest)
    assert entry.parked.end == {("shop", 0): job.plans[1]["0"], ("shop", 1): job.plans[1]["1"]}
    assert "bad record" in entry.parked.why
    job.topic.change("b", row(50))
    told = job.batch()
    assert list(told.parked_records) == [f"{tmp_path}/w/b"]


def test_the_ledger_says_since_when_a_parked_table_lacks_records_until_it_has_them_all(tmp_path: Path) -> None:
    job = Shop(tmp_path, PARK, most_missed=1)
    for name in ("a", "b"):
        job.topic.change(name, row(1))
    job.batch()
    for written_ms, value in ((5_000, 2), (3_000, "no number"), (9_000, 4)):
        job.topic.written_ms = written_ms
        job.topic.change("b", {"id": 2, "v": "x", "n": value})
        job.topic.change("new", {"id": 2, "v": "x", "n": value})
        job.topic.change("a", row(2))
    job.batch()
    assert [job.entry(name).lacks_since_ms for name in ("a", "b", "new")] == [None, 3_000, 3_000]
    for name in ("b", "new"):
        entry = job.entry(name)
        assert entry.parked is not None and {feed for feed, _ in entry.fed} == {"shop"} and entry.origins
    job.text = LENIENT
    job.crash()
    job.ask(Wish.UNPARK, "b")
    job.batch()
    assert job.entry("b").catching_up and job.entry("b").lacks_since_ms == 3_000
    job.most_missed = 1000
    job.batch()
    assert (job.entry("b").takes_part, job.entry("b").lacks_since_ms) == (True, None)


def test_a_parked_table_gets_what_it_has_missed_and_joins_the_others(tmp_path: Path) -> None:
    job = poisoned(tmp_path)
    job.text = LENIENT
    job.crash()
    job.ask(Wish.UNPARK, "b")
    job.topic.change("b", row(50))
    job.batch()
    assert job.rows("b") == [*all_rows(), row(50)]
    assert job.entry("b").takes_part
    job.topic.change("b", row(60))
    job.batch()
    assert job.rows("b") == [*all_rows(), row(50), row(60)]
    assert list(job.appends("b")) == [0, 4, 5]
    assert not job.state().files.requests()


def test_keys_that_change_while_their_table_is_parked_end_as_the_source_has_them(tmp_path: Path) -> None:
    job = poisoned(tmp_path)
    job.topic.change("b", row(20), op="d")
    job.topic.put({"id": 20}, None)
    job.topic.change("b", row(21, "moved"))
    job.batch()
    job.text = LENIENT
    job.crash()
    job.ask(Wish.UNPARK, "b")
    job.topic.change("b", row(21, "changed"), op="u", before=row(21, "moved"))
    job.batch()
    assert job.rows("b") == [row(1), row(21, "changed"), row(30), row(40)]


def test_it_is_parked_again_where_it_fails_again(tmp_path: Path) -> None:
    job = poisoned(tmp_path)
    job.ask(Wish.UNPARK, "b")
    job.topic.change("a", row(50))
    told = job.batch()
    assert list(told.failed) == [f"{tmp_path}/w/b"]
    assert job.rows("a") == [*all_rows(), row(50)]
    assert job.rows("b") == [row(1)]
    job.text = LENIENT
    job.crash()
    job.ask(Wish.UNPARK, "b")
    job.batch()
    assert job.rows("b") == all_rows()


def test_what_it_has_missed_comes_in_parts(tmp_path: Path) -> None:
    job = poisoned(tmp_path)
    job.text = LENIENT
    job.crash()
    job.most_missed = 3
    job.ask(Wish.UNPARK, "b")
    for number in range(5, 20):
        if job.entry("b").takes_part:
            break
        job.topic.change("a", row(10 * number))
        job.batch()
    assert job.entry("b").takes_part
    assert job.rows("b") == all_rows()


def test_what_it_has_missed_waits_while_no_route_is_for_it(tmp_path: Path) -> None:
    job = poisoned(tmp_path)
    job.text = LENIENT.replace('"regex:shop\\\\..*"', "shop.a") + "unmatched: skip\n"
    job.crash()
    job.ask(Wish.UNPARK, "b")
    job.topic.change("b", row(50))
    job.batch()
    assert job.entry("b").catching_up and job.rows("b") == [row(1)]
    job.text = LENIENT
    job.crash()
    job.batch()
    assert job.rows("b") == [*all_rows(), row(50)]


@pytest.mark.parametrize("at", range(2, 70, 12))
def test_a_process_that_dies_while_a_table_catches_up_doubles_and_loses_nothing(tmp_path: Path, at: int) -> None:
    job = poisoned(tmp_path)
    job.text = LENIENT
    job.crash()
    job.ask(Wish.UNPARK, "b")
    job.topic.change("b", row(50))
    job.topic.change("a", row(50))
    with killed_at(at) as death:
        job.batch()
    assert death.is_dead
    job.crash()
    job.batch()
    assert job.rows("a") == job.rows("b") == [*all_rows(), row(50)]
    assert list(job.appends("b")) == [0, 4]


def test_a_table_that_is_forgotten_begins_anew(tmp_path: Path) -> None:
    job = poisoned(tmp_path)
    job.crash()
    (tmp_path / "w/b").rename(tmp_path / "aside")
    create_table(str(tmp_path / "w/b"), "id BIGINT NOT NULL, v STRING, n BIGINT", ("id",), options={"bucket": "1"})
    job.ask(Wish.FORGET, "b")
    job.topic.change("b", row(50))
    job.batch()
    assert job.rows("b") == [row(50)]
