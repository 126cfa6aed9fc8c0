"""What is said of a table once in this process, however often it is opened."""

import logging
from functools import cache

_LOG = logging.getLogger(__name__)


@cache
def tell_once(path: str, sentence: str) -> None:
    """Logs a sentence about the table at a path."""
    _LOG.warning("%s: %s", path, sentence)
