"""Checks before Spark starts that Kafka can be reached, and that Kafka has the topics of the job.

An opened connection shows that a broker answers. If librdkafka is installed and takes the job's options, librdkafka
looks up the topics; otherwise Spark's JVM looks them up later, when it is up.
"""

import logging
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from bucketline.conf.errors import OptionError
from bucketline.conf.secrets import mask_text
from bucketline.conf.sources.kafka_client import KafkaClient, kafka_client
from bucketline.conf.sources.known_options import SERVERS
from bucketline.conf.sources.source_options import kafka_source
from bucketline.streaming.job.kafka.native_admin import NativeAdmin
from bucketline.streaming.tasks.kafka.kafka_errors import topic_missing, unreachable

_LOG = logging.getLogger("bucketline.job")
_LONGEST_SECONDS = 10.0
_CONNECT_SECONDS = 3.0
_PAUSE_SECONDS = 0.25
_SERVER = re.compile(r"(?:\w+://)?(?:[^@\s]*@)?(?:\[(?P<six>[\da-fA-F:.%\w]+)\]|(?P<host>[^\s:/]+)):(?P<port>\d{1,5})")

Connect = Callable[[tuple[str, int], float], None]
"""A function that takes a server (host and port) and a number of seconds, and connects to the server. It raises OSError
if nothing listens there within this time.
"""


def connect(server: tuple[str, int], seconds: float) -> None:
    """Opens a connection to a server and closes it, to show that the server answers."""
    socket.create_connection(server, timeout=seconds).close()


def reach_kafka(
    options: Mapping[str, str],
    token_provider: str | None = None,
    *,
    connect: Connect = connect,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Checks that a broker of a Kafka source answers. If librdkafka can look up the topics of the source, also checks
    that they exist.

    Waits for a broker for ten seconds. Raises KafkaUnreachableError or KafkaTopicMissingError, and OptionError for a
    server without a port.
    """
    source = kafka_source(options)
    servers = _servers(source.servers or "")
    until, why = now() + _LONGEST_SECONDS, ""
    while True:
        for server in servers:
            try:
                connect(server, max(0.1, min(_CONNECT_SECONDS, until - now())))
            except OSError as e:
                why = e.strerror or str(e)
            else:
                _check_topics(
                    kafka_client(options, token_provider), [*source.topics, *source.assigned], source.servers or ""
                )
                return
        if now() >= until:
            _LOG.info("Kafka at %s: %s", mask_text(source.servers or ""), why)
            raise unreachable(source.servers or "")
        pause(_PAUSE_SECONDS)


def _servers(text: str) -> Sequence[tuple[str, int]]:
    """Returns the hosts and ports of the servers. Raises OptionError for a server without a port."""
    found = []
    for part in (p.strip() for p in text.split(",") if p.strip()):
        match = _SERVER.fullmatch(part)
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            raise OptionError(
                f"source.options.{SERVERS}: each broker must be written as host:port, for example localhost:9092",
                key=SERVERS,
            )
        found.append((match["six"] or match["host"], int(match["port"])))
    return found


def _check_topics(client: KafkaClient, topics: Sequence[str], servers: str) -> None:
    if client.obstacles or not topics:
        return
    admin = NativeAdmin(client.settings)
    try:
        missing = admin.missing(topics)
    finally:
        with suppress(Exception):
            admin.close()
    if missing:
        raise topic_missing(missing[0], servers)
