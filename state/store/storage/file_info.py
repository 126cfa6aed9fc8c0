"""One file of a listing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file found by a listing: `path` as the FileIO takes it, and when its content last changed, -1 if the storage
    does not record it.
    """

    path: str
    size_bytes: int
    modified_ms: int
