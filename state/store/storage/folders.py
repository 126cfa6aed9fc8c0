"""Folders of databases and tables: made so that a listing shows them, and renamed in one step where storage can."""

from typing import Protocol, runtime_checkable

from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.store.storage.file_io import FileIO

_MARK = ".folder"
"""An empty file that makes an empty folder appear in listings of an object store."""


@runtime_checkable
class HasFolders(Protocol):
    """Storage that has folders of its own, and renames in one step. Object stores do not."""

    def make_folder(self, directory: str) -> None:
        """Creates a folder and its parents; one that is there is no error."""
        ...

    def move(self, path: str, target: str) -> bool:
        """Gives a file another name, in one step; False when there is none. A file of that name is replaced."""
        ...

    def move_folder(self, directory: str, target: str) -> bool:
        """Gives a folder another name, in one step; False when there is none. The parents of the target are made.

        Raises StorageError for the name of a folder that is not empty.
        """
        ...


def make_folder(io: FileIO, directory: str) -> None:
    """Makes a folder that a listing of its parent shows; one that is there is no error."""
    if isinstance(io, HasFolders):
        io.make_folder(directory)
    else:
        io.overwrite(f"{directory}/{_MARK}", b"")


def rename_folder(io: FileIO, directory: str, target: str) -> None:
    """Gives a folder another name, in one step; the target must not be there.

    Raises UnsupportedTableError where storage would copy file by file: others would see half of it. StorageError.
    """
    if not isinstance(io, HasFolders):
        raise UnsupportedTableError(
            f"{directory} cannot be renamed: an object store copies a folder file by file, and readers and writers "
            "would see half of a table. Create a new table and copy the rows",
            path=directory,
        )
    if not io.move_folder(directory, target):
        raise StorageError(f"{directory}: no such folder", path=directory, retryable=False, missing=True)
