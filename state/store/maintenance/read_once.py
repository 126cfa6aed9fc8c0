"""Storage that reads each manifest file once during a long run over a table.

Manifests, lists and index manifests never change and their names are never used again, so what was read stays valid.
"""

from dataclasses import dataclass, field

from bucketline.state.format.paths import MANIFEST_DIR
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.remembered import Remembered
from bucketline.state.store.storage.wrapped_io import WrappedIO

REMEMBERED_BYTES = 256 << 20
"""The default of the bytes of manifest files that are kept in memory; the least recently used file is dropped first."""


@dataclass(frozen=True, slots=True)
class ReadOnceIO(WrappedIO):
    """A FileIO that keeps what it has read from manifest folders, within the bytes of `remembered`."""

    inner: FileIO
    remembered: Remembered = field(default_factory=lambda: Remembered(REMEMBERED_BYTES, REMEMBERED_BYTES))

    def read(self, path: str) -> bytes:
        data = self.remembered.get(path)
        if data is None:
            data = self.inner.read(path)
            if f"/{MANIFEST_DIR}/" in path:
                self.remembered.put(path, data)
        return data

    def read_unchanging(self, path: str) -> bytes:
        """Returns the whole file. It is read from storage, never from what this process has kept of the file."""
        return self.read(path)
