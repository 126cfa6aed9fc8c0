"""Decides which task gets a bucket, and computes a key that Spark's hash partitioning sends to that task.

`repartition(n, column)` hashes the column, so the hash is inverted: a task's key is the smallest non-negative int whose
hash selects the task. `repartitionById` exists only from Spark 4.1 on.
Source: Spark 4.0 HashPartitioning (pmod of Murmur3Hash, seed 42) and Murmur3_x86_32.hashInt.
"""

from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np

from bucketline.state.bucket.allocation import Assigners
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.types.hashes.murmur import murmur_words

_SEED = np.uint32(42)


def spark_hash(values: np.ndarray) -> np.ndarray:
    """Returns Spark's `hash` of each value of one int column, as int32."""
    with np.errstate(over="ignore"):
        k = values.astype(np.int32).view(np.uint32) * np.uint32(0xCC9E2D51)
        k = (k << np.uint32(15) | k >> np.uint32(17)) * np.uint32(0x1B873593)
        h = _SEED ^ k
        h = (h << np.uint32(13) | h >> np.uint32(19)) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h.view(np.int32)


@cache
def task_keys(task_count: int) -> tuple[int, ...]:
    """Returns for each of `task_count` tasks the int key that `repartition(task_count, key)` sends to this task."""
    assert task_count > 0, task_count
    keys = np.full(task_count, -1, np.int64)
    start, step = 0, max(1024, 8 * task_count)
    while (keys < 0).any():
        candidates = np.arange(start, start + step, dtype=np.int32)
        placed = np.mod(spark_hash(candidates).astype(np.int64), task_count)
        tasks, first = np.unique(placed, return_index=True)
        missing = keys[tasks] < 0
        keys[tasks[missing]] = candidates[first[missing]]
        start += step
    return tuple(int(k) for k in keys)


@dataclass(frozen=True, slots=True)
class Destination:
    """Says to which task of the next stage the rows of each bucket are sent.

    `task_count` is the number of these tasks, and `first` is the number of the task that gets the first bucket. For
    the small tables of one job `first` differs, so that not all tables send their rows to the same task.
    """

    task_count: int
    assigners: Assigners = field(default_factory=Assigners)
    first: int = 0

    def task(self, partition: bytes, bucket: int) -> int:
        """Returns the number of the task that gets the rows of a bucket. `bucket` may also stand for a share of the
        keys (see the module `grouping`); then the task that gets this share is returned.
        """
        share = share_of_group(bucket)
        number = self.assigners.writer(partition, bucket) if share is None else share
        if self.assigners.across_partitions:
            return (self.first + number) % self.task_count
        return _task_of_bucket(partition, self.first + number, self.task_count)


def _task_of_bucket(partition: bytes, bucket: int, task_count: int) -> int:
    """Returns the number of the task that gets a bucket. The buckets of a partition are dealt to the tasks in turn, so
    that no task gets a second bucket before each task has one.
    """
    return (_first_task(partition) + bucket) % task_count


@lru_cache(1024)
def _first_task(partition: bytes) -> int:
    words = np.frombuffer(partition, "<u4", offset=4).reshape(1, -1)
    return abs(int(murmur_words(words)[0]))
