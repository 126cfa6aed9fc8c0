"""Converts the `kafka.` options of a source, which are meant for Kafka's Java client, to settings of librdkafka.

Some options have the same name in both clients but another meaning, and some defaults differ. So only listed options
are converted. For any other option, or for a value that librdkafka reads in another way, the source cannot be read with
librdkafka. Source: Kafka 4.1 ConsumerConfig, SaslConfigs, SslConfigs; Spark 4.0
KafkaSourceProvider.kafkaParamsForExecutors; librdkafka 2.16 CONFIGURATION.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.secrets import MaskedOptions

OF_KAFKA = "kafka."

_SAME: Mapping[str, str] = {
    "bootstrap.servers": "bootstrap.servers",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "client.dns.lookup": "client.dns.lookup",
    "security.protocol": "security.protocol",
    "isolation.level": "isolation.level",
    "check.crcs": "check.crcs",
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "ssl.key.password": "ssl.key.password",
}
"""Options that mean the same in both clients: the name in the Java client -> the name in librdkafka."""

_BY_LOGIN = frozenset({"sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class"})
_BY_LOGIN_URL = "sasl.oauthbearer.token.endpoint.url"
_GROUP = "group.id"
_ENDPOINT_CHECK = "ssl.endpoint.identification.algorithm"

_AS_SPARK: Mapping[str, str] = {
    "isolation.level": "read_uncommitted",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "check.crcs": "true",
}
"""The settings that Spark's own reader uses, and the defaults of the Java client that decide which records are read."""

_OF_OURS: Mapping[str, str] = {
    "enable.partition.eof": "true",  # Then librdkafka reports the position after records that it does not deliver.
    "fetch.wait.max.ms": "10",  # A request at the end of a partition delays the next request by at most 10 ms.
    "max.partition.fetch.bytes": "4194304",  # Large answers, because each one costs the broker as much as many records.
    "queued.max.messages.kbytes": "32768",  # The memory for records that wait to be taken.
    "queued.min.messages": "5000",  # Records fetched in advance. A few of them fit into the processor's cache.
    "fetch.queue.backoff.ms": "5",  # A full queue is checked again soon, and not only after a second.
    "receive.message.max.bytes": "1000000000",  # A single record may be larger than the intended size of an answer.
    "max.poll.interval.ms": "86400000",
    "connections.max.idle.ms": "540000",  # as in the Java client
    "log_level": "2",  # Only serious messages are logged. Problems that matter are reported as errors.
}

_MOST_DIGITS = 20
_LEAST_FETCH_MAX_BYTES = 1_000_000
"""The value of librdkafka's `message.max.bytes`. librdkafka refuses a `fetch.max.bytes` that is smaller."""

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_JAAS = re.compile(r"\s*([\w.]+)\s+required((?:\s+\w+\s*=\s*\"[^\"\\\n]*\")*)\s*;\s*")
_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*\"([^\"]*)\"")
TOKEN_FILE, TOKEN_PROVIDER = "bucketline.token.file", "bucketline.token.provider"
"""bucketline's own settings among those of librdkafka: they say where a client gets its tokens. Code that creates a
client removes them first.
"""
_FILE_URL = "file:"

_OAUTH_OPTIONS: Mapping[str, str] = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """The settings of librdkafka, without a group id. `obstacles` has a sentence for each option that cannot be
    converted.
    """

    settings: Mapping[str, str]
    obstacles: tuple[str, ...] = ()


def kafka_client(options: Mapping[str, str], token_provider: str | None = None) -> KafkaClient:
    """Returns the settings with which librdkafka reads the same records as Spark's Kafka source does with these
    options.

    `token_provider` is the name of the Python function that returns login tokens. The function is needed if the options
    name a Java class that returns the tokens to Spark's client.
    """
    kafka_options = {
        key[len(OF_KAFKA) :]: text.strip() for key, text in options.items() if key.lower().startswith(OF_KAFKA)
    }
    settings = {**_OF_OURS, **_AS_SPARK}
    obstacles: list[str] = []
    _take_transport(kafka_options, settings, obstacles)
    _take_login(kafka_options, settings, obstacles, token_provider)
    most = kafka_options.get("fetch.max.bytes", "")
    if most.isdecimal() and len(most) < _MOST_DIGITS and int(most) < _LEAST_FETCH_MAX_BYTES:
        why = f"is below {_LEAST_FETCH_MAX_BYTES:,}, which librdkafka refuses"
        obstacles.append(f"{OF_KAFKA}fetch.max.bytes {why}")
    known = _BY_LOGIN | {_BY_LOGIN_URL, _GROUP, _ENDPOINT_CHECK}
    for key, text in kafka_options.items():
        if key in _SAME:
            settings[_SAME[key]] = text.lower() if text.lower() in ("true", "false") else text
        elif key not in known and not key.startswith(("ssl.truststore.", "ssl.keystore.")):
            obstacles.append(f"{OF_KAFKA}{key} has no counterpart")
    return KafkaClient(MaskedOptions(settings), tuple(sorted(set(obstacles))))


