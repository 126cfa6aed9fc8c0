"""FileIO: everything the library does with storage, as one small protocol; and the choice of an implementation by URI.

Paths are plain strings in the form that the FileIO itself returned: absolute, `/`-separated, without a scheme.
Every failure is a StorageError; of a file that should be there and is not, `missing` is True.
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
        """Returns if `publish` works here. Raises UnsupportedTableError naming the remedy; no file is touched.

        Object stores are tried once in a process, with an object of its own that is removed again.
        """
        ...

    def read(self, path: str) -> bytes:
        """The whole file."""
        ...

    def read_optional(self, path: str) -> bytes | None:
        """The whole file, None when there is none."""
        ...

    def read_unchanging(self, path: str) -> bytes:
        """The whole of a file that never changes, of a name that is used once.

        Where reading is a request it may come from memory, even if the file is gone since.
        """
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Creates a durable file, and its folders. Raises StorageError if it exists; an incomplete one is removed."""
        ...

    def publish(self, path: str, data: bytes) -> bool:
        """Makes the file if there is none, all at once and durably; False if there is one, which stays as it is.

        Where a request may be repeated on its way, a file with the same bytes counts as made by this call: bytes that
        decide who wins hold something unique.
        After a StorageError it may or may not have happened, now or a little later: read back. Only an error with
        `published` = False says that it did not and will not.
        """
        ...

    def overwrite(self, path: str, data: bytes) -> None:
        """Creates or replaces a file; readers see the old or the new content."""
        ...

    def list_names(self, directory: str) -> list[str]:
        """Names of the files and folders in a folder, sorted; none when there is no such folder."""
        ...

    def list_files(self, directory: str) -> list[FileInfo]:
        """Every file at any depth below a folder, sorted by path; none when there is no such folder."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Bytes of a file."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file's content last changed, milliseconds since the epoch; -1 if the storage does not record it."""
        ...

    def delete(self, path: str) -> None:
        """Removes a file; a missing one is no error."""
        ...

    def delete_folder(self, directory: str) -> None:
        """Removes a folder and what is below it; a missing one is no error."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """The file for reading at any position; the caller closes it."""
        ...

    def open_output(self, path: str) -> pa.NativeFile:
        """A new file, created with its folders, durable once closed.

        Raises StorageError if it exists: when it is opened, or, where asking is a request, when it is closed.
        """
        ...


def file_io_for(uri: str, storage: Mapping[str, str] | None, world: World = SYSTEM_WORLD) -> tuple[FileIO, str]:
    """The FileIO for a path or URI, and the path it names there, without a slash at the end.

    `storage` are storage options (`s3.endpoint`, ...); those of other schemes are ignored. It has no
    default, so that no caller can forget to hand them on. Names of temporary files come from `world`.
    A local path may be relative to the working directory; `%` is taken literally, as Paimon does. Schemes may be
    written in capitals (`FILE:/data`). Raises OptionError for a URI of an unknown scheme, and as
    `check_storage_options`.
    """
    options = check_storage_options(storage)
    io, root = plain_io(uri, options, world)
    link = link_of(options)
    return (io if link is None or not link.holds(uri) else linked_io(io, link, world)), root
