"""Tables of a job of many that do what only a job of one table could do: follow truncates, move keys between
partitions."""

from pathlib import Path
from typing import Any

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.table.table import create_table, open_table
from tests.support.spark.many_shop import Shop, Topic
from tests.support.spark.tasks import killed_at

APPLIED = """
create: {schema: "id BIGINT NOT NULL, v STRING, n BIGINT", primary-key: [id], options: {bucket: "BUCKET"}}
truncate: apply
tables:
  - {source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}
"""
MOVING = """
create:
  schema: "id BIGINT NOT NULL, v STRING, n BIGINT"
  primary-key: [id]
  partition-by: [v]
  options: {bucket: "-1"}
tables:
  - {source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}
"""


def row(key: int, text: str = "a") -> dict[str, Any]:
    return {"id": key, "v": text, "n": key}


def truncate(job: Shop, table: str) -> None:
    job.topic.put(None, {"before": None, "after": None, "op": "t", "source": {"db": "shop", "table": table}}, 0)


@pytest.mark.parametrize("bucket", ["1", "-1", "-2"])
def test_a_truncate_empties_its_table_and_no_other(tmp_path: Path, bucket: str) -> None:
    job = Shop(tmp_path, APPLIED.replace("BUCKET", bucket), Topic("shop", [[]]))
    for name in ("a", "b"):
        for key in range(4):
            job.topic.change(name, row(key))
    job.batch()
    job.topic.change("a", row(8))
    truncate(job, "a")
    job.topic.change("a", row(9, "new"))
    job.topic.change("b", row(9))
    job.batch()
    job.topic.change("a", row(10))
    job.batch()
    for name in ("a", "b"):
        open_table(f"{tmp_path}/w/{name}").compact()
    assert job.rows("a") == [row(9, "new"), row(10)]
    assert job.rows("b") == [row(0), row(1), row(2), row(3), row(9)]
    truncate(job, "b")
    job.batch()
    assert job.rows("b") == [] and job.entry("b").last_batch == 3


@pytest.mark.parametrize("at", [10, 20, 30])
def test_a_truncate_is_done_once_though_the_process_dies(tmp_path: Path, at: int) -> None:
    job = Shop(tmp_path, APPLIED.replace("BUCKET", "1") + "commit-parallelism: 1\n", Topic("shop", [[]]))
    for name in ("a", "b"):
        job.topic.change(name, row(1))
    job.batch()
    truncate(job, "a")
    for name in ("a", "b"):
        job.topic.change(name, row(2))
    with killed_at(at) as death:
        job.batch()
    assert death.is_dead
    job.crash()
    job.batch()
    assert (job.rows("a"), job.rows("b")) == ([row(2)], [row(1), row(2)])
    kinds = open_table(f"{tmp_path}/w/a").snapshots()["commit_kind"].to_pylist()
    assert kinds.count("OVERWRITE") == 1


def test_a_truncate_out_of_several_partitions_has_no_order_and_is_refused(tmp_path: Path) -> None:
    job = Shop(tmp_path, APPLIED.replace("BUCKET", "1"))
    job.topic.change("a", row(1))
    job.topic.change("a", row(2))
    with pytest.raises(OptionError, match=r"w/a: truncate = apply needs one topic with one partition"):
        job.batch()


def test_a_key_of_a_table_whose_key_lacks_partition_columns_moves_between_partitions(tmp_path: Path) -> None:
    job = Shop(tmp_path, MOVING)
    for name in ("a", "b"):
        for key in range(6):
            job.topic.change(name, row(key, "xyz"[key % 3]))
    job.batch()
    for key in (0, 3):
        job.topic.change("a", row(key, "z"), "u", row(key, "x"))
    job.topic.change("b", row(5, "z"), "d")
    with killed_at(20) as death:
        job.batch()
    assert death.is_dead
    job.crash()
    job.batch()
    job.topic.change("a", row(0, "y"), "u", row(0, "z"))
    job.batch()
    assert job.rows("a") == [row(0, "y"), row(1, "y"), row(2, "z"), row(3, "z"), row(4, "y"), row(5, "z")]
    assert job.rows("b") == [row(key, "xyz"[key % 3]) for key in range(5)]


def test_such_a_table_comes_from_a_job_of_its_own(tmp_path: Path) -> None:
    job = Shop(tmp_path, MOVING)
    table = create_table(
        str(tmp_path / "w/a"), "id BIGINT NOT NULL, v STRING, n BIGINT", ("id",), ("v",), options={"bucket": "-1"}
    )
    for key in range(6):
        job.topic.change("a", row(key, "xyz"[key % 3]))
    job.alone(table.path)
    for key in range(6):
        job.topic.change("a", row(key, "w"), "u", row(key, "xyz"[key % 3]))
    job.batch()
    assert job.rows("a") == [row(key, "w") for key in range(6)]


KEEPING = """
unavailable: keep
create: {schema: "id BIGINT NOT NULL, v STRING, n BIGINT", primary-key: [id], options: {bucket: "2"}}
tables:
  - {source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"}
"""


def lacking(key: int) -> dict[str, Any]:
    return row(key, "__debezium_unavailable_value")


def moved(job: Shop, table: str, old: int, new: int, lsn: int) -> None:
    """A change of the source's key: a delete and an insert at one position of the log."""
    source = {"db": "shop", "table": table, "lsn": lsn}
    job.topic.put({"id": old}, {"before": {"id": old}, "after": None, "op": "d", "source": source})
    job.topic.put({"id": new}, {"before": None, "after": lacking(new), "op": "c", "source": source})


def test_values_that_are_left_out_follow_their_rows_to_new_keys(tmp_path: Path) -> None:
    job = Shop(tmp_path, KEEPING)
    for name in ("a", "b"):
        for key in range(3):
            job.topic.change(name, row(key, f"{name}{key}"))
    job.batch()
    moved(job, "a", 0, 10, 7)
    job.topic.change("a", lacking(21), "u", row(1))  # the table's key is part of the source's
    job.topic.change("b", lacking(2), "u", row(2))
    reads = job.engine.reads
    job.batch()
    assert job.rows("a") == [row(2, "a2"), row(10, "a0"), row(21, "a1")]
    assert job.rows("b") == [row(0, "b0"), row(1, "b1"), row(2, "b2")]
    assert job.engine.reads == reads + 4, "asked twice: a delete says which key is old"
    moved(job, "b", 0, 10, 8)
    moved(job, "a", 10, 11, 9)
    job.topic.change("a", row(5, "a5"))
    job.batch()
    assert job.rows("a") == [row(2, "a2"), row(5, "a5"), row(11, "a0"), row(21, "a1")]
    assert job.rows("b") == [row(1, "b1"), row(2, "b2"), row(10, "b0")]


@pytest.mark.parametrize("at", [10, 30])
def test_values_follow_their_rows_once_though_the_process_dies(tmp_path: Path, at: int) -> None:
    job = Shop(tmp_path, KEEPING)
    for name in ("a", "b"):
        job.topic.change(name, row(1, f"{name}1"))
    job.batch()
    for name in ("a", "b"):
        moved(job, name, 1, 11, 7)
    with killed_at(at) as death:
        job.batch()
    assert death.is_dead
    job.crash()
    job.batch()
    assert [job.rows(name) for name in ("a", "b")] == [[row(11, "a1")], [row(11, "b1")]]
