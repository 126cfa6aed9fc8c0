"""Whether a job may go on with a checkpoint: its topics and its cluster against the job's."""

import pytest

from bucketline.streaming.job.kafka_checkpoint import (
    Checkpoint,
    OtherClusterError,
    OtherTopicError,
    check_source,
    reads_topic,
    with_new_partitions,
)


@pytest.mark.parametrize(
    "options",
    [{"subscribe": "new, orders"}, {"SUBSCRIBE": "orders"}, {"subscribePattern": "or.*"}, {"assign": '{"orders":[0]}'}],
)
def test_a_job_that_reads_more_topics_goes_on(options: dict[str, str]) -> None:
    assert reads_topic(options, "orders")
    check_source(Checkpoint("ck", ("orders",), "one"), options, "one")


@pytest.mark.parametrize(
    "options", [{"subscribe": "orders-2"}, {"subscribePattern": "order"}, {"assign": '{"other":[0]}'}]
)
def test_a_job_that_does_not_read_a_topic_of_the_checkpoint_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(OtherTopicError, match="ck is about topic orders, which the job does not read"):
        check_source(Checkpoint("ck", ("orders",), None), options, None)


def test_another_cluster_is_refused_where_both_are_known() -> None:
    options = {"subscribe": "orders"}
    with pytest.raises(OtherClusterError, match="is about Kafka cluster one, and the brokers belong to two"):
        check_source(Checkpoint("ck", ("orders",), "one"), options, "two")
    check_source(Checkpoint("ck", ("orders",), None), options, "two")
    check_source(Checkpoint("ck", ("orders",), "one"), options, None)


def test_a_checkpoint_without_batches_fits_every_job() -> None:
    check_source(Checkpoint("ck", (), None), {"subscribe": "orders"}, "two")


def test_partitions_that_the_table_does_not_know_begin_at_their_first_record() -> None:
    found = with_new_partitions({"a": {"0": 5, "7": 2}}, {"a": ["0", "1"], "b": ["0"]})
    assert found == {"a": {"0": 5, "1": -2, "7": 2}, "b": {"0": -2}}
    assert with_new_partitions({"a": {"0": 5}}, {}) == {"a": {"0": 5}}
