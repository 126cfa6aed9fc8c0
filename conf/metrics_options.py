"""Options that say where a process publishes its metrics. By default, no metrics are published."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, nearest_key, parse_given_text, parse_int

METRICS_PREFIX = "metrics."

PROMETHEUS_PORT = Option(
    "metrics.prometheus.port",
    parse_int,
    None,
    "port on which Prometheus can read the metrics of this process; default: no port is opened",
)
PROMETHEUS_ADDRESS = Option(
    "metrics.prometheus.address",
    parse_given_text,
    "127.0.0.1",
    "address of this machine on which the port is opened; 0.0.0.0: all addresses",
)
PROMETHEUS_FILE = Option(
    "metrics.prometheus.file",
    parse_given_text,
    None,
    "local file that is rewritten after each batch in Prometheus' text format, for its node exporter; default: none",
)
JSON_FILE = Option(
    "metrics.json.file",
    parse_given_text,
    None,
    "local file to which the report of each batch is appended as one line of JSON; default: none",
)

METRICS_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in (PROMETHEUS_PORT, PROMETHEUS_ADDRESS, PROMETHEUS_FILE, JSON_FILE)
}


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """The checked options of metrics. If a port or file is None, metrics are not published there."""

    prometheus_port: int | None = None
    prometheus_address: str = "127.0.0.1"
    prometheus_file: str | None = None
    json_file: str | None = None

    @property
    def is_shown(self) -> bool:
        return (self.prometheus_port, self.prometheus_file, self.json_file) != (None, None, None)


def metrics_options(options: Mapping[str, str]) -> MetricsOptions:
    """Returns the options of metrics that are set in `options`. Raises OptionError for an unknown `metrics.` key, and
    for an impossible port.
    """
    for key in options:
        if key.startswith(METRICS_PREFIX) and key not in METRICS_OPTIONS:
            raise OptionError(f"unknown option '{key}'{nearest_key(key, METRICS_OPTIONS)}", key=key)
    port = PROMETHEUS_PORT.find(options)
    if port is not None and not 1 <= port <= 65535:
        raise OptionError(
            f"option '{PROMETHEUS_PORT.key}' = {port} is no valid port; a port is a number from 1 to 65535",
            key=PROMETHEUS_PORT.key,
        )
    if PROMETHEUS_ADDRESS.is_set(options) and port is None:
        raise OptionError(
            f"option '{PROMETHEUS_ADDRESS.key}' needs '{PROMETHEUS_PORT.key}'", key=PROMETHEUS_ADDRESS.key
        )
    return MetricsOptions(
        prometheus_port=port,
        prometheus_address=PROMETHEUS_ADDRESS.get(options),
        prometheus_file=PROMETHEUS_FILE.find(options),
        json_file=JSON_FILE.find(options),
    )
