"""Creates folders of databases and tables that a listing shows, and renames them in one step if the storage can."""

from typing import Protocol, runtime_checkable

from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.store.storage.file_io import FileIO

_MARK = ".folder"
"""An empty file that makes an empty folder appear in listings of an object store."""


@runtime_checkable
class HasFolders(Protocol):
    """Storage that has folders of its own, and renames in one step. Object stores do not."""

    def make_folder(self, directory: str) -> None:
        """Creates a folder and its parents; no error if it exists."""
        ...

    def move(self, path: str, target: str) -> bool:
        """Gives a file another name in one step; returns False if it does not exist. A file with the new name is
        replaced.
        """
        ...

    def move_folder(self, directory: str, target: str) -> bool:
        """Gives a folder another name, in one step. Returns False if there is no such folder. The parents of the target
        are created.

        Raises StorageError for the name of a folder that is not empty.
        """
        ...


def make_folder(io: FileIO, directory: str) -> None:
    """Creates a folder that a listing of its parent shows; no error if it exists."""
    if isinstance(io, HasFolders):
        io.make_folder(directory)
    else:
        io.overwrite(f"{directory}/{_MARK}", b"")


def rename_folder(io: FileIO, directory: str, target: str) -> None:
    """Gives a folder another name in one step; the target must not exist.

    Raises UnsupportedTableError if storage would copy file by file, so that others would see a part of it; StorageError
    if it fails.
    """
    if not isinstance(io, HasFolders):
        raise UnsupportedTableError(
            f"{directory} cannot be renamed: an object store copies a folder file by file, and readers and writers "
            "would see half of a table. Create a new table and copy the rows",
            path=directory,
        )
    if not io.move_folder(directory, target):
        raise StorageError(f"{directory}: no such folder", path=directory, retryable=False, missing=True)
