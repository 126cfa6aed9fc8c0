"""The kinds of change that a commit makes to a table: append, replace, or compact."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bucketline.state.commit.conflict import CommonKeyTest
from bucketline.state.commit.message import CommitMessage

PartitionTest = Callable[[bytes], bool]


class AppendCheck(Enum):
    """The conflict rules that are checked before new files are appended. Each value includes the rules of the values
    before it.
    """

    BUCKET_COUNT = "the bucket count of their partitions: enough for files that were just written"
    ONE_WRITER = "the same, and that nobody else has written rows since the work was planned"
    ALL_RULES = "every rule: for files that an earlier run may have committed already"
    ROWS_READ = "every rule, and that nobody has written the same keys since the rows were read that they replace"


@dataclass(frozen=True, slots=True)
class Append:
    """A commit of the new files in commit messages. Compactions in these messages follow in a second snapshot.

    - `check` says what must not have happened since the work was planned.
    - `common_keys` is for the check ROWS_READ. This function tells whether two files have a key in common. If it is
      None, the key ranges of the files are compared.
    - `ignore_empty` matters if the messages have no files. True: nothing is published. False: a snapshot without files
      is published, which shows that the commit's identifier is done. None: the table's options decide, and empty batch
      commits (identifier 2^63-1) publish nothing.
    """

    messages: tuple[CommitMessage, ...]
    check: AppendCheck = AppendCheck.BUCKET_COUNT
    common_keys: CommonKeyTest | None = None
    ignore_empty: bool | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """A commit of new files that replace all live files of some partitions. `target` is a function that returns True
    for these partitions; at each attempt to commit, the function is applied to the live files of the newest snapshot.

    Rows that other writers have added to these partitions meanwhile are replaced too. If `moves_rows` is true, the new
    files have the same rows in other buckets. Two things differ then: files in the postpone bucket are kept, and a
    change of one of the partitions since the work was planned is a conflict.
    """

    messages: tuple[CommitMessage, ...]
    target: PartitionTest
    moves_rows: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """A commit that has only compactions. Its commit identifier may be the identifier of an earlier commit of the same
    writer: the commit is published all the same.
    """

    messages: tuple[CommitMessage, ...]


Change = Append | Replace | Compact
