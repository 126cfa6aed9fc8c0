"""A FileIO around another FileIO. A subclass adds what a catalog needs to the storage of the catalog's tables."""

from typing import Protocol

import pyarrow as pa

from bucketline.state.store.storage.file_info import FileInfo


class Inner(Protocol):
    """The same interface as FileIO. FileIO cannot be imported here, because the module of FileIO imports modules that
    use this module.
    """

    def require_publish(self) -> None: ...
    def read(self, path: str) -> bytes: ...
    def read_optional(self, path: str) -> bytes | None: ...
    def read_unchanging(self, path: str) -> bytes: ...
    def write_new(self, path: str, data: bytes) -> None: ...
    def publish(self, path: str, data: bytes) -> bool: ...
    def overwrite(self, path: str, data: bytes) -> None: ...
    def list_names(self, directory: str) -> list[str]: ...
    def list_files(self, directory: str) -> list[FileInfo]: ...
    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def delete(self, path: str) -> None: ...
    def delete_folder(self, directory: str) -> None: ...
    def open_input(self, path: str) -> pa.NativeFile: ...
    def open_output(self, path: str) -> pa.NativeFile: ...


class WrappedIO:
    """A storage that passes every operation on to `inner`. A subclass chooses `inner`, and changes some operations."""

    __slots__ = ()

    @property
    def inner(self) -> Inner:
        """Returns the wrapped storage."""
        raise NotImplementedError

    def require_publish(self) -> None:
        self.inner.require_publish()

    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    def read_optional(self, path: str) -> bytes | None:
        return self.inner.read_optional(path)

    def read_unchanging(self, path: str) -> bytes:
        return self.inner.read_unchanging(path)

    def write_new(self, path: str, data: bytes) -> None:
        self.inner.write_new(path, data)

    def publish(self, path: str, data: bytes) -> bool:
        return self.inner.publish(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self.inner.overwrite(path, data)

    def list_names(self, directory: str) -> list[str]:
        return self.inner.list_names(directory)

    def list_files(self, directory: str) -> list[FileInfo]:
        return self.inner.list_files(directory)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def modified_ms(self, path: str) -> int:
        return self.inner.modified_ms(path)

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def delete_folder(self, directory: str) -> None:
        self.inner.delete_folder(directory)

    def open_input(self, path: str) -> pa.NativeFile:
        return self.inner.open_input(path)

    def open_output(self, path: str) -> pa.NativeFile:
        return self.inner.open_output(path)


def bare(io: object) -> object:
    """Returns the storage itself, without the wrappers around it."""
    while isinstance(io, WrappedIO):
        io = io.inner
    return io
