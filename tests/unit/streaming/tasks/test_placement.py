"""Shard placement without Spark; tests/spark proves it against Spark's own partitioner."""

import numpy as np
import pytest

from bucketline.streaming.tasks.placement import shard_keys, spark_hash


def test_spark_hash_has_the_value_spark_prints() -> None:
    assert spark_hash(np.array([0, 1, -1])).tolist() == [933211791, -559580957, -1604776387]


@pytest.mark.parametrize("shard_count", [1, 2, 3, 7, 16, 200, 1000])
def test_every_shard_has_a_key_of_its_own(shard_count: int) -> None:
    keys = np.array(shard_keys(shard_count))
    placed = np.mod(spark_hash(keys).astype(np.int64), shard_count)
    assert placed.tolist() == list(range(shard_count))
