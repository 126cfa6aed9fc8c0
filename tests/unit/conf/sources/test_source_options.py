"""What a job's source hands to Spark, and what is refused before Spark starts."""

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import ReaderChoice, RecordFormat, SourceConfig, Trigger, parse_trigger
from bucketline.conf.sources.source_options import (
    begins_at_latest,
    kafka_source,
    source_identity,
    source_options,
    start_at,
)
from bucketline.state.types.columns_text import parse_columns
from bucketline.streaming.job.source import spark_columns

SERVERS = {"kafka.bootstrap.servers": "b:9092, a:9092"}


def kafka(**options: str) -> SourceConfig:
    return SourceConfig("kafka", {**SERVERS, "subscribe": "orders", **options}, RecordFormat.JSON)


def test_kafka_gets_defaults_that_neither_lose_nor_swamp() -> None:
    found = source_options(kafka(**{"kafka.sasl.jaas.config": "secret"}))
    assert found.options == {
        **SERVERS,
        "subscribe": "orders",
        "kafka.sasl.jaas.config": "secret",
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": "1000000",
    }
    assert found.advice == ()


def test_what_is_set_stays_as_it_is_written_and_a_loss_is_told() -> None:
    found = source_options(kafka(failondataloss="False", MaxOffsetsPerTrigger="7"))
    assert found.options == {**kafka().options, "failondataloss": "False", "MaxOffsetsPerTrigger": "7"}
    assert len(found.advice) == 1 and "the table will not have them" in found.advice[0]


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("maxOffsetsPerTrigger", "9223372036854775807"),
        ("maxRecordsPerPartition", "9223372036854775807"),
        ("minOffsetsPerTrigger", "0"),
        ("startingTimestamp", " 1700000000000 "),
        ("startingOffsets", ' {"orders": {"0": -2, "1": 9223372036854775807}} '),
    ],
)
def test_an_unusual_value_that_spark_takes_is_taken(option: str, text: str) -> None:
    assert source_options(kafka(**{option: text})).options[option] == text


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (SourceConfig("kafka", {"subscribe": "orders"}, RecordFormat.JSON), "kafka.bootstrap.servers is required"),
        (SourceConfig("kafka", SERVERS, RecordFormat.JSON), "exactly one of subscribe, subscribePattern, assign"),
        (kafka(assign="{}"), "has subscribe, assign"),
        (kafka(failOnDataLoss="maybe"), "failOnDataLoss = 'maybe': must be 'true' or 'false'"),
        (
            kafka(maxOffsetsPerTrigger="1k"),
            "source.options.maxOffsetsPerTrigger = '1k': must be a whole number from 1 on",
        ),
        (kafka(maxoffsetspertrigger="0"), "maxoffsetspertrigger = '0': must be a whole number from 1 on"),
        (
            kafka(maxOffsetsPerTrigger="9223372036854775808"),
            "maxOffsetsPerTrigger = '9223372036854775808': must be at most 9223372036854775807",
        ),
        (kafka(startingTimestamp="2026-01-01"), "startingTimestamp = '2026-01-01': must be a whole number from 0 on"),
        (kafka(includeHeaders="yes"), "includeHeaders = 'yes': must be 'true' or 'false'"),
        (kafka(startingOffsets="first"), "startingOffsets = 'first': must be earliest, latest, or a JSON object"),
        (kafka(startingOffsets='{"orders": {"0": 1}'), "number for each partition, as {.orders.: {.0.: 120}}"),
        (kafka(startingOffsets='{"orders": [0]}'), "or a JSON object of topics"),
        (kafka(startingOffsets='{"orders": {"0": "1"}}'), "or a JSON object of topics"),
        (
            kafka(startingOffsetsByTimestamp="earliest"),
            "startingOffsetsByTimestamp = 'earliest': must be a JSON object",
        ),
        (kafka(startingOffsetsByTimestampStrategy="first"), "Strategy = 'first': must be one of error, latest"),
        (kafka(endingOffsets="latest"), "endingOffsets = 'latest': a stream has no end; remove the option"),
        (SourceConfig("json", {"path": "/x"}, RecordFormat.JSON), "use format text"),
    ],
)
def test_sources_that_make_no_sense_are_refused(source: SourceConfig, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        source_options(source)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({**SERVERS, "subscrib": "orders"}, "'source.options.subscrib' is unknown; did you mean 'subscribe'?"),
        ({**SERVERS, "Subscribee": "orders"}, "'source.options.Subscribee' is unknown; did you mean 'subscribe'?"),
        ({**SERVERS, "subscribePatern": "o.*"}, "did you mean 'subscribePattern'?"),
        ({"kafka.bootstrap.server": "b:1", "subscribe": "o"}, "did you mean 'kafka.bootstrap.servers'?"),
        ({"bootstrap.servers": "b:1", "subscribe": "o"}, "did you mean 'kafka.bootstrap.servers'?"),
    ],
)
def test_a_mistyped_option_that_a_kafka_source_needs_gets_the_nearest_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        source_options(SourceConfig("kafka", options, RecordFormat.JSON))
    assert caught.value.message.endswith(says)


