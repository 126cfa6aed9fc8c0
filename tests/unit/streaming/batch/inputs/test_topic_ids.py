"""Ids of topics: how they are written, when two are compared, and what a topic that was created again stops."""

import base64
import json
import logging
import random
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.commit import batch_properties
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.inputs.topic_ids import (
    CLUSTER,
    TOPIC_IDS,
    created_again,
    id_of_halves,
    id_of_text,
    ids_in,
    ids_text,
)
from bucketline.streaming.batch.inputs.topic_watch import TopicWatch
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.recover import TopicCreatedAgainError
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.job.choose_reader import JobSink
from tests.support.spark.tasks import Cluster
from tests.support.tables.commits import snapshot

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
OLD, NEW, OTHER = "1" * 32, "2" * 32, "3" * 32


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_the_same_from_two_numbers_and_from_text(raw: bytes) -> None:
    """librdkafka gives two signed numbers, Java's client a text."""
    most, least = (int.from_bytes(half, signed=True) for half in (raw[:8], raw[8:]))
    found = id_of_halves(most, least)
    assert found == id_of_text(base64.urlsafe_b64encode(raw).decode().rstrip("="))
    assert found == (raw.hex() if any(raw) else None)


def test_a_text_that_is_no_uuid_is_no_id() -> None:
    for text in ("", "orders", "AAAAAAAAAAAAAAAAAAAAAA", "ü" * 22, base64.urlsafe_b64encode(uuid.uuid4().bytes * 2)):
        assert id_of_text(str(text)) is None


def _of(ids: Mapping[str, str], cluster: str | None = "one") -> dict[str, str]:
    properties = batch_properties(BatchIdentity("q", 0, None, "[]", "d", cluster=cluster, topic_ids=ids))
    return ids_in(replace(snapshot(1), properties=properties), "one")


def test_ids_are_compared_within_one_cluster_that_is_known() -> None:
    assert _of({"b": OLD, "a": NEW}) == {"a": NEW, "b": OLD}
    assert _of({"a": OLD}, "two") == _of({"a": OLD}, None) == _of({}) == {}
    known = replace(snapshot(1), properties={TOPIC_IDS: json.dumps({"a": OLD}), CLUSTER: "one"})
    assert ids_in(known, None) == {}
    for text in ("", "[1]", '{"a": 1}', "null"):
        assert ids_in(replace(known, properties={TOPIC_IDS: text, CLUSTER: "one"}), "one") == {}
    assert ids_text({}) is None


def test_a_topic_was_created_again_where_both_ids_are_known_and_differ() -> None:
    assert created_again({"a": OLD, "b": OLD, "gone": OLD}, {"a": NEW, "b": OLD, "new": NEW}) == ["a"]
    assert created_again({}, {"a": NEW}) == created_again({"a": OLD}, {}) == []


class Topics:
    """What Kafka says of the topic `t`, question by question; the last answer stays."""

    def __init__(self, *answers: str | None) -> None:
        self.left, self.asked = list(answers), 0

    def __call__(self, topics: Collection[str]) -> Mapping[str, str]:
        assert list(topics) == ["t"]
        self.asked += 1
        found = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return {} if found is None else {"t": found}

    def close(self) -> None:
        pass


