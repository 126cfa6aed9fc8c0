"""Folders of databases and tables: made so that a listing shows them, and renamed in one step where storage can."""

from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.hdfs_io import HdfsIO
from bucketline.state.store.storage.local_io import LocalIO

_MARK = ".folder"
"""An empty file that makes an empty folder appear in listings of an object store."""


def make_folder(io: FileIO, directory: str) -> None:
    """Makes a folder that a listing of its parent shows; one that is there is no error."""
    if isinstance(io, LocalIO | HdfsIO):
        io.make_folder(directory)
    else:
        io.overwrite(f"{directory}/{_MARK}", b"")


def rename_folder(io: FileIO, directory: str, target: str) -> None:
    """Gives a folder another name, in one step; the target must not be there.

    Raises UnsupportedTableError where storage would copy file by file: others would see half of it. StorageError.
    """
    if isinstance(io, LocalIO):
        io.make_folder(target.rpartition("/")[0])
        is_moved = io.move(directory, target)
    elif isinstance(io, HdfsIO):
        is_moved = io.move_folder(directory, target)
    else:
        raise UnsupportedTableError(
            f"{directory} cannot be renamed: an object store copies a folder file by file, and readers and writers "
            "would see half of a table. Create a new table and copy the rows",
            path=directory,
        )
    if not is_moved:
        raise StorageError(f"{directory}: no such folder", path=directory, retryable=False, missing=True)
