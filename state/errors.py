"""Errors about tables, files and commits: one class per thing the caller does next."""

from bucketline.conf.errors import BucketlineError


class UnsupportedTableError(BucketlineError):
    """The table uses something we do not do; refused before anything was written."""

    code = "UNSUPPORTED_TABLE"


class TableNotFoundError(UnsupportedTableError):
    """There is no table at the path; the caller mends the path, or makes the table."""

    code = "TABLE_NOT_FOUND"


class BranchNotFoundError(UnsupportedTableError):
    """The table has no branch of that name; the caller names another, or makes it."""

    code = "BRANCH_NOT_FOUND"


class UserNotFoundError(UnsupportedTableError):
    """The table holds nothing of that commit user; the caller names another."""

    code = "USER_NOT_FOUND"


class SchemaMismatchError(BucketlineError):
    """The input does not fit the table; the caller fixes the input. Nothing has been written."""

    code = "SCHEMA_MISMATCH"


class CommitConflictError(BucketlineError):
    """The table moved on in a way that makes the changes wrong; the caller plans again from the new snapshot."""

    code = "COMMIT_CONFLICT"


class FilesGoneError(CommitConflictError):
    """Files of the commit were removed as orphans before it was published; the caller does the work again."""

    code = "FILES_GONE"


class CommitOutcomeUnknownError(BucketlineError):
    """It could not be learned whether the commit happened; delete nothing, the next start finds out."""

    code = "COMMIT_OUTCOME_UNKNOWN"


class CommittedNotVisibleError(BucketlineError):
    """The rows are in the table, and readers do not see them yet; the caller must not write them again.

    `fields["snapshot_id"]` is the snapshot that holds them.
    """

    code = "COMMITTED_NOT_VISIBLE"


class CorruptFileError(BucketlineError):
    """A file does not hold what its format demands; stop and keep the evidence."""

    code = "CORRUPT_FILE"


class MissingSnapshotError(CorruptFileError):
    """A snapshot was committed and its file is gone: neither read nor write, restore the file or roll back."""

    code = "MISSING_SNAPSHOT"


class IndexStateError(BucketlineError):
    """The local index cannot be trusted; the caller rebuilds it from the table."""

    code = "INDEX_STATE"


class StorageError(BucketlineError):
    """The storage failed; `fields["retryable"]` says whether trying again may help."""

    code = "STORAGE"
