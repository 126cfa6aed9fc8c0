"""Doing work again whose files were removed before they could be committed."""

import logging
from collections.abc import Callable
from typing import TypeVar

from bucketline.state.errors import FilesGoneError

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

TIMES = 3
"""How often work is done before its error is raised: files that are just as often removed show that somebody removes
young ones, or that the work takes longer than a day."""


def repeat_if_gone(work: Callable[[], T], again: Callable[[], object] = lambda: None) -> T:
    """What the work gives. It has to make its files anew each time; `again` is called before it is repeated."""
    for left in range(TIMES - 1, 0, -1):
        try:
            return work()
        except FilesGoneError as e:
            _LOG.warning("the work is done again, %d times at most: %s", left, e)
            again()
    return work()
