"""Errors about tables, files and commits. There is one class for each way in which the caller should react."""

from enum import Enum

from bucketline.conf.errors import BucketlineError, OptionError, given


class UnsupportedTableError(BucketlineError):
    """The table uses a feature that is not supported. Nothing has been written. If a column is the reason, `column` is
    its name.
    """

    code = "UNSUPPORTED_TABLE"

    def __init__(self, message: str, *, path: str | None = None, column: str | None = None, **fields: object) -> None:
        super().__init__(message, path=path, **given(column=column), **fields)
        self.column = column


class TableNotFoundError(UnsupportedTableError):
    """There is no table at the path; the caller corrects the path, or creates the table."""

    code = "TABLE_NOT_FOUND"


class DatabaseNotFoundError(UnsupportedTableError):
    """The catalog has no database of this name; the caller uses another name, or creates the database."""

    code = "DATABASE_NOT_FOUND"


class BranchNotFoundError(UnsupportedTableError):
    """The table has no branch of this name; the caller uses another name, or creates the branch."""

    code = "BRANCH_NOT_FOUND"


class VersionNotFoundError(OptionError):
    """The table has no snapshot, tag or branch of this name; the caller uses a name that the message lists."""

    code = "VERSION_NOT_FOUND"


class UserNotFoundError(UnsupportedTableError):
    """The table has no snapshot of the commit user that the caller has named. The caller can name another commit
    user.
    """

    code = "USER_NOT_FOUND"


class SchemaMismatchError(BucketlineError):
    """The input does not fit the table; the caller corrects the input. Nothing has been written."""

    code = "SCHEMA_MISMATCH"


class CommitConflictError(BucketlineError):
    """Another writer changed what this commit depends on; the caller plans again from the newest snapshot.

    `rule` is the name of the rule that the commit breaks.
    """

    code = "COMMIT_CONFLICT"

    def __init__(self, message: str, *, path: str | None = None, rule: str | None = None, **fields: object) -> None:
        super().__init__(message, path=path, **given(rule=rule), **fields)
        self.rule = rule


class FilesGoneError(CommitConflictError):
    """Files of the commit were removed as orphans before the commit was published; the caller writes the rows again."""

    code = "FILES_GONE"


class CommitOutcomeUnknownError(BucketlineError):
    """The storage did not say whether the commit happened; the caller deletes nothing. The next start of the writer
    finds out whether the commit happened.
    """

    code = "COMMIT_OUTCOME_UNKNOWN"


class CommittedNotVisibleError(BucketlineError):
    """The rows are committed, but readers do not see them yet; the caller must not write them again.

    `snapshot_id` is the id of the snapshot with these rows.
    """

    code = "COMMITTED_NOT_VISIBLE"

    def __init__(
        self, message: str, *, path: str | None = None, snapshot_id: int | None = None, **fields: object
    ) -> None:
        super().__init__(message, path=path, **given(snapshot_id=snapshot_id), **fields)
        self.snapshot_id = snapshot_id


class CompactionFailedError(BucketlineError):
    """A compaction that ran at the same time as the batches of a stream has failed. The current batch is not written,
    and no row is lost.
    """

    code = "COMPACTION_FAILED"


class CorruptFileError(BucketlineError):
    """The content of a file does not follow its format; the caller stops and keeps all files.

    `offset` is the position of the problem in the file. `version` is the version of the format, if this release does
    not know it.
    """

    code = "CORRUPT_FILE"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        version: int | None = None,
        **fields: object,
    ) -> None:
        super().__init__(message, path=path, **given(offset=offset, version=version), **fields)
        self.offset, self.version = offset, version


class MissingSnapshotError(CorruptFileError):
    """A snapshot was committed, but its file is missing; the caller restores the file, or rolls the table back."""

    code = "MISSING_SNAPSHOT"


class SnapshotExpiredError(BucketlineError):
    """A snapshot that a read or a stream of changes still needs has expired; the caller starts again at a newer
    snapshot.

    `snapshot` is the id of the expired snapshot.
    """

    code = "SNAPSHOT_EXPIRED"

    def __init__(self, message: str, *, path: str | None = None, snapshot: int | None = None, **fields: object) -> None:
        super().__init__(message, path=path, **given(snapshot=snapshot), **fields)
        self.snapshot = snapshot


class IndexFault(Enum):
    """The reasons why the local key index cannot be used."""

    MISSING = "missing"
    LOCKED = "locked"
    DAMAGED = "damaged"
    FOREIGN = "foreign"
    AHEAD = "ahead"


class RemovalUnderWayError(BucketlineError):
    """Another process is removing the snapshot that this operation needs, or is rolling back or fast-forwarding the
    table. Nothing has been changed. The caller tries again. If the other process has died, the message says how to go
    on; an expiry of snapshots finishes a removal.
    """

    code = "REMOVAL_UNDER_WAY"


class IndexStateError(BucketlineError):
    """The local key index cannot be used; `fault` is the reason. The caller builds the index again from the table."""

    code = "INDEX_STATE"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        fault: IndexFault = IndexFault.DAMAGED,
        **fields: object,
    ) -> None:
        super().__init__(message, path=path, fault=fault, **fields)
        self.fault = fault


class StorageError(BucketlineError):
    """The storage failed.

    `retryable` is true if trying again may help, and `missing` is true if a file does not exist. `published` is False
    if the file that should be published was certainly not published, and None if this is not known.
    """

    code = "STORAGE"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        retryable: bool = False,
        missing: bool = False,
        published: bool | None = None,
        **fields: object,
    ) -> None:
        told = given(published=published)
        super().__init__(message, path=path, retryable=retryable, missing=missing, **told, **fields)
        self.retryable, self.missing, self.published = retryable, missing, published
