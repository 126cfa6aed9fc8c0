"""The names of options that a source may have, to find mistyped options.

Spark silently ignores an option that it does not know. Kafka's client logs an unknown option and ignores it. Source:
Spark 3.5 to 4.2 KafkaSourceProvider, FileStreamOptions; Kafka 3.4 to 4.1 ConsumerConfig, ProducerConfig,
AdminClientConfig.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from bucketline.conf.errors import OptionError
from bucketline.conf.option import nearest, nearest_key

SERVERS: Final = "kafka.bootstrap.servers"
KAFKA_OPTIONS: Final = (
    SERVERS,
    *("subscribe", "subscribePattern", "assign"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition"),
    *("failOnDataLoss", "includeHeaders", "groupIdPrefix", "kafka.group.id"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"),
)
"""Spark's options of a Kafka source. Options of Kafka's client begin with `kafka.`."""

LISTING_OPTIONS: Final = (
    *("path", "maxFilesPerTrigger", "maxBytesPerTrigger", "maxCachedFiles", "discardCachedInputRatio"),
    *("latestFirst", "maxFileAge", "fileNameOnly", "cleanSource", "sourceArchiveDir", "pathGlobFilter"),
    "recursiveFileLookup",
)
"""Spark's options of a file source that select the files of a batch. They exist for every file format."""

_OF_CLIENT = "kafka."
_NEAR = 0.9
"""An unknown option counts as mistyped if its name is at least so similar to a known name, as `difflib` measures it.

File formats and classes that Kafka's client loads have options that are not listed here; nearly all of their names are
less similar.
"""

