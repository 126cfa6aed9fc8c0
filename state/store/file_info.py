"""What a listing says of one file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file found by a listing: `path` as the FileIO takes it, and when its content last changed."""

    path: str
    size_bytes: int
    modified_ms: int
