"""A FileIO that keeps its files in memory: for tests that need thousands of commits, or storage nobody else sees."""

from dataclasses import dataclass, field

import pyarrow as pa

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.file_info import FileInfo


@dataclass
class MemoryIO:
    """Files by path; folders exist while something is in them. Not made for several threads.

    `now_ms` is the storage's clock, by which files are written; a test moves it.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    now_ms: int = 1
    written_ms: dict[str, int] = field(default_factory=dict)

    def require_publish(self) -> None:
        return

    def read(self, path: str) -> bytes:
        found = self.files.get(path)
        if found is None:
            raise StorageError(f"{path}: no such file", path=path, retryable=False, missing=True)
        return found

    def read_optional(self, path: str) -> bytes | None:
        return self.files.get(path)

    def read_unchanging(self, path: str) -> bytes:
        return self.read(path)

    def write_new(self, path: str, data: bytes) -> None:
        if not self.publish(path, data):
            raise StorageError(f"{path}: exists already", path=path, retryable=False, missing=False)

    def publish(self, path: str, data: bytes) -> bool:
        if path in self.files:
            return False
        self.overwrite(path, data)
        return True

    def overwrite(self, path: str, data: bytes) -> None:
        self.files[path] = data
        self.written_ms[path] = self.now_ms

    def list_names(self, directory: str) -> list[str]:
        start = f"{directory}/"
        return sorted({p.removeprefix(start).split("/")[0] for p in self.files if p.startswith(start)})

    def list_files(self, directory: str) -> list[FileInfo]:
        found = sorted(p for p in self.files if p.startswith(f"{directory}/"))
        return [FileInfo(p, len(self.files[p]), self.written_ms.get(p, 1)) for p in found]

    def exists(self, path: str) -> bool:
        return path in self.files

    def size(self, path: str) -> int:
        return len(self.read(path))

    def modified_ms(self, path: str) -> int:
        self.read(path)
        return self.written_ms.get(path, 1)

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def delete_folder(self, directory: str) -> None:
        for found in self.list_files(directory):
            del self.files[found.path]

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def open_output(self, path: str) -> pa.NativeFile:
        raise NotImplementedError("no test writes streams into memory yet")
