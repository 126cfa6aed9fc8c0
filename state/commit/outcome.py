"""The outcome of a commit, as values: the caller decides what to do; none is an error by itself.

Source: Paimon 2.0 FileStoreCommitImpl, which raises exceptions in the same cases.
"""

from dataclasses import dataclass, field

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.errors import CommitOutcomeUnknownError
from bucketline.state.format.entries import Snapshot


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is not known whether a snapshot was published; all files of the commit are kept."""

    snapshot_id: int
    uuid: str
    user: str
    identifier: int
    message: str

    def error(self) -> CommitOutcomeUnknownError:
        """Returns the exception for callers that cannot find out."""
        return CommitOutcomeUnknownError(
            self.message,
            snapshot_id=self.snapshot_id,
            uuid=self.uuid,
            user=self.user,
            identifier=self.identifier,
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """The new snapshots, oldest first; none when there was nothing to do. `dropped` says why the COMPACT snapshot is
    missing although the APPEND one was published; the compaction is picked again later.

    With `replayed`, another run with the same commit user had committed this identifier already. Then the snapshot is
    the snapshot of the other run, and does not contain the files of these messages. `live` are the table's live files
    after the commit; None where they were not known before.
    """

    snapshots: tuple[Snapshot, ...] = ()
    dropped: Conflict | Unknown | BucketlineError | None = None
    replayed: bool = False
    live: LiveFiles | None = field(default=None, compare=False, repr=False)

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        return tuple(s.id for s in self.snapshots)


CommitResult = Committed | Conflict | Unknown


def outcome_unknown(snapshot: Snapshot, reason: str) -> Unknown:
    """Returns the Unknown for a snapshot whose publication got no clear answer."""
    return Unknown(
        snapshot_id=snapshot.id,
        uuid=snapshot.uuid or "",
        user=snapshot.commit_user,
        identifier=snapshot.commit_identifier,
        message=f"it is not known whether snapshot {snapshot.id} was published ({reason}); nothing was deleted, and "
        f"the next start finds out by user {snapshot.commit_user} and identifier {snapshot.commit_identifier}",
    )
