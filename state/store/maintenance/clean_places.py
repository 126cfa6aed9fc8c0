"""Lists the folders of a table in which the removal of orphan files looks for files. Also says which paths in these
folders can only be paths of the table's files.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import (
    BRANCH_DIR,
    CHANGELOG_DIR,
    COMPACTION_DIR,
    CONSUMER_DIR,
    EARLIEST,
    INDEX_DIR,
    LATEST,
    MANIFEST_DIR,
    SCHEMA_DIR,
    SNAPSHOT_DIR,
    STATISTICS_DIR,
    TAG_DIR,
)
from bucketline.state.store.catalog.external_folders import own_folders
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.plans.plan_files import plan_id_in
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.storage.hidden_files import is_aside
from bucketline.state.store.storage.objects.unended_uploads import unended_uploads

_NAMED = frozenset({MANIFEST_DIR, INDEX_DIR, STATISTICS_DIR})
_METADATA = frozenset({SCHEMA_DIR, SNAPSHOT_DIR, TAG_DIR, CONSUMER_DIR, CHANGELOG_DIR})
_HASH = re.compile("[01]{4}/[01]{4}/[01]{4}/[01]{8}")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")


@dataclass(frozen=True, slots=True)
class OldFiles:
    """The files of a folder that may be orphan files. `files` and `uploads` (uploads in parts that were not completed)
    are old enough to be removed. `aside` are files of any age that an earlier removal has hidden.
    """

    io: FileIO
    files: Sequence[FileInfo]
    aside: Sequence[FileInfo]
    uploads: Sequence[FileInfo]


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A folder with files of the table: the table's own folder, or an external folder that only this table uses."""

    io: FileIO
    root: str
    bucket_depth: int
    is_outside: bool = False

    def may_hold(self, file: FileInfo) -> bool:
        """Returns True if the file may be an orphan file, judging by its path in the folder. The removal of orphan
        files must not touch any other file.
        """
        belongs = _is_outside_candidate if self.is_outside else _is_candidate
        return belongs(file.path.removeprefix(f"{self.root}/").split("/"), self.bucket_depth)

    def list_old(self, before_ms: int) -> OldFiles:
        """Returns the files and uploads of the folder that may be orphan files: their path allows it, and they are
        older than `before_ms`. Files that an earlier removal has hidden are returned whatever their age.
        """
        found = [file for file in self.io.list_files(self.root) if self.may_hold(file)]
        begun = [upload for upload in unended_uploads(self.io, self.root) if self.may_hold(upload)]
        return OldFiles(
            self.io,
            files=[f for f in found if 0 <= f.modified_ms < before_ms],
            aside=[f for f in found if is_aside(f)],
            uploads=[u for u in begun if u.modified_ms < before_ms],
        )


def table_folders(table: TableHandle) -> list[TableFolder]:
    """Returns all folders with files of a table: first the table's own folder, then the external folders that only this
    table uses.
    """
    schema = table.table_schema
    depth = _bucket_depth(schema)
    outside = [file_io_for(folder, schema.storage) for folder in own_folders(table.io, table.path, schema)]
    return [TableFolder(table.io, table.path, depth), *(TableFolder(io, root, depth, True) for io, root in outside)]


def is_temporary(file: FileInfo) -> bool:
    """Returns True if no snapshot can name the file: it is an unknown file among metadata files, or a temporary file of
    compaction plans.
    """
    folder, name = file.path.rsplit("/", 2)[-2:]
    return folder in _METADATA or (folder == COMPACTION_DIR and _TEMPORARY.fullmatch(name) is not None)


def is_of_plan(file: FileInfo) -> bool:
    """Returns True if a file belongs to an item of a compaction plan, judging by its folder and name."""
    folder, name = file.path.rsplit("/", 2)[-2:]
    return folder == COMPACTION_DIR and plan_id_in(name) is not None


def _is_candidate(parts: list[str], bucket_depth: int) -> bool:
    if parts[0] == BRANCH_DIR:
        return len(parts) == 4 and (_is_stray(parts[2], parts[3]) or _is_of_plans(parts[2:]))
    if parts[0] in _METADATA:
        return len(parts) == 2 and _is_stray(parts[0], parts[1])
    if parts[0] in _NAMED and len(parts) == 2:
        return True
    if parts[0] == COMPACTION_DIR:
        return _is_of_plans(parts)
    # A folder that is not a bucket does not belong to the table, whatever is in it.
    folders = parts[:-1]
    return len(folders) == bucket_depth and folders[-1].startswith("bucket-") if folders else False


def _is_of_plans(parts: list[str]) -> bool:
    """Returns True if a file in the folder of compaction plans is a temporary file, or belongs to an item of a plan."""
    folder, name = parts[0], parts[-1]
    return folder == COMPACTION_DIR and len(parts) == 2 and bool(_TEMPORARY.fullmatch(name) or plan_id_in(name))


def _is_outside_candidate(parts: list[str], bucket_depth: int) -> bool:
    """Returns True if the removal may look at a file in an external folder: the file is in a bucket, or in the hash
    folders below a bucket.
    """
    bucket, below = parts[:-1][:bucket_depth], parts[:-1][bucket_depth:]
    is_bucket = len(bucket) == bucket_depth and bucket[-1].startswith("bucket-")
    return is_bucket and (not below or _HASH.fullmatch("/".join(below)) is not None)


def _is_stray(folder: str, name: str) -> bool:
    """Returns True if a file in a metadata folder is not metadata: a temporary file, or an unknown file among the
    snapshots.
    """
    if _TEMPORARY.fullmatch(name):
        return True
    known = name in (LATEST, EARLIEST) or name.startswith(("snapshot-", "changelog-"))
    return folder in (SNAPSHOT_DIR, CHANGELOG_DIR) and not known


def _bucket_depth(schema: TableSchema) -> int:
    """Returns the number of folders between the table's folder and a data file."""
    directory = schema.settings.paths.data_directory
    return len(directory.split("/")) * bool(directory) + len(schema.partition_keys) + 1
