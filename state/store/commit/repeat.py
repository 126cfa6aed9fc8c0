"""Repeats work whose files were removed before their commit."""

import logging
from collections.abc import Callable
from typing import TypeVar

from bucketline.state.errors import FilesGoneError

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

TIMES = 3
"""How often work is done before its error is raised. If its files are removed as often, somebody removes young
files, or the work takes longer than a day."""


def repeat_if_gone(work: Callable[[], T], again: Callable[[], object] = lambda: None) -> T:
    """The result of the work. It must write new files each time; `again` is called before it is repeated."""
    for left in range(TIMES - 1, 0, -1):
        try:
            return work()
        except FilesGoneError as e:
            _LOG.warning("the work is repeated, at most %d times: %s", left, e)
            again()
    return work()