COMPLETE = {"kafka.bootstrap.servers": "b:1", "subscribe": "orders"}


@pytest.mark.parametrize("reader", [ReaderChoice.SPARK, ReaderChoice.NATIVE])
@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("starting-offsets", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDataLos", "failOnDataLoss"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.securty.protocol", "kafka.security.protocol"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
        ("kafka.startingOffsets", "startingOffsets"),
        ("security.protocol", "kafka.security.protocol"),
        ("group.id", "kafka.group.id"),
    ],
)
def test_a_mistyped_option_beside_complete_ones_is_refused_with_the_nearest_name(
    mistyped: str, meant: str, reader: ReaderChoice
) -> None:
    options = {**COMPLETE, mistyped: "a-secret"}
    with pytest.raises(OptionError) as caught:
        source_options(SourceConfig("kafka", options, RecordFormat.JSON, reader))
    assert f"'source.options.{mistyped}' is unknown" in caught.value.message
    assert caught.value.message.endswith(f"did you mean '{meant}'?")
    assert "a-secret" not in caught.value.message


def test_an_option_that_spark_does_not_know_and_that_is_like_no_other_is_told_and_passed_on() -> None:
    found = source_options(SourceConfig("kafka", {**COMPLETE, "my.own": "1"}, RecordFormat.JSON))
    assert found.options["my.own"] == "1"
    assert found.advice[0].startswith("source.options.my.own is no option of Spark's Kafka source, which ignores it; ")
    assert "'" in found.advice[0]


@pytest.mark.parametrize(
    "key",
    [
        *("STARTINGOFFSETS", "maxRecordsPerPartition", "fetchOffset.numRetries", "kafkaConsumer.pollTimeoutMs"),
        *("kafka.max.poll.records", "kafka.ssl.truststore.type", "kafka.compression.type", "kafka.acks"),
        *("kafka.ssl.ca.location", "kafka.my.plugin.setting", "kafka.metadata.max.idle.ms"),
    ],
)
def test_options_of_spark_of_a_client_and_of_a_plugin_of_a_client_pass_without_a_word(key: str) -> None:
    value = '{"orders": {"0": -2, "1": 7}}' if key == "STARTINGOFFSETS" else "1"
    found = source_options(SourceConfig("kafka", {**COMPLETE, key: value}, RecordFormat.JSON))
    assert found.options[key] == value
    assert found.advice == ()


HANDLER, ENGINE = "kafka.sasl.client.callback.handler.class", "kafka.ssl.engine.factory.class"
OF_KAFKA = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.mark.parametrize(
    ("key", "plugin"),
    [
        ("kafka.sasl.login.retry.backoffs.ms", {HANDLER: "org.shop.Handler"}),
        ("kafka.ssl.keystore.locations", {ENGINE.upper(): "org.shop.Engine"}),
        ("kafka.fetch.max.byte", {"kafka.interceptor.classes": "org.shop.Interceptor"}),
    ],
)
def test_an_option_that_is_nearly_a_known_one_passes_for_a_class_of_the_user(key: str, plugin: dict[str, str]) -> None:
    found = source_options(SourceConfig("kafka", {**COMPLETE, **plugin, key: "a-secret"}, RecordFormat.JSON))
    assert found.options[key] == "a-secret"
    (advice,) = found.advice
    assert key in advice and next(iter(plugin)) in advice and "a-secret" not in advice


@pytest.mark.parametrize(
    ("key", "plugin", "named"),
    [
        ("kafka.sasl.login.retry.backoffs.ms", {}, "kafka.sasl.login.callback.handler.class"),
        ("kafka.sasl.login.retry.backoffs.ms", {ENGINE: "org.shop.Engine"}, "kafka.sasl.login.callback.handler.class"),
        ("kafka.sasl.login.retry.backoffs.ms", {HANDLER: OF_KAFKA}, "kafka.sasl.login.callback.handler.class"),
        ("kafka.ssl.keystore.locations", {HANDLER: "org.shop.Handler"}, ENGINE),
        ("kafka.fetch.max.byte", {HANDLER: "org.shop.Handler"}, "kafka.security.providers"),
    ],
)
def test_an_option_that_is_nearly_a_known_one_is_refused_and_the_error_names_what_lets_it_pass(
    key: str, plugin: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError, match="if a class of yours reads the option, name the class in") as caught:
        source_options(SourceConfig("kafka", {**COMPLETE, **plugin, key: "1"}, RecordFormat.JSON))
    assert f"name the class in {named} or" in caught.value.message


