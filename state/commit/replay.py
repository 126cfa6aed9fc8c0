"""Is a commit in the table already? Asked before work starts, and again before it is published.

Source: Paimon 2.0 FileStoreCommitImpl.filterCommitted; identifiers of one user only ever grow, except the one that all
batch commits share.
"""

from collections.abc import Iterable

from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot


def find_commit(snapshots: Iterable[Snapshot], user: str, identifier: int) -> Snapshot | None:
    """The newest snapshot that (user, identifier) made, None when there is none.

    `snapshots` come newest first and are read only as far as needed: an older identifier of the user ends the walk.
    """
    for snapshot in snapshots:
        if snapshot.commit_user != user:
            continue
        if snapshot.commit_identifier == identifier:
            return snapshot
        if snapshot.commit_identifier < identifier and identifier != BATCH_COMMIT_IDENTIFIER:
            return None
    return None


def newest_of_user(snapshots: Iterable[Snapshot], user: str) -> Snapshot | None:
    """The newest snapshot that the user made: all identifiers up to its own are done. `snapshots` come newest first."""
    return next((s for s in snapshots if s.commit_user == user), None)


def find_twin(snapshots: Iterable[Snapshot], user: str, identifier: int) -> Snapshot | None:
    """A snapshot in which somebody else under our name already committed the append half of this identifier.

    Two runs of one job can be alive for a moment; the slower one must not add its rows again. Compactions may share an
    identifier, and so may batch commits, so neither counts.
    """
    if identifier == BATCH_COMMIT_IDENTIFIER:
        return None
    for snapshot in snapshots:
        same = snapshot.commit_user == user and snapshot.commit_identifier == identifier
        if same and snapshot.commit_kind is not CommitKind.COMPACT:
            return snapshot
    return None
