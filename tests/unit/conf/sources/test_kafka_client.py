"""The options of Spark's Kafka source as those of librdkafka: exactly, or with the reason why not."""

from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from bucketline.conf.errors import OptionError
from bucketline.conf.job import ReaderChoice, RecordFormat, SourceConfig
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.conf.sources.reader_choice import check_reader

SERVERS = {"kafka.bootstrap.servers": "a:9092"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p=;w";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
OAUTH = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="c" clientSecret="s" scope="r";'
)
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
PEM = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}


def test_defaults_are_those_of_sparks_reader() -> None:
    found = kafka_client({**SERVERS, "subscribe": "orders", "failOnDataLoss": "false"})
    assert found.obstacles == ()
    assert {
        "bootstrap.servers": "a:9092",
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "error",
        "enable.auto.commit": "false",
        "check.crcs": "true",
        "enable.partition.eof": "true",
    }.items() <= found.settings.items()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fetch.max.wait.ms": "7", "check.crcs": "FALSE"}, {"fetch.wait.max.ms": "7", "check.crcs": "false"}),
        ({"isolation.level": "read_committed"}, {"isolation.level": "read_committed"}),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN},
            {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p=;w"},
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM},
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": OAUTH,
                "sasl.login.callback.handler.class": OAUTH_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            },
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "c",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "r",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            },
        ),
        ({"security.protocol": "SSL", **PEM}, {"ssl.ca.location": "/ca.pem"}),
        (
            {"security.protocol": "SSL", **PEM, "ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"security.protocol": "SSL", **PEM, "ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"},
        ),
        (
            {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "CA",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": "KEY",
                "ssl.keystore.certificate.chain": "CHAIN",
                "ssl.key.password": "pw",
            },
            {"ssl.ca.pem": "CA", "ssl.key.pem": "KEY", "ssl.certificate.pem": "CHAIN", "ssl.key.password": "pw"},
        ),
        (
            {
                "security.protocol": "SSL",
                **PEM,
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "/k",
                "ssl.keystore.password": "x",
            },
            {"ssl.keystore.location": "/k", "ssl.keystore.password": "x"},
        ),
    ],
)
def test_what_means_the_same_is_taken_over(options: dict[str, str], expected: dict[str, str]) -> None:
    found = kafka_client(SERVERS | {f"kafka.{key}": text for key, text in options.items()})
    assert found.obstacles == ()
    assert expected.items() <= found.settings.items()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max.poll.records": "5"}, "kafka.max.poll.records has no counterpart"),
        ({"fetch.max.bytes": "999999"}, "kafka.fetch.max.bytes is below 1,000,000, which librdkafka refuses"),
        ({"Isolation.Level": "read_committed"}, "kafka.Isolation.Level has no counterpart"),
        ({"sasl.jaas.config": PLAIN}, "kafka.sasl.jaas.config is set, but security.protocol is not one with a login"),
        ({"security.protocol": "SASL_SSL", **PEM}, "the login is not set by kafka.sasl.jaas.config"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": PLAIN},
            "the login of kafka.sasl.* (SCRAM-SHA-256) has no counterpart",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": SCRAM.replace(";", ' tokenauth="true";'),
            },
            "the login of kafka.sasl.* (SCRAM-SHA-256) has no counterpart",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": "x required;"},
            "the login of kafka.sasl.* (GSSAPI) has no counterpart",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} {PLAIN}"},
            "the login of kafka.sasl.* (PLAIN) has no counterpart",
        ),
        ({"security.protocol": "SSL"}, "the trusted certificates are not in PEM (kafka.ssl.truststore.type is JKS)"),
        (
            {"security.protocol": "SSL", **PEM, "ssl.keystore.location": "/k.jks"},
            "kafka.ssl.keystore.location has no counterpart",
        ),
        ({"ssl.truststore.type": "PEM"}, "kafka.ssl.* is set, but security.protocol is not one that encrypts"),
        ({"security.protocol": "SSL", **PEM, "ssl.cipher.suites": "X"}, "kafka.ssl.cipher.suites has no counterpart"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN,
                "sasl.login.refresh.window.factor": "0.5",
            },
            "kafka.sasl.login.refresh.window.factor has no counterpart",
        ),
    ],
)
def test_anything_else_is_an_obstacle(options: dict[str, str], why: str) -> None:
    assert why in kafka_client(SERVERS | {f"kafka.{key}": text for key, text in options.items()}).obstacles


def test_librdkafka_takes_what_it_is_given_and_secrets_are_not_shown() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    tuned = {
        "fetch.min.bytes": "10",
        "fetch.max.bytes": "1000000",
        "max.partition.fetch.bytes": "1000",
        "metadata.max.age.ms": "1000",
        "retry.backoff.ms": "10",
        "retry.backoff.max.ms": "100",
        "reconnect.backoff.max.ms": "500",
        "connections.max.idle.ms": "1000",
        "client.dns.lookup": "use_all_dns_ips",
        "receive.buffer.bytes": "1000",
        "socket.connection.setup.timeout.ms": "2000",
    }
    found = kafka_client(
        {"kafka.bootstrap.servers": "127.0.0.1:1"} | {f"kafka.{k}": v for k, v in (login | tuned).items()}
    )
    assert found.obstacles == () and "p=;w" not in repr(found)
    Consumer({**found.settings, "group.id": "g"}).close()


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (SourceConfig("text", {}, RecordFormat.JSON, ReaderChoice.NATIVE), "the source is 'text'"),
        (SourceConfig("kafka", SERVERS, RecordFormat.NONE, ReaderChoice.NATIVE), "without source.decode"),
        (
            SourceConfig("parquet", {"path": "s3a://b/in"}, RecordFormat.NONE, ReaderChoice.NATIVE),
            "tasks can read only local files themselves, but the path begins with s3a:",
        ),
        (
            SourceConfig("parquet", {"path": "/in", "mergeSchema": "true"}, RecordFormat.NONE, ReaderChoice.NATIVE),
            "source.options.mergeSchema says how Spark reads the files",
        ),
        (
            SourceConfig("kafka", SERVERS | {"kafka.max.poll.records": "5"}, RecordFormat.JSON, ReaderChoice.NATIVE),
            "kafka.max.poll.records has no counterpart; use auto or spark",
        ),
    ],
)
def test_a_job_that_asks_for_native_is_refused_where_it_cannot_be(source: SourceConfig, why: str) -> None:
    with pytest.raises(OptionError, match=f"source.reader = native: .*{why}"):
        check_reader(source, source.options)
    check_reader(replace(source, reader=ReaderChoice.AUTO), source.options)