_PLUGINS: Final = (
    *("sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "sasl.login.class"),
    *("sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class", "ssl.engine.factory.class"),
)
_PLUGINS_OF_ANY: Final = ("security.providers", "interceptor.classes", "metric.reporters")
"""Options of Kafka's client that name a class of the user. Such a class gets all options of the client, so it may have
its own options.
"""
_KAFKAS_OWN = "org.apache.kafka."

_CLIENT_NAMES: Final = frozenset(
    (
        *("acks", "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter"),
        *("auto.offset.reset", "batch.size", "bootstrap.controllers", "bootstrap.servers", "buffer.memory"),
        *("check.crcs", "client.dns.lookup", "client.id", "client.rack", "compression.gzip.level"),
        *("compression.lz4.level", "compression.type", "compression.zstd.level", "connections.max.idle.ms"),
        *("default.api.timeout.ms", "delivery.timeout.ms", "enable.auto.commit", "enable.idempotence"),
        *("enable.metrics.push", "exclude.internal.topics", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes"),
        *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms"),
        *("interceptor.classes", "internal.leave.group.on.close", "internal.throw.on.fetch.stable.offset.unsupported"),
        *("isolation.level", "key.deserializer", "key.serializer", "linger.ms", "max.block.ms"),
        *("max.in.flight.requests.per.connection", "max.partition.fetch.bytes", "max.poll.interval.ms"),
        *("max.poll.records", "max.request.size", "metadata.max.age.ms", "metadata.max.idle.ms"),
        *("metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("partition.assignment.strategy", "partitioner.adaptive.partitioning.enable"),
        *("partitioner.availability.timeout.ms", "partitioner.class", "partitioner.ignore.keys"),
        *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries"),
        *("retry.backoff.max.ms", "retry.backoff.ms", "sasl.client.callback.handler.class", "sasl.jaas.config"),
        *("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.service.name"),
        *("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
        *("sasl.login.callback.handler.class", "sasl.login.class", "sasl.login.connect.timeout.ms"),
        *("sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds"),
        *("sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms"),
        *("sasl.login.retry.backoff.ms", "sasl.mechanism", "sasl.oauthbearer.assertion.algorithm"),
        *("sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.exp.seconds"),
        *("sasl.oauthbearer.assertion.claim.iss", "sasl.oauthbearer.assertion.claim.jti.include"),
        *("sasl.oauthbearer.assertion.claim.nbf.seconds", "sasl.oauthbearer.assertion.claim.sub"),
        *("sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.private.key.file"),
        *("sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.template.file"),
        *("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"),
        *("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience"),
        *("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode"),
        *("sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        *("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url"),
        *("sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class", "sasl.oauthbearer.scope"),
        *("sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name"),
        *("sasl.oauthbearer.token.endpoint.url", "security.protocol", "security.providers", "send.buffer.bytes"),
        *("session.timeout.ms", "share.acknowledgement.mode", "socket.connection.setup.timeout.max.ms"),
        *("socket.connection.setup.timeout.ms", "ssl.cipher.suites", "ssl.enabled.protocols"),
        *("ssl.endpoint.identification.algorithm", "ssl.engine.factory.class", "ssl.key.password"),
        *("ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location"),
        *("ssl.keystore.password", "ssl.keystore.type", "ssl.protocol", "ssl.provider"),
        *("ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.certificates"),
        *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "transaction.timeout.ms"),
        *("transaction.two.phase.commit.enable", "transactional.id", "value.deserializer", "value.serializer"),
    )
)
"""Options of Kafka's Java clients: consumer, producer and admin client."""


def refuse_mistyped_kafka(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns one sentence of advice for each option that Spark's Kafka source or Kafka's client does not know and
    ignores.

    Raises OptionError for an option that is probably mistyped, because its name is similar to an option of Spark or of
    Kafka's client. But if the options name a Java class of the user, this class may read the option. Then the option is
    accepted, with advice. Upper and lower case are the same, because Spark does not distinguish them and passes options
    to Kafka's client in lower case.
    """
    spark_names = {name.lower(): name for name in KAFKA_OPTIONS}
    advice = []
    for key in options:
        name = key.lower()
        if name in spark_names:
            continue
        if name.startswith(_OF_CLIENT):
            advice += _check_client_name(key, name.removeprefix(_OF_CLIENT), spark_names, options)
            continue
        if name in _CLIENT_NAMES:
            raise _unknown(key, f"{_OF_CLIENT}{name}")
        _refuse_near(key, spark_names)
        nearest_one = nearest_key(key, KAFKA_OPTIONS)
        advice.append(f"source.options.{key} is no option of Spark's Kafka source, which ignores it{nearest_one}")
    return tuple(advice)


def refuse_mistyped_listing(options: Mapping[str, str], others: Iterable[str] = ()) -> None:
    """Raises OptionError for an option of a file source that is probably mistyped, because its name is similar to an
    option that selects files.

    `others` are the names of further options that the source may have. Options of the file format are not checked.
    """
    known = {name.lower(): name for name in (*LISTING_OPTIONS, *others)}
    for key in options:
        if key.lower() not in known:
            _refuse_near(key, known)


def _check_client_name(key: str, name: str, spark_names: Mapping[str, str], options: Mapping[str, str]) -> list[str]:
    if name in _CLIENT_NAMES:
        return []
    if name in spark_names:
        raise _unknown(key, spark_names[name])
    near = nearest(name, _CLIENT_NAMES, cutoff=_NEAR)
    if near is None:
        return []
    of_word = [plugin for plugin in _PLUGINS if plugin.partition(".")[0] == near.partition(".")[0]]
    plugins = [f"{_OF_CLIENT}{plugin}" for plugin in (*of_word, *_PLUGINS_OF_ANY)]
    named = [at for at, text in options.items() if at.lower() in plugins and not text.strip().startswith(_KAFKAS_OWN)]
    if named:
        return [
            f"source.options.{key} is no option of Kafka's client, and is passed on for the class that {named[0]} "
            f"names; if '{_OF_CLIENT}{near}' is meant, correct it"
        ]
    raise OptionError(
        f"'source.options.{key}' is unknown, and Kafka's client would ignore it; if a class of yours reads the "
        f"option, name the class in {plugins[0]} or a similar option; did you mean '{_OF_CLIENT}{near}'?",
        key=f"source.options.{key}",
    )


def _refuse_near(key: str, known: Mapping[str, str]) -> None:
    near = nearest(key.lower(), known, cutoff=_NEAR)
    if near is not None:
        raise _unknown(key, known[near])


def _unknown(key: str, meant: str) -> OptionError:
    return OptionError(
        f"'source.options.{key}' is unknown, and Spark would ignore it; did you mean '{meant}'?",
        key=f"source.options.{key}",
    )