def _take_transport(kafka_options: Mapping[str, str], settings: dict[str, str], obstacles: list[str]) -> None:
    """Converts the options for encryption and certificates. Adds the results to `settings`. If an option cannot be
    converted, adds the reason to `obstacles`.

    Trusted certificates must be in PEM. The client's own certificate may be in PEM or in a PKCS12 key store.
    """
    check = kafka_options.get(_ENDPOINT_CHECK)
    if check is not None:
        settings[_ENDPOINT_CHECK] = check.lower() or "none"
    stores = {key: text for key, text in kafka_options.items() if key.startswith(("ssl.truststore.", "ssl.keystore."))}
    if not _is_encrypted(kafka_options):
        if stores:
            obstacles.append(f"{OF_KAFKA}ssl.* is set, but security.protocol is not one that encrypts")
        return
    trust, key_type = stores.get("ssl.truststore.type", "JKS"), stores.get("ssl.keystore.type", "JKS")
    moved = {"ssl.truststore.type", "ssl.keystore.type"}
    if trust.upper() == "PEM":
        moved |= _moved(
            stores,
            settings,
            {"ssl.truststore.certificates": ("ssl.ca.pem",), "ssl.truststore.location": ("ssl.ca.location",)},
        )
    if key_type.upper() == "PEM":
        moved |= _moved(
            stores,
            settings,
            {
                "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
                "ssl.keystore.key": ("ssl.key.pem",),
                "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
            },
        )
    elif key_type.upper() == "PKCS12":
        moved |= _moved(
            stores,
            settings,
            {
                "ssl.keystore.location": ("ssl.keystore.location",),
                "ssl.keystore.password": ("ssl.keystore.password",),
            },
        )
    if not {"ssl.ca.pem", "ssl.ca.location"} & settings.keys():
        obstacles.append(f"the trusted certificates are not in PEM ({OF_KAFKA}ssl.truststore.type is {trust})")
    obstacles += [f"{OF_KAFKA}{key} has no counterpart" for key in stores if key not in moved]


def _moved(options: Mapping[str, str], settings: dict[str, str], names: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Copies options of Kafka's Java client into `settings`, under their names in librdkafka. `names` maps each option
    to these names. Returns the options in `names` that are set.
    """
    present = {name for name in names if name in options}
    for name in present:
        settings.update(dict.fromkeys(names[name], options[name]))
    return present


def _take_login(
    kafka_options: Mapping[str, str], settings: dict[str, str], obstacles: list[str], token_provider: str | None
) -> None:
    if not kafka_options.get("security.protocol", "PLAINTEXT").upper().startswith("SASL_"):
        obstacles += [
            f"{OF_KAFKA}{key} is set, but security.protocol is not one with a login"
            for key in kafka_options
            if key.startswith("sasl.")
        ]
        return
    mechanism, login = kafka_options.get("sasl.mechanism", "GSSAPI"), kafka_options.get("sasl.jaas.config")
    if mechanism == "OAUTHBEARER" and token_provider is not None:
        settings |= {"sasl.mechanism": mechanism, TOKEN_PROVIDER: token_provider}
        return
    if login is None:
        obstacles.append(f"the login is not set by {OF_KAFKA}sasl.jaas.config")
        return
    match = _JAAS.fullmatch(login)
    module, texts = (None, "") if match is None else (match[1], match[2])
    options = dict(_JAAS_OPTION.findall(texts))
    handler, url = kafka_options.get("sasl.login.callback.handler.class"), kafka_options.get(_BY_LOGIN_URL)
    by_name = (mechanism == "PLAIN" and module == _PLAIN) or (
        mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512") and module == _SCRAM
    )
    if by_name and options.keys() == {"username", "password"} and handler is None and url is None:
        settings |= {"sasl.username": options["username"], "sasl.password": options["password"]}
    elif (
        (mechanism, module) == ("OAUTHBEARER", _OAUTH)
        and handler in _OAUTH_HANDLERS
        and url is not None
        and url.startswith(_FILE_URL)
        and not options
    ):
        settings[TOKEN_FILE] = url.removeprefix(_FILE_URL).replace("///", "/", 1)
    elif (
        (mechanism, module) == ("OAUTHBEARER", _OAUTH)
        and handler in _OAUTH_HANDLERS
        and url is not None
        and {"clientId", "clientSecret"} <= options.keys() <= _OAUTH_OPTIONS.keys()
    ):
        settings |= {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": url}
        settings |= {_OAUTH_OPTIONS[name]: text for name, text in options.items()}
    else:
        obstacles.append(f"the login of {OF_KAFKA}sasl.* ({mechanism}) has no counterpart")
        return
    settings["sasl.mechanism"] = mechanism


def _is_encrypted(kafka_options: Mapping[str, str]) -> bool:
    return kafka_options.get("security.protocol", "PLAINTEXT").upper() in ("SSL", "SASL_SSL")
