"""Tokens with which clients of librdkafka log in to Kafka (OAUTHBEARER). They come from a file or a function.

A client asks for a new token before the old token expires, so a file that is replaced is read again while a job runs.
"""

import base64
import json
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bucketline.conf.sources.kafka_client import TOKEN_FILE, TOKEN_PROVIDER
from bucketline.streaming.tasks.kafka.kafka_errors import KafkaReaderError

_UNKNOWN_LIFE_SECONDS = 60.0
"""A token without a time of expiry is requested again after this many seconds."""


def client_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings with which a Kafka client is created. If the settings name a file with a token, or a Python
    function that returns tokens, the result has a function instead, which the client calls when it needs a token.

    Raises KafkaReaderError if the function cannot be imported.
    """
    made: dict[str, Any] = dict(settings)
    path, provider = made.pop(TOKEN_FILE, None), made.pop(TOKEN_PROVIDER, None)
    if path is not None:
        made["oauth_cb"] = token_of(lambda: Path(path).read_text(encoding="utf-8").strip())
    elif provider is not None:
        made["oauth_cb"] = token_of(_function(provider))
    return made


def token_of(give: Callable[[], object], now: Callable[[], float] = time.time) -> Callable[[object], tuple[str, float]]:
    """Returns the function that a client calls for a token. That function returns a token, and the time at which the
    token expires, in seconds since 1970.

    `give` returns a token, or a pair of a token and its time of expiry.
    """

    def called(config: object) -> tuple[str, float]:
        del config
        given = give()
        if isinstance(given, tuple):
            token, ends = given
            return str(token), float(ends)
        return str(given), _end_of(str(given)) or now() + _UNKNOWN_LIFE_SECONDS

    return called


def _end_of(token: str) -> float | None:
    """Returns the time at which a JSON web token expires, in seconds since 1970. Returns None for other tokens, and for
    a token that does not say when it expires.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None


def _function(name: str) -> Callable[[], object]:
    module, _, attribute = name.partition(":")
    try:
        found: Callable[[], object] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise KafkaReaderError(
            f"source.token-provider = {name} cannot be imported where tasks run: {e}; send the module to the "
            "tasks with --py-files"
        ) from e
    return found
