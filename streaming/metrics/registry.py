"""The metrics of this process: counters and gauges by name and labels. The module `outlets` shows them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from threading import Lock

PREFIX = "bucketline_"

Labels = tuple[tuple[str, str], ...]


class MetricKind(Enum):
    """A counter only grows; a gauge is the last measured value."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. It is shown with the prefix `bucketline_`, a counter also with `_total` at the end."""

    name: str
    kind: MetricKind
    doc: str

    @property
    def shown_name(self) -> str:
        return f"{PREFIX}{self.name}{'_total' if self.kind is MetricKind.COUNTER else ''}"


class Registry:
    """Values of metrics; any thread may set them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: dict[Metric, dict[Labels, float]] = {}

    def set(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Sets the value of a gauge."""
        assert metric.kind is MetricKind.GAUGE, metric.name
        with self._lock:
            self._values.setdefault(metric, {})[_labels(labels)] = value

    def add(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """Adds to a counter."""
        assert metric.kind is MetricKind.COUNTER and value >= 0, metric.name
        with self._lock:
            values = self._values.setdefault(metric, {})
            key = _labels(labels)
            values[key] = values.get(key, 0.0) + value

    def replace(self, metric: Metric, values: Mapping[Labels, float], labels: Mapping[str, str]) -> None:
        """Sets new values of a gauge. Old values of the gauge are removed if they have the labels `labels`, perhaps
        besides other labels. Each new value gets `labels` in addition to its own labels.
        """
        assert metric.kind is MetricKind.GAUGE, metric.name
        common = set(labels.items())
        with self._lock:
            kept = {k: v for k, v in self._values.get(metric, {}).items() if not common <= set(k)}
            self._values[metric] = kept | {_labels({**labels, **dict(k)}): v for k, v in values.items()}

    def samples(self) -> Iterator[tuple[Metric, Mapping[Labels, float]]]:
        """Yields each metric with its current values."""
        with self._lock:
            samples = [(metric, dict(values)) for metric, values in self._values.items()]
        yield from sorted(samples, key=lambda pair: pair[0].name)


REGISTRY = Registry()
"""The registry of this process."""


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
