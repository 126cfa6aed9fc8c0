"""How far a job is behind, partition by partition, from its start on."""

import json
from typing import Any

import pytest

from bucketline.conf.metrics_options import MetricsOptions
from bucketline.streaming.job.kafka.partition_lag import PARTITION_BEHIND, PartitionLag, lag, start_of
from bucketline.streaming.metrics.registry import Registry

ENDS = {"orders": {"0": 10, "1": 7}}
FIRST = {"orders": {"0": 2, "1": 0}}
LABELS = {"name": "bucketline t", "table": "/t"}
SHOWN = MetricsOptions(prometheus_port=1)


class Admin:
    def offsets(self, *, of_first: bool) -> dict[str, dict[str, int]]:
        return FIRST if of_first else ENDS


class Progress:
    def __init__(self, batch: int, sources: list[dict[str, object]]) -> None:
        self._batch, self._sources = batch, sources

    def batchId(self) -> int:
        return self._batch

    def timestamp(self) -> str:
        return "now"

    def json(self) -> str:
        return json.dumps({"sources": self._sources})


class Query:
    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.asked = 0

    @property
    def _jsq(self) -> "Query":
        return self

    def lastProgress(self) -> Progress | None:
        self.asked += 1
        return self.progress


def _shown(registry: Registry) -> dict[tuple[str, str], float]:
    values: dict[Any, float] = dict(registry.samples()).get(PARTITION_BEHIND, {})  # type: ignore[assignment]
    return {(dict(k)["topic"], dict(k)["partition"]): v for k, v in values.items()}


@pytest.mark.parametrize(
    ("options", "read", "behind"),
    [
        ({"startingOffsets": "earliest"}, {}, {"0": 8, "1": 7}),
        ({"startingOffsets": "latest"}, {}, {"0": 0, "1": 0}),
        ({}, {}, {"0": 0, "1": 0}),
        ({"startingOffsets": '{"orders": {"0": -2, "1": 3}}'}, {}, {"0": 8, "1": 4}),
        ({"startingOffsets": '{"orders": {"0": -1, "1": 99}}'}, {}, {"0": 0, "1": 0}),
        ({"startingTimestamp": "5", "startingOffsets": "earliest"}, {}, {}),
        ({"startingOffsets": "earliest"}, {"orders": {"0": 9}}, {"0": 1, "1": 7}),
        ({"startingOffsets": "earliest"}, {"other": {"0": 9}}, {"0": 8, "1": 7}),
    ],
)
def test_before_the_first_batch_a_job_is_behind_from_where_it_begins(
    options: dict[str, str], read: dict[str, dict[str, int]], behind: dict[str, int]
) -> None:
    registry = Registry()
    PartitionLag(LABELS, SHOWN, registry).begin(Admin(), options, read)  # type: ignore[arg-type]
    assert _shown(registry) == {("orders", p): n for p, n in behind.items()}
    found = lag(start_of(options, read, ENDS, lambda: FIRST), ENDS)
    assert len(found) == len(behind)


def test_after_each_batch_it_is_what_spark_says_and_spark_is_asked_once_a_second() -> None:
    registry, query, moments = Registry(), Query(), iter([0.0, 0.0, 0.5, 1.0, 2.0, 3.0])
    shown = PartitionLag(LABELS, SHOWN, registry, lambda: next(moments))
    shown.watch(query, None)  # at 0.0
    shown.watch(query, None)  # at 0.5
    assert query.asked == 1 and _shown(registry) == {}
    query.progress = Progress(1, [{"endOffset": {"orders": {"0": 4}}, "latestOffset": {"orders": {"0": 9}}}])
    shown.watch(query, None)
    assert _shown(registry) == {("orders", "0"): 5}
    query.progress = Progress(2, [{"endOffset": "a log of files", "latestOffset": None}])
    shown.watch(query, None)
    shown.watch(query, None)
    assert query.asked == 4 and _shown(registry) == {("orders", "0"): 5}


def test_nothing_is_asked_where_no_metrics_are_shown() -> None:
    query, registry = Query(), Registry()
    hidden = PartitionLag(LABELS, MetricsOptions(), registry)
    hidden.begin(None, {}, {})  # type: ignore[arg-type]
    hidden.watch(query, None)
    assert query.asked == 0 and not list(registry.samples())
