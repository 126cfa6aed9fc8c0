"""Offset ranges among tasks: every record once, in order, about as many each."""

from hypothesis import given
from hypothesis import strategies as st

from bucketline.streaming.tasks.kafka.kafka_ranges import FEWEST_RECORDS, MOST_RECORDS, OffsetRange, shared

RANGES = st.lists(
    st.builds(
        lambda topic, partition, start, size: OffsetRange(topic, partition, start, start + size),
        st.sampled_from("ab"),
        st.integers(0, 12),
        st.integers(0, 1 << 40),
        st.integers(0, 3 * FEWEST_RECORDS),
    ),
    unique_by=lambda r: (r.topic, r.partition),
    max_size=12,
)


@given(RANGES, st.integers(1, 8))
def test_every_record_is_read_once_and_tasks_follow_topic_partition_and_offset(
    ranges: list[OffsetRange], parallelism: int
) -> None:
    shares = shared(ranges, parallelism)
    flat = [r for share in shares for r in share]
    joined: list[OffsetRange] = []
    for r in flat:
        last = joined[-1] if joined else None
        if last is not None and (last.topic, last.partition, last.end) == (r.topic, r.partition, r.start):
            joined[-1] = OffsetRange(r.topic, r.partition, last.start, r.end)
        else:
            joined.append(r)
    assert joined == sorted(r for r in ranges if r.size)
    sizes = [sum(r.size for r in share) for share in shares]
    assert 1 <= len(shares) <= parallelism and max(sizes) - min(sizes) <= 1


def test_little_is_one_task_and_much_is_several_for_each_place() -> None:
    assert len(shared([OffsetRange("t", 0, 0, FEWEST_RECORDS)], 8)) == 1
    assert shared([], 8) == ((),)
    assert len(shared([OffsetRange("t", 0, 0, 1000)], 8, record_bytes=20_000)) == 4
    assert len(shared([OffsetRange("t", 0, 0, 6)], 8, record_bytes=100 << 20)) == 6
    assert len(shared([OffsetRange("t", 0, 0, 5 * MOST_RECORDS)], 2)) == 6
