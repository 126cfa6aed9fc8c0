"""Placement without Spark; tests/spark proves it against Spark's own partitioner."""

import numpy as np
import pytest

from bucketline.streaming.tasks.placement import spark_hash, task_keys


def test_spark_hash_has_the_value_spark_prints() -> None:
    assert spark_hash(np.array([0, 1, -1])).tolist() == [933211791, -559580957, -1604776387]


@pytest.mark.parametrize("task_count", [1, 2, 3, 7, 16, 200, 1000])
def test_every_task_has_a_key_of_its_own(task_count: int) -> None:
    keys = np.array(task_keys(task_count))
    placed = np.mod(spark_hash(keys).astype(np.int64), task_count)
    assert placed.tolist() == list(range(task_count))
