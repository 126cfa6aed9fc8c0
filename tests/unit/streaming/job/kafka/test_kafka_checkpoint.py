"""Whether a job may go on with a checkpoint: its topics and its cluster against the job's."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bucketline.streaming.batch.inputs.topic_ids import CLUSTER, TOPIC_IDS
from bucketline.streaming.job.kafka.kafka_checkpoint import (
    Checkpoint,
    OtherClusterError,
    OtherTopicError,
    check_source,
    reads_topic,
    restart_offsets,
    topics_as_now,
)
from bucketline.streaming.job.kafka.table_offsets import Topics, WriterOffsets
from tests.support.tables.commits import snapshot


@pytest.mark.parametrize(
    "options",
    [{"subscribe": "new, orders"}, {"SUBSCRIBE": "orders"}, {"subscribePattern": "rder"}, {"assign": '{"orders":[0]}'}],
)
def test_a_job_that_reads_more_topics_goes_on(options: dict[str, str]) -> None:
    assert reads_topic(options, "orders")
    check_source(Checkpoint("ck", ("orders",), "one"), options, "one")


@pytest.mark.parametrize(
    "options", [{"subscribe": "orders-2"}, {"subscribePattern": "^order$"}, {"assign": '{"other":[0]}'}]
)
def test_a_job_that_does_not_read_a_topic_of_the_checkpoint_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(OtherTopicError, match="ck belongs to topic orders, which the job does not read"):
        check_source(Checkpoint("ck", ("orders",), None), options, None)


def test_another_cluster_is_refused_where_both_are_known() -> None:
    options = {"subscribe": "orders"}
    with pytest.raises(OtherClusterError, match="belongs to Kafka cluster one, but the brokers belong to two"):
        check_source(Checkpoint("ck", ("orders",), "one"), options, "two")
    check_source(Checkpoint("ck", ("orders",), None), options, "two")
    check_source(Checkpoint("ck", ("orders",), "one"), options, None)


def test_a_checkpoint_without_batches_fits_every_job() -> None:
    check_source(Checkpoint("ck", (), None), {"subscribe": "orders"}, "two")


BOTH = {"subscribe": "a, b"}


def test_partitions_that_the_table_does_not_know_begin_at_their_first_record() -> None:
    found = restart_offsets([{"a": {"0": 5, "7": 2}}], BOTH, {"a": ["0", "1"], "b": ["0"]})
    assert found == {"a": {"0": 5, "1": -2, "7": 2}, "b": {"0": -2}}
    assert restart_offsets([{"a": {"0": 5}}], BOTH, {}) == {"a": {"0": 5}}


def test_each_topic_begins_where_the_newest_writer_of_it_has_ended() -> None:
    written = [{"b": {"0": 9}, "other": {"0": 1}}, {"a": {"0": 5}, "b": {"0": 3}}, {"a": {"0": 1}}]
    assert restart_offsets(written, BOTH, {"a": ["0"], "b": ["0"]}) == {"a": {"0": 5}, "b": {"0": 9}}
    assert restart_offsets(written, {"subscribe": "c"}, {"c": ["0"]}) == {}


def test_writers_are_asked_for_until_each_topic_is_known() -> None:
    def written() -> Iterator[Topics]:
        yield {"a": {"0": 5}, "b": {"0": 3}}
        raise AssertionError("all topics are known")

    assert restart_offsets(written(), BOTH, {"a": ["0"], "b": ["0"]}) == {"a": {"0": 5}, "b": {"0": 3}}


def test_each_partition_begins_where_the_newest_writer_of_it_has_ended() -> None:
    """One job takes over from two that shared the partitions of a topic."""
    written = [{"t": {"2": 50, "3": 60}}, {"t": {"0": 500, "1": 600, "2": 1, "9": 1}}]
    found = restart_offsets(written, {"subscribe": "t"}, {"t": ["0", "1", "2", "3", "4"]})
    assert found == {"t": {"0": 500, "1": 600, "2": 50, "3": 60, "4": -2}}


def test_who_has_read_a_topic_before_it_was_created_again_says_nothing_of_its_partitions() -> None:
    written = [{"t": {"0": 5, "1": 7}}, {"t": {"0": 500, "1": 400, "2": 300}}]
    assert restart_offsets(written, {"subscribe": "t"}, {"t": ["0", "1", "2"]}) == {"t": {"0": 5, "1": 7, "2": -2}}


def test_a_pattern_begins_with_the_topics_that_are_there() -> None:
    found = restart_offsets(
        [{"t-1": {"0": 5}, "t-2": {"0": 3}}], {"subscribePattern": "t-."}, {"t-1": ["0"], "t-3": ["0"]}
    )
    assert found == {"t-1": {"0": 5}, "t-3": {"0": -2}}


def test_assigned_partitions_begin_where_who_read_them_has_ended() -> None:
    options = {"assign": '{"a": [1, 2]}'}
    written = [{"a": {"0": 50}}, {"a": {"1": 7, "0": 3}}]
    assert restart_offsets(written, options, {"a": ["1", "2"]}) == {"a": {"1": 7, "2": -2}}


def _written(topics: Topics, **ids: str) -> WriterOffsets:
    return WriterOffsets(replace(snapshot(1), properties={CLUSTER: "one", TOPIC_IDS: json.dumps(ids)}), topics)


def test_a_topic_that_was_created_again_begins_at_its_first_record_and_the_others_go_on() -> None:
    partitions = {"a": ["0", "1"], "b": ["0", "1"]}
    written = _written({"a": {"0": 5, "1": 6}, "b": {"0": 9, "1": 8, "2": 7}}, a="x", b="y")
    now = {"a": "x", "b": "anew", "c": "z"}
    found = topics_as_now(written, "one", now, partitions)
    assert found == {"a": {"0": 5, "1": 6}, "b": {"0": -2, "1": -2}}
    assert restart_offsets([found], BOTH, partitions) == found
    assert topics_as_now(written, "one", now, {})["b"] == {"0": -2, "1": -2, "2": -2}
    for cluster, ids in (("two", now), (None, now), ("one", {}), ("one", {"a": "x", "b": "y"})):
        assert topics_as_now(written, cluster, ids, partitions) == written.topics


def test_who_has_read_the_topic_since_it_was_created_again_says_where_to_go_on() -> None:
    partitions = {"t": ["0", "1", "2"]}
    writers = [_written({"t": {"0": 5}}, t="new"), _written({"t": {"0": 500, "1": 400}}, t="old")]
    offsets = [topics_as_now(w, "one", {"t": "new"}, partitions) for w in writers]
    assert restart_offsets(offsets, {"subscribe": "t"}, partitions) == {"t": {"0": 5, "1": -2, "2": -2}}


def test_a_checkpoint_knows_the_ids_of_its_topics_in_their_cluster() -> None:
    known = _written({"t": {"0": 5}}, t="old").snapshot
    assert Checkpoint("ck", ("t",), "one", snapshot=known).topic_ids("one") == {"t": "old"}
    for checkpoint in (Checkpoint("ck", ("t",), None), Checkpoint("ck", (), None, snapshot=known)):
        assert checkpoint.topic_ids("one") == {}
    assert Checkpoint("ck", ("t",), "one", snapshot=known).topic_ids("two") == {}
