"""Repeats work whose files were removed before the commit, whose base snapshot has expired meanwhile, or whose rows
another writer has changed.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from bucketline.state.commit.conflict import ALREADY_ADDED, HISTORY_GONE, ROWS_CHANGED
from bucketline.state.determinism import World
from bucketline.state.errors import CommitConflictError, FilesGoneError

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

TIMES = 3
"""How often work is done before its error is raised. If its files are removed that often, something removes young
files, or the work takes longer than a day.
"""


def may_repeat(error: CommitConflictError) -> bool:
    """Returns True if work may be planned and done again after the work, or its commit, has failed with this error."""
    return isinstance(error, FilesGoneError) or error.rule in (HISTORY_GONE, ROWS_CHANGED)


def lost_file(error: CommitConflictError) -> BaseException | None:
    """Returns the error about a missing or damaged file that has caused the conflict `error`; None if the conflict
    has another cause.
    """
    return error.__cause__ if error.rule == HISTORY_GONE else None


def repeat_if_gone(work: Callable[[], T]) -> T:
    """Calls `work` and returns its result. If the work fails with an error that `may_repeat` accepts, calls `work`
    again, but not more than `TIMES` times in all. Each call must write new files on the newest snapshot.

    If the last call fails too, its error is raised. If that error is a conflict whose cause is a missing or damaged
    file, the error about this file is raised instead: after so many calls, expiry is probably not the reason.
    """
    for left in range(TIMES - 1, 0, -1):
        try:
            return work()
        except CommitConflictError as e:
            if not may_repeat(e):
                raise
            _LOG.warning("a change of a table failed, and its work is done again, at most %d more times: %s", left, e)
    try:
        return work()
    except CommitConflictError as e:
        lost = lost_file(e)
        if lost is None:
            raise
    raise lost


CHANGED_TIMES = 6
"""How often a change of rows is planned before its conflict is raised, if other writers commit first each time."""

_FIRST_PAUSE_MS = 50


def repeat_if_changed(work: Callable[[], T], world: World) -> tuple[T, int]:
    """Does the work, and returns its result and how often it was planned again.

    If the work conflicts with another writer, it is planned again on the newest snapshot, after a pause that doubles
    and has a random factor, so that two writers do not collide again. Raises the last CommitConflictError, which says
    how often the work was planned, or the error about a missing or damaged file that was its cause.
    """
    for left in range(CHANGED_TIMES - 1, 0, -1):
        try:
            return work(), CHANGED_TIMES - 1 - left
        except CommitConflictError as e:
            if e.rule == ALREADY_ADDED:
                raise
            _LOG.warning("a change of rows is planned again on the newest snapshot, at most %d more times: %s", left, e)
            longest_ms = _FIRST_PAUSE_MS << (CHANGED_TIMES - 1 - left)
            world.pause.wait_ms(int(longest_ms * world.random.fraction()))
    try:
        return work(), CHANGED_TIMES - 1
    except CommitConflictError as e:
        lost = lost_file(e)
        if lost is not None:
            raise lost from lost.__cause__
        message = (
            f"the change was planned {CHANGED_TIMES} times, and each time another writer committed first: {e.message}"
        )
        raise e.reworded(message) from e
