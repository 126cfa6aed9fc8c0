"""Logins of `docs/secrets.md` against a broker that asks for them; and no secret in anything that a job leaves."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import ReaderChoice
from bucketline.conf.resolve import load_job
from bucketline.conf.sources.reader_choice import obstacles
from bucketline.conf.sources.source_options import source_options
from bucketline.state.store.table.table import open_table
from bucketline.streaming.job.run import run_job
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaRefusedError, KafkaUnreachableError
from tests.support.pages.readme import ROOT
from tests.support.peers.jars import spark_kafka_jars
from tests.support.processes.job_process import JobFolder, started
from tests.support.servers.broker import KafkaBroker, KafkaRecord, Secured, free_ports
from tests.support.servers.certificates import Authority
from tests.support.servers.tokens import TokenIssuer

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PASSWORD, STORE_PASSWORD = "horse-battery-staple", "correct-horse"
CREATE = "create: {schema: 'id BIGINT NOT NULL', primary-key: [id], options: {bucket: '1'}}\n"


@dataclass(frozen=True, slots=True)
class World:
    """A broker that encrypts, and a folder in place of /run/secrets and /etc/shop."""

    broker: KafkaBroker
    secured: Secured
    issuer: TokenIssuer
    secrets: Path

    def recipe(self, heading: str) -> str:
        """The job file below a heading of the page, for this broker."""
        page = (ROOT / "docs" / "secrets.md").read_text()
        text = page.partition(f"\n### {heading}\n")[2].partition("```yaml\n")[2].partition("```")[0]
        for written, here in (
            ("kafka.example.com:9093", self.secured.login_servers),
            ("kafka.example.com:9094", self.secured.certificate_servers),
            ("/run/secrets", str(self.secrets)),
            ("/etc/shop", str(self.secrets)),
        ):
            text = text.replace(written, here)
        return text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    secrets = tmp_path_factory.mktemp("secrets")
    authority, issuer = Authority(secrets / "authority"), TokenIssuer(secrets)
    for name, file in (("broker", "broker.pem"), ("orders", "orders.pem")):
        signed = authority.sign(name)
        (secrets / file).write_text(Path(signed.key).read_text() + Path(signed.certificate).read_text())
    shutil.copy(authority.trusted, secrets / "ca.pem")
    (secrets / "kafka-password").write_text(f"{PASSWORD}\n")
    (secrets / "kafka-token").write_text(issuer.token("orders"))
    (secrets / "store-password").write_text(STORE_PASSWORD)
    ports = free_ports(2)
    secured = Secured(
        str(secrets / "ca.pem"), str(secrets / "broker.pem"), str(issuer.keys), "orders", PASSWORD, ports[0], ports[1]
    )
    with KafkaBroker(secured=secured) as broker:
        broker.create_topic("orders")
        broker.produce("orders", [KafkaRecord(b'{"id": %d}' % n) for n in range(3)])
        yield World(broker, secured, issuer, secrets)


def _job(tmp_path: Path, recipe: str) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"table: {tmp_path}/shop.db/t\ncheckpoint: {tmp_path}/checkpoint\ntrigger: availableNow\n{CREATE}"
        + recipe.replace("subscribe: orders", "subscribe: orders\n    startingOffsets: earliest")
    )
    return str(path)


@pytest.mark.parametrize(
    "heading", ["SCRAM", "A token in a file (OAUTHBEARER)", "A certificate (mTLS) in PEM", "Key stores of Java (JKS)"]
)
def test_each_login_of_the_page_reads_from_a_broker_that_asks_for_it(
    spark: Any, world: World, tmp_path: Path, heading: str
) -> None:
    is_java = heading.startswith("Key stores")
    if is_java:
        _key_stores(world.secrets)
    config = load_job(_job(tmp_path, world.recipe(heading)))
    assert bool(obstacles(config.source, source_options(config.source).options)) == is_java, "else tasks read"
    run_job(config, spark)
    assert sorted(open_table(config.table).to_arrow()["id"].to_pylist()) == [0, 1, 2]


def _key_stores(secrets: Path) -> None:
    """The certificates of PEM files as key stores of Java."""
    trust, keys, both = secrets / "trust.jks", secrets / "orders.jks", secrets / "orders.p12"
    word = ("-storepass", STORE_PASSWORD, "-noprompt")
    done = subprocess.run(
        ["keytool", "-importcert", "-keystore", trust, "-storetype", "JKS", "-file", secrets / "ca.pem", *word],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done
    pem = (secrets / "orders.pem").read_bytes()
    certificate = load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    key: Any = load_pem_private_key(pem, None)
    hidden = BestAvailableEncryption(STORE_PASSWORD.encode())
    both.write_bytes(pkcs12.serialize_key_and_certificates(b"orders", key, certificate, None, hidden))
    from_p12 = ("-importkeystore", "-srckeystore", both, "-srcstoretype", "PKCS12", "-srcstorepass", STORE_PASSWORD)
    to_jks = ("-destkeystore", keys, "-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD, "-noprompt")
    done = subprocess.run(["keytool", *from_p12, *to_jks], capture_output=True, check=False)
    assert done.returncode == 0, done


def test_kerberos_is_left_to_spark(world: World, tmp_path: Path) -> None:
    config = load_job(_job(tmp_path, world.recipe("Kerberos")))
    assert config.source.reader is ReaderChoice.AUTO
    why = obstacles(config.source, source_options(config.source).options)
    assert "the login of kafka.sasl.* (GSSAPI) has no counterpart" in why


def test_a_wrong_password_is_refused_and_not_shown(spark: Any, world: World, tmp_path: Path) -> None:
    (tmp_path / "kafka-password").write_text("wrong-horse")
    recipe = world.recipe("SCRAM").replace(f"{world.secrets}/kafka-password", f"{tmp_path}/kafka-password")
    with pytest.raises(BucketlineError) as e:
        run_job(load_job(_job(tmp_path, recipe)), spark)
    assert isinstance(e.value, KafkaRefusedError | KafkaUnreachableError) and "wrong-horse" not in str(e.value)


def test_no_secret_is_in_anything_that_a_job_prints_writes_or_shows(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output, command lines, Spark's event log (all that its pages show), checkpoint, table, rejects, metrics."""
    folder, shown = JobFolder(tmp_path), tmp_path / "shown"
    (tmp_path / "conf").mkdir()
    (tmp_path / "events").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir file:{tmp_path}/events\n"
        "spark.log.level INFO\n"
    )
    shown.mkdir()
    (tmp_path / "key").write_text("staple-of-a-file\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("BUCKETLINE_TEST_PASSWORD", PASSWORD)
    monkeypatch.setenv("BUCKETLINE_TEST_USER", "a-user-of-an-api")
    options = {
        "kafka.bootstrap.servers": world.secured.login_servers,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(world.secrets / "ca.pem"),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="orders" password="${env:BUCKETLINE_TEST_PASSWORD}";',
    }
    parts: dict[str, object] = {
        "source": {"format": "kafka", "decode": "json", "options": options},
        "storage": {"s3.access-key": "${env:BUCKETLINE_TEST_USER}", "s3.secret-key": f"${{file:{tmp_path}/key}}"},
        "bad-records": {"path": str(shown / "rejects"), "max": "5"},
    }
    world.broker.produce("orders", [KafkaRecord(b"no JSON")])
    command = folder.command(
        f"options.metrics.prometheus.file={shown / 'metrics.prom'}", flags=["--debug"], parts=parts
    )
    with started(folder, command, jars=spark_kafka_jars("4.0")) as job:
        job.read_until("batch 0:")
        lines = [" ".join(_command_line(p)) for p in job.processes()]
        job.python().terminate()
        assert job.end() == 0, job.output
    (tmp_path / "job.json").unlink()
    (tmp_path / "key").unlink()
    secrets = [PASSWORD, "staple-of-a-file", "a-user-of-an-api"]
    found = [str(p) for p in tmp_path.rglob("*") if p.is_file() and _holds(p, secrets)]
    assert found == []
    assert all(s not in text for s in secrets for text in (job.output, *lines))
    looked_at = {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*") if p.is_file()}
    assert {"events", "shown", "checkpoint", "shop.db"} <= looked_at and len(lines) >= 2
    log = next((tmp_path / "events").iterdir())
    text = "".join(p.read_text() for p in ([log] if log.is_file() else sorted(log.glob("events*"))))
    assert "SparkListenerApplicationStart" in text and json.loads(text.splitlines()[0])


def _command_line(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def _holds(path: Path, secrets: list[str]) -> bool:
    data = path.read_bytes()
    return any(secret.encode() in data for secret in secrets)