def test_a_mistyped_option_that_selects_files_is_refused_and_options_of_the_format_pass() -> None:
    with pytest.raises(OptionError) as caught:
        source_options(SourceConfig("parquet", {"path": "/in", "maxFilePerTrigger": "1"}, RecordFormat.NONE))
    assert caught.value.message.endswith("did you mean 'maxFilesPerTrigger'?")
    options = {"path": "/in", "header": "true", "mergeSchema": "true", "mode": "PERMISSIVE", "schema": "a INT"}
    assert source_options(SourceConfig("csv", options, RecordFormat.NONE)).options == options


def test_options_that_are_known_or_unlike_are_not_told_as_mistyped() -> None:
    options = {"kafka.security.protocol": "SSL", "assign": "{}", "my.own": "1"}
    with pytest.raises(OptionError) as caught:
        source_options(SourceConfig("kafka", options, RecordFormat.JSON))
    assert "unknown" not in caught.value.message
    with pytest.raises(OptionError) as caught:
        source_options(SourceConfig("kafka", {**SERVERS, "kafka.group.id": "g"}, RecordFormat.JSON))
    assert caught.value.message.endswith("has none")


def test_malformed_files_stop_the_job_unless_it_says_otherwise() -> None:
    assert source_options(SourceConfig("csv", {}, RecordFormat.NONE)).options == {"mode": "FAILFAST"}
    assert source_options(SourceConfig("json", {"Mode": "DROPMALFORMED"}, RecordFormat.NONE)).options == {
        "Mode": "DROPMALFORMED"
    }
    assert source_options(SourceConfig("parquet", {}, RecordFormat.NONE)).options == {}
    assert source_options(SourceConfig("text", {"path": "/x"}, RecordFormat.JSON)).options == {"path": "/x"}


def test_a_cluster_is_named_by_its_brokers_in_any_order() -> None:
    assert source_identity(kafka()) == "kafka://a:9092,b:9092"
    assert source_identity(SourceConfig("rate", {}, RecordFormat.NONE)) is None


def test_a_pattern_of_topics_is_read_without_blanks_around_it_and_refused_by_name_if_python_cannot_read_it() -> None:
    assert kafka_source({"subscribePattern": " orders-. "}).reads("orders-1")
    with pytest.raises(OptionError, match=r"subscribePattern = '.*Alpha.*' cannot be read as a regular expression"):
        kafka_source({"subscribePattern": r"\p{Alpha}+"}).reads("orders")


def test_another_start_replaces_each_way_to_say_it() -> None:
    options = {"STARTINGOFFSETS": "earliest", "startingTimestamp": "1", "subscribe": "t"}
    assert start_at(options, '{"t":{"0":5}}') == {"subscribe": "t", "startingOffsets": '{"t":{"0":5}}'}


def test_triggers_are_intervals_or_all_there_is_in_bounded_batches() -> None:
    assert parse_trigger("30 seconds") == Trigger(30_000)
    assert parse_trigger("availableNow") == parse_trigger("available-now") == Trigger(None)
    with pytest.raises(OptionError, match="availableNow"):
        parse_trigger("once")
    with pytest.raises(OptionError, match="must be 'availableNow'"):
        parse_trigger("soon")


def test_columns_of_files_are_told_in_sparks_words() -> None:
    fields = parse_columns(
        "id BIGINT NOT NULL, `a``b` VARCHAR(3), d DECIMAL(12, 2), t TIMESTAMP(3), z TIMESTAMP_LTZ(6), "
        "l ARRAY<INT>, m MAP<STRING, DATE>, r ROW<x BYTES>"
    )
    assert spark_columns(fields) == (
        "`id` BIGINT, `a``b` STRING, `d` DECIMAL(12,2), `t` TIMESTAMP_NTZ, `z` TIMESTAMP, "
        "`l` ARRAY<INT>, `m` MAP<STRING, DATE>, `r` STRUCT<`x`: BINARY>"
    )
    with pytest.raises(OptionError, match="column 'noon' is of type TIME"):
        spark_columns(parse_columns("noon TIME(3)"))


@pytest.mark.parametrize(
    ("options", "at_latest"),
    [
        ({}, True),
        ({"STARTINGOFFSETS": " Latest "}, True),
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"a":{"0":-1}}'}, False),
        ({"startingTimestamp": "1700000000000"}, False),
        ({"startingOffsets": "latest", "startingTimestamp": "1700000000000"}, False),
    ],
)
def test_a_new_query_begins_at_the_newest_record_where_nothing_else_is_said(
    options: dict[str, str], at_latest: bool
) -> None:
    assert begins_at_latest(options) is at_latest
