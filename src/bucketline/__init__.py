"""bucketline: streams into Apache Paimon tables, and keeps them compacted.

Public names resolve lazily, so that importing the core imports neither pyspark nor each other. Type checkers read the
imports below instead.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bucketline.conf.errors import BucketlineError, FilesTooYoungError, OptionError
    from bucketline.state.commit.schema_change import (
        AddColumn,
        ChangeComment,
        ChangeDefault,
        ChangeNullability,
        ChangeType,
        DropColumn,
        MoveColumn,
        RenameColumn,
        SchemaChange,
        SetOption,
        SetTableComment,
        UnsetOption,
    )
    from bucketline.state.errors import (
        BranchNotFoundError,
        CommitConflictError,
        CommitOutcomeUnknownError,
        CommittedNotVisibleError,
        CompactionFailedError,
        CorruptFileError,
        DatabaseNotFoundError,
        FilesGoneError,
        IndexStateError,
        MissingSnapshotError,
        RemovalUnderWayError,
        SchemaMismatchError,
        SnapshotExpiredError,
        StorageError,
        TableNotFoundError,
        UnsupportedTableError,
        UserNotFoundError,
        VersionNotFoundError,
    )
    from bucketline.state.sql.compute.expression import SqlExpression, expr
    from bucketline.state.store.engine.engine import Engine
    from bucketline.state.store.engine.local_engine import LocalEngine
    from bucketline.state.store.table.table import Table, create_table, open_table
    from bucketline.state.store.table.write_result import WriteResult
    from bucketline.state.store.warehouse.catalog import Catalog, catalog
    from bucketline.streaming.batch.key_order import KeyOrderError
    from bucketline.streaming.batch.procedures import compact, rescale, spark_engine
    from bucketline.streaming.batch.recover import CheckpointMismatchError
    from bucketline.streaming.batch.sink import TableSink
    from bucketline.streaming.decode.rejects import RejectedRecordsError, UnexpectedRowsError
    from bucketline.streaming.reader.source import register
    from bucketline.streaming.sql.decode_frame import decode
    from bucketline.streaming.sql.run_sql import sql
    from bucketline.streaming.sql.table_frame import read

__version__ = "0.1.0"

_MODULES = {
    "bucketline.conf.errors": ("BucketlineError", "FilesTooYoungError", "OptionError"),
    "bucketline.state.commit.schema_change": (
        "AddColumn",
        "ChangeComment",
        "ChangeDefault",
        "ChangeNullability",
        "ChangeType",
        "DropColumn",
        "MoveColumn",
        "RenameColumn",
        "SchemaChange",
        "SetOption",
        "SetTableComment",
        "UnsetOption",
    ),
    "bucketline.state.errors": (
        "BranchNotFoundError",
        "CommitConflictError",
        "CommitOutcomeUnknownError",
        "CommittedNotVisibleError",
        "CompactionFailedError",
        "CorruptFileError",
        "DatabaseNotFoundError",
        "FilesGoneError",
        "IndexStateError",
        "MissingSnapshotError",
        "RemovalUnderWayError",
        "SchemaMismatchError",
        "SnapshotExpiredError",
        "StorageError",
        "TableNotFoundError",
        "UnsupportedTableError",
        "UserNotFoundError",
        "VersionNotFoundError",
        "VersionNotFoundError",
    ),
    "bucketline.state.store.table.table": ("Table", "create_table", "open_table"),
    "bucketline.state.store.table.write_result": ("WriteResult",),
    "bucketline.state.store.warehouse.catalog": ("Catalog", "catalog"),
    "bucketline.state.sql.compute.expression": ("SqlExpression", "expr"),
    "bucketline.streaming.batch.key_order": ("KeyOrderError",),
    "bucketline.streaming.batch.procedures": ("compact", "rescale", "spark_engine"),
    "bucketline.streaming.batch.recover": ("CheckpointMismatchError",),
    "bucketline.streaming.reader.source": ("register",),
    "bucketline.streaming.decode.rejects": ("RejectedRecordsError", "UnexpectedRowsError"),
    "bucketline.streaming.batch.sink": ("TableSink",),
    "bucketline.streaming.sql.decode_frame": ("decode",),
    "bucketline.streaming.sql.run_sql": ("sql",),
    "bucketline.streaming.sql.table_frame": ("read",),
    "bucketline.state.store.engine.engine": ("Engine",),
    "bucketline.state.store.engine.local_engine": ("LocalEngine",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AddColumn",
    "BranchNotFoundError",
    "BucketlineError",
    "Catalog",
    "ChangeComment",
    "ChangeDefault",
    "ChangeNullability",
    "ChangeType",
    "CheckpointMismatchError",
    "CommitConflictError",
    "CommitOutcomeUnknownError",
    "CommittedNotVisibleError",
    "CompactionFailedError",
    "CorruptFileError",
    "DatabaseNotFoundError",
    "DropColumn",
    "Engine",
    "FilesGoneError",
    "FilesTooYoungError",
    "IndexStateError",
    "KeyOrderError",
    "LocalEngine",
    "MissingSnapshotError",
    "MoveColumn",
    "OptionError",
    "RejectedRecordsError",
    "RemovalUnderWayError",
    "RenameColumn",
    "SchemaChange",
    "SchemaMismatchError",
    "SetOption",
    "SetTableComment",
    "SnapshotExpiredError",
    "SqlExpression",
    "StorageError",
    "Table",
    "TableNotFoundError",
    "TableSink",
    "UnexpectedRowsError",
    "UnsetOption",
    "UnsupportedTableError",
    "UserNotFoundError",
    "VersionNotFoundError",
    "WriteResult",
    "__version__",
    "catalog",
    "compact",
    "create_table",
    "decode",
    "expr",
    "open_table",
    "read",
    "register",
    "rescale",
    "spark_engine",
    "sql",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bucketline' has no attribute {name!r}")
    import_module("bucketline.state.installed").check_installed()
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
