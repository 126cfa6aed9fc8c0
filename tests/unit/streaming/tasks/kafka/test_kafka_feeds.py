"""Where records came from, as numbers: compared with one look at each record."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import SchemaMismatchError
from bucketline.streaming.tasks.kafka.kafka_feeds import KafkaFeeds

PLACES = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 200))


@given(st.sets(PLACES, min_size=1, max_size=150), st.data())
def test_each_record_has_the_number_of_its_partition(places: set[tuple[str, int]], data: st.DataObject) -> None:
    feeds = KafkaFeeds(tuple(sorted(places)))
    few = st.one_of(st.just([data.draw(st.sampled_from(feeds.partitions))]), st.just(list(feeds.partitions)))
    found = data.draw(st.lists(st.sampled_from(data.draw(few)), max_size=20))
    records = pa.table(
        {
            "topic": pa.array([t for t, _ in found], pa.string()),
            "partition": pa.array([p for _, p in found], pa.int32()),
        }
    )
    assert [feeds.partitions[n] for n in feeds.numbers(records)] == found


@pytest.mark.parametrize(
    ("topic", "partition"), [("a", 7), ("a", -1), ("a", 1), ("d", 0), (None, 0), ("a", None), ("a", "0")]
)
@pytest.mark.parametrize("count", [1, 3])
def test_a_record_of_a_partition_that_the_batch_does_not_read_is_refused(
    topic: str | None, partition: object, count: int
) -> None:
    feeds = KafkaFeeds((("a", 0), ("b", 1)), "_kafka_topic", "_kafka_partition", ("_kafka_topic",))
    good = [("a", 0 if not isinstance(partition, str) else "0")] * (count - 1)
    rows = [*good, (topic, partition)]
    columns = {"_kafka_topic": [t for t, _ in rows], "_kafka_partition": [p for _, p in rows]}
    with pytest.raises(SchemaMismatchError, match=f"came from topic {topic!r} partition {partition!r}"):
        feeds.numbers(pa.table(columns))


def test_columns_that_are_there_for_this_alone_are_taken_off() -> None:
    feeds = KafkaFeeds((("a", 0),), "_kafka_topic", "_kafka_partition", ("_kafka_topic",))
    assert feeds.rows(pa.table({"_kafka_topic": ["a"], "_kafka_partition": [0]})).column_names == ["_kafka_partition"]
