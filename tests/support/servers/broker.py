"""A real Kafka broker: one KRaft node on this machine, for as long as a test session lasts.

Run as a program it serves until it is told to end: `python -m tests.support.servers.broker [PORT]`, 9092 by default.
"""

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.peers.jars import class_path

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 30.0
PROBE_TIMEOUT_S = 1.0
# librdkafka logs each refused connection while the broker starts; its errors reach us as results anyway.
QUIET: dict[str, str | int | float | bool] = {"log_level": 0}


class BrokerError(RuntimeError):
    """The broker did not start, or did not do what was asked; the message ends with its log."""


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record. `partition` and `timestamp_ms` of None leave the choice to Kafka's client."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Secured:
    """How clients may log in: by SCRAM as `user` with `password`, or by tokens (OAUTHBEARER) that are signed by a key
    in the file `keys_of_tokens`, both over `login_port`; by a certificate (mTLS) over `certificate_port`.

    `trusted` has the certificates that either side trusts, `own` key and certificate of the broker (PEM).
    """

    trusted: str
    own: str
    keys_of_tokens: str
    user: str
    password: str
    login_port: int
    certificate_port: int

    @property
    def login_servers(self) -> str:
        return f"127.0.0.1:{self.login_port}"

    @property
    def certificate_servers(self) -> str:
        return f"127.0.0.1:{self.certificate_port}"

    @property
    def scram(self) -> str:
        return f"SCRAM-SHA-512=[name={self.user},password={self.password}]"


class KafkaBroker:
    """Starts when made, on `port` or a free one, and stops with `stop`. Writing to a topic does not create it.

    With `users` and their passwords it also serves `sasl_servers`, where clients log in (SASL_PLAINTEXT, PLAIN) and may
    do nothing: no user has been given any right. With `secured` it also serves `secured.login_servers` and
    `secured.certificate_servers`, which encrypt, and whose clients may do everything.
    """

    def __init__(
        self, port: int | None = None, users: Mapping[str, str] | None = None, secured: "Secured | None" = None
    ) -> None:
        java = shutil.which("java")
        if java is None:
            raise BrokerError("java is not on PATH")
        self._scratch = tempfile.TemporaryDirectory(prefix="bucketline-kafka-")
        self._folder = Path(self._scratch.name)
        self._java = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path("kafka")]
        free_port, controller_port, sasl_port = free_ports(3)
        port = free_port if port is None else port
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._settings = self._folder / "server.properties"
        self._secured = secured
        if secured is not None:
            self._java[1:1] = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{secured.keys_of_tokens}"]
        self.sasl_servers = f"127.0.0.1:{sasl_port}" if users else None
        self._settings.write_text(_settings(self._folder / "log", port, controller_port, sasl_port, users or {}))
        if secured is not None:
            _serve_secured(self._settings, secured)
        self._process: subprocess.Popen[bytes] | None = None
        self._client: AdminClient | None = None
        try:
            self._format()
            self._start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None, "it was started"
        return self._process.pid

    def stop(self) -> None:
        """Ends the broker and deletes its data; a second call does nothing."""
        self._client = None
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._scratch.cleanup()

    def create_topic(self, name: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Makes a topic and waits until its partitions can be written."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
        self._admin().create_topics([topic], operation_timeout=REQUEST_TIMEOUT_S)[name].result(REQUEST_TIMEOUT_S)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and what it holds."""
        self._admin().delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S)[name].result(REQUEST_TIMEOUT_S)

    def grow_topic(self, name: str, *, partitions: int) -> None:
        """Gives a topic more partitions, and waits until there are so many."""
        more = [NewPartitions(name, partitions)]
        self._admin().create_partitions(more, operation_timeout=REQUEST_TIMEOUT_S)[name].result(REQUEST_TIMEOUT_S)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Drops the records of each partition before an offset, as retention does."""
        upto = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for done in self._admin().delete_records(upto, operation_timeout=REQUEST_TIMEOUT_S).values():
            done.result(REQUEST_TIMEOUT_S)

    def wait_until_compacted(self, topic: str, *, records: int) -> None:
        """Returns once partition 0 has so many records left.

        Errors: BrokerError when the broker has not compacted in time.
        """
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._count(topic) == records:
                return
        raise BrokerError(f"{topic} has not been compacted\n{self._log()}")

    def _count(self, topic: str) -> int:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "count", "enable.partition.eof": True} | QUIET
        )
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            found = 0
            while True:
                messages = consumer.consume(1000, timeout=PROBE_TIMEOUT_S)
                found += sum(m.error() is None for m in messages)
                if any(m.error() is not None for m in messages):
                    return found
        finally:
            consumer.close()

    def produce(self, topic: str, records: Iterable[KafkaRecord]) -> int:
        """Writes records in order and returns how many, once the broker has acknowledged every one."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "acks": "all", "enable.idempotence": True} | QUIET
        )
        failures: list[str] = []
        delivered = 0

        def note(error: object, message: object) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1
            else:
                failures.append(str(error))

        sent = 0
        for record in records:
            optional: dict[str, Any] = {}
            if record.partition is not None:
                optional["partition"] = record.partition
            if record.timestamp_ms is not None:
                optional["timestamp"] = record.timestamp_ms
            if record.headers:
                optional["headers"] = list(record.headers)
            while True:
                try:
                    producer.produce(topic, value=record.value, key=record.key, on_delivery=note, **optional)
                    break
                except BufferError:
                    producer.poll(PROBE_TIMEOUT_S)
            producer.poll(0)
            sent += 1
        producer.flush(REQUEST_TIMEOUT_S)
        if failures or delivered != sent:
            raise BrokerError(f"{delivered} of {sent} records were acknowledged; {failures[:3]}\n{self._log()}")
        return sent

    def consume(self, topic: str, count: int) -> list[KafkaRecord]:
        """The first `count` records of all partitions together; those of one partition are in its order.

        Errors: BrokerError when fewer than `count` arrive in time.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"read-{uuid.uuid4()}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
            | QUIET
        )
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in self._partitions(topic)])
            found: list[KafkaRecord] = []
            deadline = time.monotonic() + REQUEST_TIMEOUT_S
            while len(found) < count:
                if time.monotonic() > deadline:
                    raise BrokerError(f"{len(found)} of {count} records arrived in {topic}\n{self._log()}")
                for message in consumer.consume(count - len(found), timeout=PROBE_TIMEOUT_S):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    found.append(
                        KafkaRecord(
                            value=message.value(),
                            key=message.key(),
                            partition=message.partition(),
                            timestamp_ms=message.timestamp()[1],
                            headers=tuple((name, _bytes(value)) for name, value in _pairs(message.headers())),
                        )
                    )
            return found
        finally:
            consumer.close()

    def _admin(self) -> AdminClient:
        # Kept: a client that is collected while a request is on its way fails that request.
        if self._client is None:
            self._client = AdminClient({"bootstrap.servers": self.bootstrap_servers, **QUIET})
        return self._client

    def _partitions(self, topic: str) -> list[int]:
        found = self._admin().list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def _format(self) -> None:
        scram = [] if self._secured is None else ["--add-scram", self._secured.scram]
        # Kafka's ids are 16 bytes in URL-safe base64; it refuses one that looks like a command line flag.
        cluster_id = "b" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        done = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._settings), *scram],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerError(f"the storage could not be formatted:\n{(done.stdout + done.stderr)[-4000:]}")

    def _start(self) -> None:
        with (self._folder / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(os.environ),
            )
        admin = self._admin()
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise BrokerError(f"the broker ended with status {self._process.returncode}:\n{self._log()}")
            try:
                if admin.list_topics(timeout=PROBE_TIMEOUT_S).brokers:
                    return
            except KafkaException:
                continue
        raise BrokerError(f"the broker was not ready after {START_TIMEOUT_S:.0f} s:\n{self._log()}")

    def _log(self) -> str:
        return (self._folder / "broker.log").read_text(errors="replace")[-4000:]


