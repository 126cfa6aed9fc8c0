"""What a listing says of one file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file found by a listing: `path` as the FileIO takes it, and when its content last changed.

    -1 where the storage does not tell that.
    """

    path: str
    size_bytes: int
    modified_ms: int
