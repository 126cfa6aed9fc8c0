"""Shows how far a job is behind in each partition of Kafka, as a metric: when the job starts, and after each batch."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError

from bucketline.conf.metrics_options import MetricsOptions
from bucketline.conf.sources.source_options import EARLIEST, LATEST, starts_at
from bucketline.streaming.job.kafka.kafka_admin import JvmAdmin
from bucketline.streaming.metrics.outlets import show_outlets
from bucketline.streaming.metrics.registry import REGISTRY, Labels, Metric, MetricKind, Registry

_LOG = logging.getLogger("bucketline.job")
_LOOK_SECONDS = 1.0
_AT_LATEST, _AT_EARLIEST = -1, -2

PARTITION_BEHIND = Metric(
    "partition_behind_records",
    MetricKind.GAUGE,
    "records of a Kafka partition that are not read yet, by labels name, topic, partition",
)

TopicOffsets = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition."""


class PartitionLag:
    """Updates the metric that shows how far a job is behind in each partition. `labels` are the labels of the job. Does
    nothing if the job writes its metrics nowhere.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        settings: MetricsOptions,
        registry: Registry = REGISTRY,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._labels, self._settings, self._registry, self._now = labels, settings, registry, now
        self._looked_at = now() - _LOOK_SECONDS
        self._seen: tuple[int, str] | None = None

    def begin(self, admin: JvmAdmin, options: Mapping[str, str], read: TopicOffsets) -> None:
        """Shows how far the job is behind before its first batch. `read` are the offsets in the job's checkpoint."""
        if not self._settings.is_shown:
            return
        try:
            ends = admin.offsets(of_first=False)
            at = start_of(options, read, ends, lambda: admin.offsets(of_first=True))
        except (Py4JError, TypeError, ValueError) as e:
            _LOG.debug("it is not known how far the job is behind in Kafka: %s", e)
            return
        self._show(at, ends)

    def watch(self, query: Any, batch: object) -> None:
        """Shows how far the job is behind, according to Spark's last report of progress. The report is read at most
        once a second.
        """
        del batch
        moment = self._now()
        if not self._settings.is_shown or moment - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = moment
        progress = query._jsq.lastProgress()
        if progress is None or (progress.batchId(), progress.timestamp()) == self._seen:
            return
        self._seen = progress.batchId(), progress.timestamp()
        for source in json.loads(progress.json()).get("sources", ()):
            self._show(_offsets(source.get("endOffset")), _offsets(source.get("latestOffset")))

    def _show(self, at: TopicOffsets, ends: TopicOffsets) -> None:
        behind = lag(at, ends)
        if behind:
            self._registry.replace(PARTITION_BEHIND, behind, self._labels)
            show_outlets(self._settings, self._registry)


def lag(at: TopicOffsets, ends: TopicOffsets) -> dict[Labels, float]:
    """Returns for each partition the number of records from its offset in `at` up to its offset in `ends`. The key of
    the result has the labels of the partition.
    """
    return {
        (("partition", partition), ("topic", topic)): float(max(0, end - at[topic][partition]))
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if partition in at.get(topic, {})
    }


def start_of(
    options: Mapping[str, str], read: TopicOffsets, ends: TopicOffsets, first: Callable[[], TopicOffsets]
) -> TopicOffsets:
    """Returns the offsets at which a job begins to read. With a checkpoint, these are the offsets of the checkpoint,
    and the first record of each partition that the checkpoint lacks. Without a checkpoint, they are the offsets in the
    job's options. The result is empty if the options give a time instead of offsets.

    `read` are the offsets in the checkpoint, empty without a checkpoint. `ends` are the ends of the partitions, and
    `first` returns the offsets of their first records.
    """
    if read:
        new = {t: [p for p in partitions if p not in read.get(t, {})] for t, partitions in ends.items()}
        firsts = first() if any(new.values()) else {}
        return {t: {**firsts.get(t, {}), **read.get(t, {})} for t in ends}
    start = starts_at(options)
    if start == LATEST:
        return ends
    if start == EARLIEST:
        return first()
    named = _offsets(start)
    firsts = first() if any(o == _AT_EARLIEST for of in named.values() for o in of.values()) else {}
    marks = {_AT_LATEST: ends, _AT_EARLIEST: firsts}
    return {
        topic: {p: marks[o].get(topic, {}).get(p, 0) if o in marks else o for p, o in of.items()}
        for topic, of in named.items()
    }


def _offsets(value: object) -> TopicOffsets:
    """Returns the offsets in Spark's JSON of a source; empty if the source is not Kafka."""
    if not isinstance(value, dict):
        return {}
    return {
        str(topic): {str(p): o for p, o in of.items() if isinstance(o, int)}
        for topic, of in value.items()
        if isinstance(of, dict)
    }
