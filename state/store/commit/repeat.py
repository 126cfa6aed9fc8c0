"""Repeats work whose files were removed before their commit, or whose base has expired meanwhile."""

import logging
from collections.abc import Callable
from typing import TypeVar

from bucketline.state.commit.conflict import HISTORY_GONE
from bucketline.state.errors import CommitConflictError, FilesGoneError

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

TIMES = 3
"""How often work is done before its error is raised. If its files are removed as often, somebody removes young
files, or the work takes longer than a day."""


def repeat_if_gone(work: Callable[[], T]) -> T:
    """The result of the work. Each time it must write new files, on the newest snapshot."""
    for left in range(TIMES - 1, 0, -1):
        try:
            return work()
        except CommitConflictError as e:
            if not isinstance(e, FilesGoneError) and e.fields.get("rule") != HISTORY_GONE:
                raise
            _LOG.warning("the work is repeated, at most %d times: %s", left, e)
    return work()
