"""Bad records in a topic, read back: each once, those of the attempt that counts, and which of them were replayed."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.streaming.bad_records.place import BatchName
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA
from bucketline.streaming.job.replay import check_notes
from tests.support.spark.fake_topic import FakeTopic

FIRST = BatchName("query", 3, "digest", "run 1", "t")


def rejects(*offsets: int) -> pa.Table:
    rows = [
        {
            "topic": "orders",
            "partition": 1,
            "offset": at,
            "timestamp": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
            "key": None,
            "value": b"\xff",
            "headers": [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}],
            "source_table": "shop.orders",
            "code": "VALUE",
            "reason": f"field id: {at}",
        }
        for at in offsets
    ]
    return pa.Table.from_pylist(rows, schema=REJECTS_SCHEMA)


@pytest.fixture
def topic(tmp_path: Path) -> FakeTopic:
    return FakeTopic.beside(f"file:{tmp_path}/checkpoint/")


def found(topic: FakeTopic) -> list[tuple[str, int, int | None]]:
    rows = topic.stored.rows("replay").to_pylist()
    return [(row["table_name"], row["offset"], row["replay"]) for row in rows]


def test_a_record_comes_back_as_it_was_and_other_messages_do_not(topic: FakeTopic) -> None:
    assert topic.stored.rows("replay").num_rows == 0
    topic.messages.append((b"k", b"{}", [("h", b"x")]))
    topic.place.put([(FIRST, rejects(7))])
    [row] = topic.stored.rows("replay").to_pylist()
    [given] = rejects(7).to_pylist()
    assert {name: row[name] for name in given} == given
    assert (row["query_id"], row["table_name"], row["batch_id"], row["replay"]) == ("query", "t", 3, None)


def test_only_the_records_of_the_attempt_that_was_written_count(topic: FakeTopic) -> None:
    other = replace(FIRST, table="other")
    topic.place.put([(FIRST, rejects(1, 2)), (other, rejects(9))])
    assert found(topic) == [("t", 1, None), ("t", 2, None), ("other", 9, None)]
    topic.place.put([(replace(FIRST, run_id="run 2"), rejects(2))])
    assert found(topic) == [("other", 9, None), ("t", 2, None)]
    topic.place.put([(replace(FIRST, run_id="run 3"), rejects())])
    assert found(topic) == [("other", 9, None)], "the table that is written already keeps its own"
    topic.place.put([(replace(FIRST, run_id="run 4"), rejects(1))])
    topic.place.put([(replace(FIRST, run_id="run 4", batch_id=4), rejects(4))])
    topic.place.put([(replace(FIRST, run_id="run 5", batch_id=4), rejects())])
    assert found(topic) == [("other", 9, None), ("t", 1, None)]


def test_an_attempt_of_another_input_or_writer_is_not_withdrawn(topic: FakeTopic) -> None:
    topic.place.put([(FIRST, rejects(1))])
    topic.place.put([(replace(FIRST, user="query-aside", run_id="run 2"), rejects(2))])
    topic.place.put([(replace(FIRST, digest="rewound", run_id="run 3"), rejects(3))])
    assert [offset for _, offset, _ in found(topic)] == [1, 2, 3]


def test_a_record_that_a_replay_has_taken_stays_taken_however_often_the_topic_has_it(topic: FakeTopic) -> None:
    topic.place.put([(FIRST, rejects(1, 2))])
    rows = topic.stored.rows("replay")
    topic.stored.claim(rows.slice(0, 1), "replay", 5)
    assert found(topic) == [("t", 1, 5), ("t", 2, None)]
    topic.messages[:] = [topic.messages[1], *topic.messages]
    assert found(topic) == [("t", 1, 5), ("t", 2, None)]
    del topic.messages[:2]
    topic.messages += topic.messages[-1:]
    assert found(topic) == [("t", 2, None)]


def test_a_replay_is_refused_where_it_is_not_known_what_replays_have_taken(topic: FakeTopic) -> None:
    check_notes(topic.place, "/c", has_replayed=False)
    with pytest.raises(OptionError, match=r"/c-replay does not say which records: copy this folder"):
        check_notes(topic.place, "/c/", has_replayed=True)
    topic.place.put([(FIRST, rejects(1))])
    topic.stored.claim(topic.stored.rows("replay"), "replay", 0)
    check_notes(topic.place, "/c", has_replayed=True)
