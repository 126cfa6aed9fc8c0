"""The outcome of an attempt to publish a snapshot."""

from dataclasses import dataclass
from enum import Enum

from bucketline.state.errors import StorageError


class PublishOutcome(Enum):
    """Whether a snapshot that was to be published is in the table."""

    WON = "it is in the table"
    LOST = "it is not in the table, and never will be"
    UNKNOWN = "it may be in the table, now or a little later"


@dataclass(frozen=True, slots=True)
class Publication:
    """The outcome of an attempt to publish a snapshot.

    - `outcome` says whether the snapshot is in the table.
    - `error` is the last error of the storage, if this error has decided the outcome.
    - `gone` is a file of the snapshot that no longer exists, if this is the reason why the snapshot is not in the
      table.
    """

    outcome: PublishOutcome
    error: StorageError | None = None
    gone: str | None = None
