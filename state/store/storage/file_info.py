"""The description of one file in a listing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file in a listing: its `path` in the form that FileIO takes, its size, and the time at which its content last
    changed, in milliseconds since 1970 (-1 if the storage does not record it).
    """

    path: str
    size_bytes: int
    modified_ms: int
