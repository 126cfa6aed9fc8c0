"""Where clients of librdkafka get their tokens, and when they ask again."""

import base64
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bucketline.conf.job import RecordFormat, SourceConfig
from bucketline.conf.sources.kafka_client import TOKEN_FILE, TOKEN_PROVIDER, kafka_client
from bucketline.conf.sources.reader_choice import obstacles
from bucketline.streaming.tasks.kafka.kafka_consumers import LibrdkafkaConsumer
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError
from bucketline.streaming.tasks.kafka.kafka_tokens import client_settings, token_of

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.jaas.config": f"{MODULE} required;",
    "kafka.sasl.login.callback.handler.class": HANDLER,
}


def _token(claims: dict[str, object]) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.x"


@pytest.mark.parametrize("url", ["file:///run/secrets/token", "file:/run/secrets/token"])
def test_a_token_file_of_javas_client_is_that_of_tasks(url: str) -> None:
    found = kafka_client({**OPTIONS, "kafka.sasl.oauthbearer.token.endpoint.url": url})
    assert found.obstacles == () and found.settings[TOKEN_FILE] == "/run/secrets/token"
    assert found.settings["sasl.mechanism"] == "OAUTHBEARER"


def test_a_provider_by_name_stands_for_a_class_of_java() -> None:
    options = {**OPTIONS, "kafka.sasl.login.callback.handler.class": "shop.Handler"}
    source = SourceConfig("kafka", options, RecordFormat.JSON)
    assert obstacles(source, options) == ("the login of kafka.sasl.* (OAUTHBEARER) has no counterpart",)
    found = kafka_client(options, "shop.tokens:kafka")
    assert found.obstacles == () and found.settings[TOKEN_PROVIDER] == "shop.tokens:kafka"


def test_a_file_is_read_anew_each_time_and_a_token_says_when_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "token"
    ask = client_settings({TOKEN_FILE: str(file), "bootstrap.servers": "h"})["oauth_cb"]
    file.write_text(_token({"exp": 2_000_000_000}) + "\n")
    assert ask("") == (_token({"exp": 2_000_000_000}), 2_000_000_000.0)
    file.write_text(_token({"exp": 2_000_000_060}))
    assert ask("")[1] == 2_000_000_060.0


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("opaque", 1234), ("opaque", 1234.0)),
        ("opaque", ("opaque", 160.0)),
        ("a.b.c", ("a.b.c", 160.0)),
        (_token({}), (_token({}), 160.0)),
        (_token({"exp": "soon"}), (_token({"exp": "soon"}), 160.0)),
    ],
)
def test_a_function_may_say_when_its_token_ends(given: object, found: tuple[str, float]) -> None:
    assert token_of(lambda: given, lambda: 100.0)("") == found


def test_a_provider_is_imported_by_name_and_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("logins_of_a_test")
    module.kafka = lambda: ("t", 9)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "logins_of_a_test", module)
    assert client_settings({TOKEN_PROVIDER: "logins_of_a_test:kafka"})["oauth_cb"]("") == ("t", 9.0)
    for name in ("logins_of_a_test:other", "no_such_module:kafka"):
        with pytest.raises(KafkaReaderError, match=f"source.token-provider = {name} cannot be imported"):
            client_settings({TOKEN_PROVIDER: name})


def test_librdkafka_takes_such_settings(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(_token({"exp": 4_000_000_000}))
    url = f"file://{tmp_path}/token"
    found = kafka_client({**OPTIONS, "kafka.sasl.oauthbearer.token.endpoint.url": url})
    LibrdkafkaConsumer({**found.settings, "group.id": "x"}).close()
