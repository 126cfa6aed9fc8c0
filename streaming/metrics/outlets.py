"""The outlets of metrics: a port that Prometheus reads, a text file for Prometheus' node exporter, and a file of JSON
lines.

The outlets that the options set are opened before the first batch, so that a port in use is an error at the start.
Later failures are warnings, because the rows of a batch matter more than its metrics.
"""

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.metrics_options import JSON_FILE, PROMETHEUS_FILE, PROMETHEUS_PORT, MetricsOptions
from bucketline.streaming.metrics.registry import REGISTRY, MetricKind, Registry

try:
    import prometheus_client
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ImportError:
    prometheus_client = None  # type: ignore[assignment, unused-ignore] # depends on what is installed

_LOG = logging.getLogger(__name__)

_ports: dict[tuple[str, int], Any] = {}
_lock = Lock()


def open_outlets(settings: MetricsOptions, registry: Registry = REGISTRY) -> None:
    """Opens the port (once in a process), and checks that the files can be written. Raises OptionError for an outlet
    that cannot be opened.
    """
    if settings.prometheus_port is not None:
        _serve(settings.prometheus_address, settings.prometheus_port, registry)
    if settings.prometheus_file is not None:
        _require_prometheus(PROMETHEUS_FILE.key)
        _try(PROMETHEUS_FILE.key, settings.prometheus_file)
    if settings.json_file is not None:
        _try(JSON_FILE.key, settings.json_file)


def show_outlets(settings: MetricsOptions, registry: Registry = REGISTRY) -> None:
    """Replaces the text file by a file with the current metrics."""
    try:
        if settings.prometheus_file is not None:
            _write_whole(settings.prometheus_file, exposition(registry))
    except OSError as e:
        _LOG.warning("metrics could not be written; the batch is not affected: %s", e)


def write_outlets(settings: MetricsOptions, lines: Sequence[str], registry: Registry = REGISTRY) -> None:
    """Replaces the text file by a file with the current metrics, and appends lines to the JSON file."""
    show_outlets(settings, registry)
    try:
        if settings.json_file is not None:
            with open(settings.json_file, "a", encoding="utf-8") as out:
                out.writelines(f"{line}\n" for line in lines)
    except OSError as e:
        _LOG.warning("metrics could not be written; the batch is not affected: %s", e)


def exposition(registry: Registry = REGISTRY) -> bytes:
    """Returns the metrics in Prometheus' text format."""
    return bytes(prometheus_client.generate_latest(_collected(registry)))


def close_ports() -> None:
    """Closes the ports that `open_outlets` has opened in this process."""
    with _lock:
        for server, thread in _ports.values():
            server.shutdown()
            server.server_close()
            thread.join()
        _ports.clear()


class _Collector:
    """A view of the registry for Prometheus' client."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Any]:
        for metric, values in self._registry.samples():
            names = sorted({name for labels in values for name, _ in labels})
            family = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
            metric_family = family(metric.shown_name, metric.doc, labels=names)
            for labels, value in sorted(values.items()):
                known = dict(labels)
                metric_family.add_metric([known.get(name, "") for name in names], value)
            yield metric_family


def _collected(registry: Registry) -> Any:
    client_registry = prometheus_client.CollectorRegistry()
    client_registry.register(_Collector(registry))
    return client_registry


def _serve(address: str, port: int, registry: Registry) -> None:
    _require_prometheus(PROMETHEUS_PORT.key)
    with _lock:
        if (address, port) in _ports:
            return
        try:
            _ports[address, port] = prometheus_client.start_http_server(port, address, _collected(registry))
        except OSError as e:
            raise OptionError(
                f"option '{PROMETHEUS_PORT.key}' = {port}: {address}:{port} cannot be opened: {e.strerror or e}",
                key=PROMETHEUS_PORT.key,
            ) from e


def _require_prometheus(key: str) -> None:
    if prometheus_client is None:
        raise OptionError(
            f"option '{key}' needs prometheus-client: pip install prometheus-client (the extra 'metrics')", key=key
        )


def _try(key: str, path: str) -> None:
    try:
        with open(path, "ab"):
            pass
    except OSError as e:
        raise OptionError(f"option '{key}': {path} cannot be written: {e.strerror or e}", key=key) from e


def _write_whole(path: str, data: bytes) -> None:
    """Replaces the file in one step, so that a reader never sees an incomplete file."""
    handle, name = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".metrics-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