class Stream:
    """A query that writes batches of 10 records of the topic `t`; `restart` is a new run of it."""

    def __init__(self, root: Path) -> None:
        create_table(str(root / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
        self.path, self.query = str(root / "shop.db" / "t"), f"query-{root.name}"
        self.cluster: str | None = "one"

    @property
    def table(self) -> Table:
        return open_table(self.path)

    def write(self, number: int, watch: TopicWatch | None) -> None:
        start, end = (json.dumps([{"t": {"0": 10 * n}}]) for n in (number, number + 1))
        batch = BatchIdentity(self.query, number, start, end, f"digest {number}", cluster=self.cluster)
        if watch is not None:
            batch = replace(batch, topic_ids=watch.ids_of(batch))
        data = pa.table({"id": range(10 * number, 10 * number + 10), "v": [number] * 10}).cast(COLUMNS)
        frame = Cluster(random.Random(number)).frame(data, 2)
        JobSink(self.path, decode=DecodedRows, topics=watch).write(frame, batch)

    def restart(self) -> None:
        forget_table(self.path, self.query)

    def newest_ids(self) -> str | None:
        newest = handle_of(self.table).snapshot_store.latest()
        assert newest is not None
        return newest.properties.get(TOPIC_IDS)


OF_OLD, OF_NEW = f'{{"t":"{OLD}"}}', f'{{"t":"{NEW}"}}'


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


@pytest.mark.parametrize("is_new_run", [False, True])
def test_a_topic_that_was_created_again_since_the_last_batch_is_refused(stream: Stream, is_new_run: bool) -> None:
    watch = TopicWatch(Topics(OLD, OLD, NEW))
    stream.write(0, watch)
    if is_new_run:
        stream.restart()
        watch = TopicWatch(Topics(NEW))
    with pytest.raises(TopicCreatedAgainError, match=rf"topic 't' was .* \(its id was {OLD}, and is {NEW}\)"):
        stream.write(1, watch)
    assert stream.table.to_arrow().num_rows == 10 and stream.newest_ids() == OF_OLD


def test_a_topic_that_is_created_again_while_it_is_read_is_refused_and_nothing_is_left_of_the_batch(
    stream: Stream,
) -> None:
    stream.write(0, TopicWatch(Topics(OLD)))
    files = sorted(Path(stream.path).rglob("*"))
    topics = Topics(OLD, NEW)
    with pytest.raises(TopicCreatedAgainError):
        stream.write(1, TopicWatch(topics))
    assert topics.asked == 2 and sorted(Path(stream.path).rglob("*")) == files
    with pytest.raises(TopicCreatedAgainError):
        stream.write(1, TopicWatch(Topics(NEW)))


def test_an_id_that_is_not_known_for_some_batches_stays_as_it_was(stream: Stream) -> None:
    stream.write(0, TopicWatch(Topics(OLD)))
    for number in (1, 2):
        stream.restart()
        stream.write(number, TopicWatch(Topics(None)))
        assert stream.newest_ids() == OF_OLD
    with pytest.raises(TopicCreatedAgainError):
        stream.write(3, TopicWatch(Topics(NEW)))


@pytest.mark.parametrize("first", [None, TopicWatch(Topics(None))], ids=["earlier release", "not known"])
def test_a_table_without_ids_learns_them_with_the_next_batch(stream: Stream, first: TopicWatch | None) -> None:
    stream.write(0, first)
    assert stream.newest_ids() is None
    stream.restart()
    stream.write(0, TopicWatch(Topics(OLD)))  # Spark repeats a batch that is in the table.
    assert stream.newest_ids() is None and stream.table.snapshots().num_rows == 1
    stream.write(1, TopicWatch(Topics(None, OLD)))
    assert stream.newest_ids() == OF_OLD


def test_another_cluster_may_have_another_topic_of_that_name(stream: Stream) -> None:
    stream.write(0, TopicWatch(Topics(OLD)))
    stream.cluster = "two"
    stream.restart()
    stream.write(1, TopicWatch(Topics(NEW)))
    assert stream.newest_ids() == OF_NEW


def test_what_a_run_has_accepted_counts_before_the_table(stream: Stream) -> None:
    """As with --allow-reprocess, for a topic that holds the same records at the same offsets."""
    stream.write(0, TopicWatch(Topics(OLD)))
    stream.restart()
    watch = TopicWatch(Topics(NEW, NEW, OTHER))
    watch.accept({}, {"t": NEW})
    stream.write(1, watch)
    assert stream.newest_ids() == OF_NEW
    with pytest.raises(TopicCreatedAgainError):
        stream.write(2, watch)


def test_a_job_that_may_lose_records_goes_on_with_a_warning(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bucketline.job")
    stream.write(0, TopicWatch(Topics(OLD), fails=False))
    watch = TopicWatch(Topics(NEW), fails=False)
    for number in (1, 2):
        stream.write(number, watch)
    assert stream.newest_ids() == OF_NEW
    [said] = [m for m in caplog.messages if "created again" in m]
    assert "failOnDataLoss is false" in said


def test_a_batch_without_topics_asks_nothing() -> None:
    topics = Topics(OLD)
    for offsets in (None, "[]", '[{"logOffset": 3}]', "[5]"):
        assert TopicWatch(topics).ids_of(BatchIdentity("q", 0, None, offsets, "d")) == {}
    assert topics.asked == 0
