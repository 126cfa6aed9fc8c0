"""Errors about tables, files and commits: one class per thing the caller does next."""

from bucketline.conf.errors import BucketlineError


class UnsupportedTableError(BucketlineError):
    """The table uses a feature that is not supported. Nothing has been written."""

    code = "UNSUPPORTED_TABLE"


class TableNotFoundError(UnsupportedTableError):
    """There is no table at the path; the caller corrects the path, or creates the table."""

    code = "TABLE_NOT_FOUND"


class DatabaseNotFoundError(UnsupportedTableError):
    """The catalog has no database of this name; the caller uses another name, or creates the database."""

    code = "DATABASE_NOT_FOUND"


class BranchNotFoundError(UnsupportedTableError):
    """The table has no branch of this name; the caller uses another name, or creates the branch."""

    code = "BRANCH_NOT_FOUND"


class UserNotFoundError(UnsupportedTableError):
    """The table has no snapshot of this commit user; the caller uses another."""

    code = "USER_NOT_FOUND"


class SchemaMismatchError(BucketlineError):
    """The input does not fit the table; the caller corrects the input. Nothing has been written."""

    code = "SCHEMA_MISMATCH"


class CommitConflictError(BucketlineError):
    """Another writer changed what this commit depends on; the caller plans again from the newest snapshot."""

    code = "COMMIT_CONFLICT"


class FilesGoneError(CommitConflictError):
    """Files of the commit were removed as orphans before it was published; the caller writes the rows again."""

    code = "FILES_GONE"


class CommitOutcomeUnknownError(BucketlineError):
    """The storage did not say whether the commit happened; the caller deletes nothing, and the next start finds out."""

    code = "COMMIT_OUTCOME_UNKNOWN"


class CommittedNotVisibleError(BucketlineError):
    """The rows are committed, and readers do not see them yet; the caller must not write them again.

    `fields["snapshot_id"]` is the snapshot that holds them.
    """

    code = "COMMITTED_NOT_VISIBLE"


class CompactionFailedError(BucketlineError):
    """A compaction beside the batches of a stream failed: the batch is not written, and no row is lost."""

    code = "COMPACTION_FAILED"


class CorruptFileError(BucketlineError):
    """A file does not hold what its format demands; the caller stops and keeps all files."""

    code = "CORRUPT_FILE"


class MissingSnapshotError(CorruptFileError):
    """A snapshot was committed and its file is gone; the caller restores the file, or rolls the table back."""

    code = "MISSING_SNAPSHOT"


class SnapshotExpiredError(BucketlineError):
    """What a read or a stream of changes still needs has expired; the caller starts again at a newer snapshot.

    `fields["snapshot"]` is the snapshot that is gone.
    """

    code = "SNAPSHOT_EXPIRED"


class IndexStateError(BucketlineError):
    """The local key index cannot be trusted; the caller builds it again from the table."""

    code = "INDEX_STATE"


class StorageError(BucketlineError):
    """The storage failed; `fields["retryable"]` says whether trying again may help."""

    code = "STORAGE"