def _pairs(headers: Any) -> Iterable[tuple[str, str | bytes | None]]:
    return headers.items() if isinstance(headers, dict) else headers or ()


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def free_ports(count: int) -> Sequence[int]:
    """Ports free just now, all different: they are held together while they are found."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for listener in held:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in held]
    finally:
        for listener in held:
            listener.close()


def _settings(data: Path, port: int, controller_port: int, sasl_port: int, users: Mapping[str, str]) -> str:
    served = f"PLAINTEXT://127.0.0.1:{port}" + (f",SASL://127.0.0.1:{sasl_port}" if users else "")
    return "\n".join(
        (
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners={served},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners={served}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
            *(_login(users) if users else ()),
            "controller.listener.names=CONTROLLER",
            f"log.dirs={data}",
            "auto.create.topics.enable=false",
            "log.cleaner.backoff.ms=200",
            # Tests write records with times of long ago; half a minute after its start a broker deletes such.
            "log.retention.ms=-1",
            # One node: internal topics cannot have Kafka's usual three copies, and need not fifty partitions.
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "share.coordinator.state.topic.num.partitions=1",
            "group.initial.rebalance.delay.ms=0",
            "",
        )
    )


def _serve_secured(settings: Path, secured: Secured) -> None:
    """Adds the listeners that encrypt to a broker's settings."""
    kafka, login = "org.apache.kafka.common.security", "listener.name.login"
    served = f",LOGIN://{secured.login_servers},MTLS://{secured.certificate_servers}"
    lines = []
    for line in settings.read_text().splitlines():
        if line.startswith(("listeners=", "advertised.listeners=")):
            line += served
        if line.startswith("listener.security.protocol.map="):
            line += ",LOGIN:SASL_SSL,MTLS:SSL"
        lines.append(line)
    for name in (login, "listener.name.mtls"):
        lines += [f"{name}.ssl.keystore.type=PEM", f"{name}.ssl.keystore.location={secured.own}"]
        lines += [f"{name}.ssl.truststore.type=PEM", f"{name}.ssl.truststore.location={secured.trusted}"]
    lines += [
        "listener.name.mtls.ssl.client.auth=required",
        f"{login}.sasl.enabled.mechanisms=SCRAM-SHA-512,OAUTHBEARER",
        f"{login}.scram-sha-512.sasl.jaas.config={kafka}.scram.ScramLoginModule required;",
        f"{login}.oauthbearer.sasl.jaas.config={kafka}.oauthbearer.OAuthBearerLoginModule required;",
        f"{login}.oauthbearer.sasl.server.callback.handler.class={kafka}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{login}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://{secured.keys_of_tokens}",
        "",
    ]
    settings.write_text("\n".join(lines))


def _login(users: Mapping[str, str]) -> Iterable[str]:
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return (
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config="
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    )


if __name__ == "__main__":
    print("starting Kafka; the first start downloads it", flush=True)
    with KafkaBroker(int(sys.argv[1]) if len(sys.argv) > 1 else 9092) as broker:
        print(f"Kafka serves {broker.bootstrap_servers}; Ctrl-C ends it", flush=True)
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
        with suppress(KeyboardInterrupt):
            signal.pause()
