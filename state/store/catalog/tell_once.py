"""Logs a sentence about a table once in this process, however often the table is opened."""

import logging
from collections.abc import Iterable
from functools import cache

_LOG = logging.getLogger(__name__)


def tell_all(path: str, sentences: Iterable[str]) -> None:
    """Logs each of the sentences about the table at a path, unless it was logged before."""
    for sentence in sentences:
        tell_once(path, sentence)


@cache
def tell_once(path: str, sentence: str) -> None:
    """Logs a sentence about the table at a path, unless it was logged before."""
    _LOG.warning("%s: %s", path, sentence)
