"""The errors for a tag, a branch or a snapshot that a table does not have. The message lists what the table has."""

from collections.abc import Iterable, Sequence

from bucketline.conf.wording import shortened
from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.errors import VersionNotFoundError


def no_tag(name: str, known: Iterable[str]) -> VersionNotFoundError:
    """Returns the error for a tag that does not exist. The error lists the tags in `known`, except the tags with which
    streaming jobs protect their snapshots.
    """
    named = [tag for tag in known if not tag.startswith(MARKER_TAG)]
    return VersionNotFoundError(f"Tag '{name}' doesn't exist; {_there_are(named)}", key="tag", value=name)


def no_branch(name: str, known: Sequence[str]) -> VersionNotFoundError:
    """Returns the error for a branch that does not exist. The error lists the branches in `known`."""
    return VersionNotFoundError(f"Branch name '{name}' doesn't exist; {_there_are(known)}", key="branch", value=name)


def no_snapshot(root: str, snapshot_id: int | None, ids: Sequence[int]) -> VersionNotFoundError:
    """Returns the error for a snapshot that does not exist. `snapshot_id` is None if the newest snapshot was wanted.
    The error names the first and the last of `ids`.
    """
    if not ids:
        wanted = "no snapshot"
    else:
        wanted = f"no snapshot {snapshot_id}; there are snapshots {ids[0]} to {ids[-1]}"
    return VersionNotFoundError(f"{root} has {wanted}", key="snapshot", value=snapshot_id)


def _there_are(names: Sequence[str]) -> str:
    """Returns the end of an error message that lists the existing names."""
    return f"there are: {shortened(', '.join(names))}" if names else "there are none"
