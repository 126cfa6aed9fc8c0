"""Tokens with which clients of librdkafka log in to Kafka (OAUTHBEARER), from a file or a function.

A client asks again before a token expires, so a file that is replaced is read again while a job runs.
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
"""After this time a token without an expiry is requested again."""


def client_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """The settings for creating a client, with a function that returns tokens.

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
    """The function that a client calls; it returns a token, and the second of the epoch at which the token expires.

    `give` returns a token, or a pair of token and second.
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
    """When a JSON web token expires; None for other tokens, and for a token that does not say when it expires."""
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
            f"source.token-provider = {name} cannot be imported where tasks run: {e}; give them the module (--py-files)"
        ) from e
    return found
