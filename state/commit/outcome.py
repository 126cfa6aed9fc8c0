"""The possible outcomes of a commit. Outcomes are values and not exceptions, so that the caller decides what to do.

Source: Paimon 2.0 FileStoreCommitImpl, which throws exceptions in the same cases.
"""

from dataclasses import dataclass, field

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.conflict import Conflict
from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.errors import CommitOutcomeUnknownError
from bucketline.state.format.entries import Snapshot


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome if it is not known whether the snapshot was published. All files of the commit are kept."""

    snapshot_id: int
    uuid: str
    user: str
    identifier: int
    message: str

    def error(self) -> CommitOutcomeUnknownError:
        """Returns the exception for callers that cannot find out whether the snapshot was published."""
        return CommitOutcomeUnknownError(
            self.message,
            snapshot_id=self.snapshot_id,
            uuid=self.uuid,
            user=self.user,
            identifier=self.identifier,
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a successful commit.

    - `snapshots` are the new snapshots, oldest first; empty if there was nothing to do.
    - `dropped` is the reason why the compactions were not committed although the new files were. A later compaction
      will select the inputs of these compactions again. `dropped` is None if nothing was dropped.
    - If `replayed` is true, another process with the same commit user had already committed this identifier. Then
      `snapshots` has the snapshot of the other process, which does not contain the files of this commit.
    - `live` are the table's live files after the commit; None if they were not known before the commit.
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
    """Returns the outcome for the case that the storage did not say clearly whether `snapshot` was published."""
    return Unknown(
        snapshot_id=snapshot.id,
        uuid=snapshot.uuid or "",
        user=snapshot.commit_user,
        identifier=snapshot.commit_identifier,
        message=f"it is not known whether snapshot {snapshot.id} was published ({reason}); nothing was deleted, and "
        f"the next start finds out by user {snapshot.commit_user} and identifier {snapshot.commit_identifier}",
    )
