"""Creates folders for databases and tables in such a way that listings show them, and renames folders in one step if
the storage can.
"""

from typing import Protocol, runtime_checkable

from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.store.storage.file_io import FileIO

_MARK = ".folder"
"""The name of an empty file that makes an empty folder appear in listings of an object store."""


@runtime_checkable
class HasFolders(Protocol):
    """Storage that has real folders, and renames in one step. Object stores do not."""

    def make_folder(self, directory: str) -> None:
        """Creates a folder and its parents. A folder that exists is no error."""
        ...

    def move(self, path: str, target: str) -> bool:
        """Renames a file in one step; returns False if the file does not exist. A file that already has the new name is
        replaced.
        """
        ...

    def move_folder(self, directory: str, target: str) -> bool:
        """Renames a folder in one step; returns False if there is no such folder. The parents of the new name are
        created.

        Raises StorageError if the new name is the name of a folder that is not empty.
        """
        ...


def make_folder(io: FileIO, directory: str) -> None:
    """Creates a folder, so that a listing of its parent shows the folder. On storage without folders, writes an empty
    file at a path in the folder. A folder that exists is no error.
    """
    if isinstance(io, HasFolders):
        io.make_folder(directory)
    else:
        io.overwrite(f"{directory}/{_MARK}", b"")


def rename_folder(io: FileIO, directory: str, target: str) -> None:
    """Renames a folder in one step. The new name must not exist.

    Raises UnsupportedTableError for storage that would copy file by file, because other processes would see a part of
    the folder; StorageError if renaming fails.
    """
    if not isinstance(io, HasFolders):
        raise UnsupportedTableError(
            f"{directory} cannot be renamed: an object store copies a folder file by file, and readers and writers "
            "would see only a part of the table meanwhile. Create a new table and copy the rows",
            path=directory,
        )
    if not io.move_folder(directory, target):
        raise StorageError(f"{directory}: no such folder", path=directory, retryable=False, missing=True)
