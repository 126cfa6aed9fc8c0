"""FileIO: all storage operations of the library as one small protocol; and the choice of an implementation by URI.

Paths are plain strings in the form that the FileIO itself returned: absolute, `/`-separated, without a scheme. Every
failure is a StorageError; `missing` is True if a file that should exist does not.
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
    """The operations on storage that the table format needs. Implementations can be pickled and keep no files open."""

    def require_publish(self) -> None:
        """Checks that `publish` works here. Raises UnsupportedTableError that names the remedy if not.

        An object store is tried once in a process, with a temporary object; other storage is not touched.
        """
        ...

    def read(self, path: str) -> bytes:
        """Returns the whole file."""
        ...

    def read_optional(self, path: str) -> bytes | None:
        """Returns the whole file; None if it does not exist."""
        ...

    def read_unchanging(self, path: str) -> bytes:
        """Returns the whole file, for a file that never changes and whose name is used only once.

        If reading takes a network request, the bytes may come from memory, even if the file no longer exists.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Creates a durable file, and its folders. Raises StorageError if the file exists; an incomplete file is
        removed.
        """
        ...

    def publish(self, path: str, data: bytes) -> bool:
        """Creates the file if it does not exist, in one step and durably; returns False, and changes nothing, if it
        exists.

        If a client or network may repeat a request, a file with the same bytes counts as created by this call. So bytes
        that decide between two writers must contain something unique.
        After a StorageError the file may or may not have been created, or may be created a little later: read it back.
        Only an error with `published` = False says that the file was not created, and that it will not be created
        later.
        """
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Creates or replaces a file; readers see either the old or the new content."""
        ...

    def list_names(self, directory: str) -> list[str]:
        """Returns the names of the files and folders in a folder, sorted; none when there is no such folder."""
        ...

    def list_files(self, directory: str) -> list[FileInfo]:
        """Returns every file at any depth below a folder, sorted by path; none when there is no such folder."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """Returns when the file's content last changed, in milliseconds since the epoch; -1 if the storage does not
        record it.
        """
        ...

    def delete(self, path: str) -> None:
        """Removes a file; no error if it does not exist."""
        ...

    def delete_folder(self, directory: str) -> None:
        """Removes a folder with its contents; no error if it does not exist."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Returns the file for reading at any position; the caller closes it."""
        ...

    def open_output(self, path: str) -> pa.NativeFile:
        """Returns a new file for writing, created with its folders, durable once it is closed.

        Raises StorageError if the file exists: when it is opened or, if that check takes a network request, when it is
        closed.
        """
        ...


def file_io_for(uri: str, storage: Mapping[str, str] | None, world: World = SYSTEM_WORLD) -> tuple[FileIO, str]:
    """Returns the FileIO for a path or URI, and the path it names there, without a slash at the end.

    `storage` are storage options (`s3.endpoint`, ...); those of other schemes are ignored. It has no default, so that
    no caller can forget to hand them on. Names of temporary files come from `world`. A local path may be relative to
    the working directory; `%` is taken literally, as Paimon does. Schemes may be written in capitals (`FILE:/data`).
    Raises OptionError for a URI of an unknown scheme, and the errors of `check_storage_options`.
    """
    options = check_storage_options(storage)
    io, root = plain_io(uri, options, world)
    link = link_of(options)
    return (io if link is None or not link.holds(uri) else linked_io(io, link, world)), root
