"""Decides whether a commit is in the table already; checked before the work starts and again before it is published.

A writer is identified by its name, which contains an id. The prefix from `commit.user-prefix` may change; the writer
stays the same.
Source: Paimon 2.0 FileStoreCommitImpl.filterCommitted, CoreOptions.createCommitUser; identifiers of one user only ever
grow, except the one that all batch commits share.
"""

import re
from collections.abc import Iterable

from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot

DIGEST = "bucketline.batch-digest"
"""Snapshot property: the hash of the input of the stream's batch that the snapshot holds."""

MARKER_TAG = "bucketline-writer-"
"""Prefix of the tag that keeps a writer's newest snapshot readable, however soon an expiry removes snapshots."""
MARKER_RETAINED_MS = 30 * 86_400_000
"""How long the tag of a writer that has stopped keeps its snapshot's files."""

_PREFIXED = re.compile(r"(?:.*_)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-.*)?)", re.DOTALL)


def is_marker(state: str) -> bool:
    """Whether a state, named as "tag <name>", is the tag by which a stream marks its newest snapshot."""
    return state.startswith(f"tag {MARKER_TAG}")


def commit_user(prefix: str | None, writer: str) -> str:
    """Returns the commit user of a writer's snapshots."""
    return f"{prefix}_{writer}" if prefix else writer


def writer_of(user: str) -> str:
    """Returns the name of the writer that commits as `user`: the part after the prefix. A name without an id has no
    prefix.
    """
    match = _PREFIXED.fullmatch(user)
    return user if match is None else match[1]


def compactor_user(writer: str) -> str:
    """Returns the name of a writer's compactions outside its batches; to `writer_of` it is another writer.

    A compaction may be published after a later batch. Under the writer's own name it would look like its newest commit.
    """
    return f"compactor-{writer}"


def newest_of_user(snapshots: Iterable[Snapshot], user: str) -> Snapshot | None:
    """Returns the newest snapshot that the user made: all identifiers up to its own are done. `snapshots` come newest
    first.
    """
    return next((s for s in snapshots if writer_of(s.commit_user) == writer_of(user)), None)


def find_replayed(snapshots: Iterable[Snapshot], user: str, identifier: int) -> Snapshot | None:
    """Returns the APPEND snapshot of this identifier that another run with the same commit user has published.

    Two runs of one job can be alive for a moment; the slower one must not add its rows again. Compactions may share an
    identifier, and so may batch commits, so neither counts.
    """
    if identifier == BATCH_COMMIT_IDENTIFIER:
        return None
    for snapshot in snapshots:
        same = snapshot.commit_identifier == identifier and snapshot.commit_kind is not CommitKind.COMPACT
        if same and writer_of(snapshot.commit_user) == writer_of(user):
            return snapshot
    return None


def unmarked(snapshots: Iterable[Snapshot], tags: Iterable[str]) -> dict[str, Snapshot]:
    """Returns the newest snapshot of each stream's newest batch, by the name of the stream's marker, for streams whose
    marker is not among the tags. `snapshots` come oldest first.

    The last snapshot of a stream may be a compaction of an older batch; then the later batch counts as the newest.
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
