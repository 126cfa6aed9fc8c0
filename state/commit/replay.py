"""Decides whether a commit is already in the table. The caller must check this before the work starts, and again before
the snapshot is published.

A writer is identified by its name, which contains an id. If the prefix from the option `commit.user-prefix` changes,
the writer is still the same. The commit identifiers of a writer only grow, except for the identifier that all batch
commits have in common.
Source: Paimon 2.0 FileStoreCommitImpl.filterCommitted, CoreOptions.createCommitUser.
"""

import re
from collections.abc import Iterable

from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot

DIGEST = "bucketline.batch-digest"
"""The name of a snapshot property: the hash of the input of the streaming batch from which the snapshot was made."""

MARKER_TAG = "bucketline-writer-"
"""The prefix of the tag with which a streaming writer protects its newest snapshot from expiry."""
MARKER_RETAINED_MS = 30 * 86_400_000
"""How long the tag of a writer that has stopped protects its snapshot."""

_PREFIXED = re.compile(r"(?:.*_)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-.*)?)", re.DOTALL)


def is_marker(state: str) -> bool:
    """Returns True if `state`, for example "tag <name>", describes the tag with which a streaming writer protects its
    newest snapshot.
    """
    return state.startswith(f"tag {MARKER_TAG}")


def commit_user(prefix: str | None, writer: str) -> str:
    """Returns the commit user of a writer's snapshots, made of the prefix from `commit.user-prefix` and the writer's
    name.
    """
    return f"{prefix}_{writer}" if prefix else writer


def writer_of(user: str) -> str:
    """Returns the name of the writer that commits as `user`: the user without the prefix before its id. For example,
    the writer of `etl_<uuid>-1` is `<uuid>-1`. A user that contains no uuid has no prefix, and is the writer's name
    itself.
    """
    match = _PREFIXED.fullmatch(user)
    return user if match is None else match[1]


def compactor_user(writer: str) -> str:
    """Returns the name under which a writer commits the compactions that it runs outside its batches. `writer_of`
    treats this name as the name of a separate writer.

    A compaction of this kind may be published after a later batch. If the compaction had the writer's own name, the
    compaction would look like the writer's newest commit.
    """
    return f"compactor-{writer}"


def newest_of_user(snapshots: Iterable[Snapshot], user: str) -> Snapshot | None:
    """Returns the newest snapshot of a commit user, or None. All commits of the user up to the identifier of this
    snapshot are done. `snapshots` must come newest first.
    """
    return next((s for s in snapshots if writer_of(s.commit_user) == writer_of(user)), None)


def find_replayed(snapshots: Iterable[Snapshot], user: str, identifier: int) -> Snapshot | None:
    """Returns the snapshot with new rows that another process has published with the same commit user and identifier,
    or None.

    Two processes of one job can exist at the same time for a moment, and the slower one must not add the same rows
    again. Compactions and batch commits are ignored, because several of them may have the same identifier.
    """
    if identifier == BATCH_COMMIT_IDENTIFIER:
        return None
    for snapshot in snapshots:
        same = snapshot.commit_identifier == identifier and snapshot.commit_kind is not CommitKind.COMPACT
        if same and writer_of(snapshot.commit_user) == writer_of(user):
            return snapshot
    return None


def unmarked(snapshots: Iterable[Snapshot], tags: Iterable[str]) -> dict[str, Snapshot]:
    """Returns the snapshots that streaming writers should protect by a tag, but for which the tag is missing in `tags`.
    The keys of the result are the names of the missing tags. `snapshots` must come oldest first.

    A writer should protect the newest snapshot of its newest batch. The snapshot to protect need not be the last
    snapshot of the writer, which may be a compaction of an older batch.
    """
    marked = {writer_of(name.removeprefix(MARKER_TAG)) for name in tags if name.startswith(MARKER_TAG)}
    newest: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        writer = writer_of(snapshot.commit_user)
        if DIGEST not in snapshot.properties or writer in marked:
            continue
        before = newest.get(MARKER_TAG + writer)
        has_rows = snapshot.commit_kind is not CommitKind.COMPACT
        if before is None or has_rows or snapshot.commit_identifier >= before.commit_identifier:
            newest[MARKER_TAG + writer] = snapshot
    return newest
