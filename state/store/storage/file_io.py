"""FileIO: all storage operations of the library as one small protocol. Also chooses an implementation by URI.

Paths are plain strings in the form that the FileIO itself has returned: absolute, `/`-separated, without a scheme.
Every failure is a StorageError; its attribute `missing` is True if a file that should exist does not exist.
"""

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from bucketline.conf.catalog_link import link_of
from bucketline.conf.storage_options import check_storage_options
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.linked_io import linked_io
from bucketline.state.store.storage.plain_io import plain_io


class FileIO(Protocol):
    """The operations on storage that the table format needs. Implementations can be pickled, and keep no files open."""

    def require_publish(self) -> None:
        """Checks that `publish` (creating a file only if it does not exist yet) works on this storage. If `publish`
        does not work, raises UnsupportedTableError with the remedy.

        An object store is tried once in a process, with a temporary object. For other storage, no file is read or
        written.
        """
        ...

    def read(self, path: str) -> bytes:
        """Returns the whole file."""
        ...

    def read_optional(self, path: str) -> bytes | None:
        """Returns the whole file; None if the file does not exist."""
        ...

    def read_unchanging(self, path: str) -> bytes:
        """Returns the whole content of a file that never changes and whose name is used only once.

        If reading the file would need a network request, the bytes may come from memory, even if the file no longer
        exists.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Creates a durable file, and its folders if they do not exist. Raises StorageError if the file exists. After
        an error, an incomplete file is removed.
        """
        ...

    def publish(self, path: str, data: bytes) -> bool:
        """Creates the file, in one step and durably, and returns True. If the file exists, changes nothing and returns
        False.

        If a client or the network may repeat a request, an existing file with the same bytes counts as created by this
        call. So if two writers compete for a file, their bytes must contain something unique.

        After a StorageError the file may or may not have been created, or may still be created a little later; read the
        file to find out. Only an error with `published` = False says that the file was not created and will not be
        created.
        """
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Creates or replaces a file. Readers see either the old or the new content."""
        ...

    def list_names(self, directory: str) -> list[str]:
        """Returns the names of the files and folders in a folder, sorted; an empty list if there is no such folder."""
        ...

    def list_files(self, directory: str) -> list[FileInfo]:
        """Returns all files at any depth below a folder, sorted by path; an empty list if there is no such folder."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Returns the time at which the file's content last changed, in milliseconds since 1970; -1 if the storage does
        not record it.
        """
        ...

    def delete(self, path: str) -> None:
        """Removes a file. A file that does not exist is no error."""
        ...

    def delete_folder(self, directory: str) -> None:
        """Removes a folder with its contents. A folder that does not exist is no error."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Returns the file, open for reading at any position. The caller must close the file."""
        ...

    def open_output(self, path: str) -> pa.NativeFile:
        """Creates a new file, and its folders if they do not exist, and returns the file, open for writing. The file is
        durable once it is closed.

        Raises StorageError if the file exists: when the file is opened, or, if a check at that time would need a
        network request, when the file is closed.
        """
        ...


def file_io_for(uri: str, storage: Mapping[str, str] | None, world: World = SYSTEM_WORLD) -> tuple[FileIO, str]:
    """Returns the FileIO for a path or URI, and the path that this FileIO uses for it, without a slash at the end.

    `storage` are storage options (`s3.endpoint`, ...); options of other schemes are ignored. `storage` has no default,
    so that no caller can forget the options. `world` supplies the names of temporary files. A local path may be
    relative to the working directory; `%` has no special meaning, as in Paimon. Schemes may be written in capitals
    (`FILE:/data`). Raises OptionError for a URI with an unknown scheme, and the errors of `check_storage_options`.
    """
    options = check_storage_options(storage)
    io, root = plain_io(uri, options, world)
    link = link_of(options)
    return (io if link is None or not link.holds(uri) else linked_io(io, link, world)), root
