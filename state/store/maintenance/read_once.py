"""Storage that reads each manifest file once during a long run over a table.

Manifests, lists and index manifests never change and their names are never used again, so what was read stays valid.
"""

from dataclasses import dataclass, field

import pyarrow as pa

from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.remembered import Remembered

REMEMBERED_BYTES = 256 << 20
"""Default for the bytes of manifest files that are kept; the least recently used is dropped first."""


@dataclass(frozen=True, slots=True)
class ReadOnceIO:
    """A FileIO that keeps what it has read from manifest folders, within the bytes of `remembered`."""

    inner: FileIO
    remembered: Remembered = field(default_factory=lambda: Remembered(REMEMBERED_BYTES, REMEMBERED_BYTES))

    def read(self, path: str) -> bytes:
        found = self.remembered.get(path)
        if found is None:
            found = self.inner.read(path)
            if f"/{MANIFEST_DIR}/" in path:
                self.remembered.put(path, found)
        return found

    def require_publish(self) -> None:
        self.inner.require_publish()

    def read_optional(self, path: str) -> bytes | None:
        return self.inner.read_optional(path)

    def read_unchanging(self, path: str) -> bytes:
        """As `read`: what is looked at is the storage, not what this process remembers of it."""
        return self.read(path)

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
