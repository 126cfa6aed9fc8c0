"""The kinds of change that a commit makes to a table: append, replace, or compact."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bucketline.state.commit.conflict import CommonKeyTest
from bucketline.state.commit.message import CommitMessage

PartitionTest = Callable[[bytes], bool]


class AppendCheck(Enum):
    """Which rules are checked before new files are appended."""

    BUCKET_COUNT = "the bucket count of their partitions: enough for files that were just written"
    ONE_WRITER = "the same, and that nobody else has written rows since the work was planned"
    ALL_RULES = "every rule: for files that an earlier run may have committed already"
    ROWS_READ = "every rule, and that nobody has written the same keys since the rows were read that they replace"


@dataclass(frozen=True, slots=True)
class Append:
    """New files, and the compactions that follow them in a snapshot of their own.

    `check` says what must not have happened since the work was planned. `common_keys` says for ROWS_READ whether two
    files hold a key in common; without it their ranges of keys decide. Without files there is a snapshot all the same,
    to show that the identifier is done, unless `ignore_empty`. If `ignore_empty` is None, the table's options decide,
    and empty batch commits (identifier 2^63-1) are ignored.
    """

    messages: tuple[CommitMessage, ...]
    check: AppendCheck = AppendCheck.BUCKET_COUNT
    common_keys: CommonKeyTest | None = None
    ignore_empty: bool | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """New files in the place of all live files of the partitions that pass `target`; these files are looked for again
    at each try.

    Rows that other writers have written there meanwhile are replaced as well. With `moves_rows` the new files hold the
    same rows in other buckets: then a change of one of the partitions since the work was planned is a conflict, and
    postponed rows stay.
    """

    messages: tuple[CommitMessage, ...]
    target: PartitionTest
    moves_rows: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """A commit that has only compactions, under an identifier that was used before."""

    messages: tuple[CommitMessage, ...]


Change = Append | Replace | Compact
