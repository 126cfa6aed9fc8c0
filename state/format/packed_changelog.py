"""The names of packed changelog files, in which Flink puts the changelog files of several buckets one after the other.

A packed file lies in the folder of one bucket, and its name says which: `compacted-changelog-ID$BUCKET-SIZE.cc-FORMAT`.
The packed file begins with a changelog file of this bucket, which has SIZE bytes. In a manifest, this first part has
the name of the packed file. Each other part has a name `compacted-changelog-ID$BUCKET-SIZE-OFFSET-LENGTH.cc-FORMAT` in
the folder of its own bucket, but no file with this name exists: the bytes of the part are in the packed file.

Source: Paimon 2.0 CompactedChangelogPathResolver, ChangelogCompactTask.
"""

import re
from dataclasses import dataclass

_NAME = re.compile(r"(compacted-changelog-[^$./]+\$(\d{1,9})-(\d{1,18}))(?:-(\d{1,18})-(\d{1,18}))?\.cc-([a-z]+)")


@dataclass(frozen=True, slots=True)
class PackedPart:
    """The part of a packed file that is one changelog file. `offset` is the position of the first byte of the part."""

    offset: int
    size_bytes: int
    format: str


def part_of(file_name: str) -> PackedPart | None:
    """Returns the part of a packed file for which a file name stands; None for the name of any other file."""
    found = _NAME.fullmatch(file_name)
    if found is None:
        return None
    _, _, first_bytes, offset, size_bytes, form = found.groups()
    return PackedPart(0, int(first_bytes), form) if offset is None else PackedPart(int(offset), int(size_bytes), form)


def stored_path(path: str) -> str:
    """Returns the path of the file that holds the bytes of a data or changelog file: for a part of a packed file the
    path of the packed file, otherwise `path` itself.
    """
    folder, _, name = path.rpartition("/")
    found = _NAME.fullmatch(name)
    if found is None or found[4] is None:
        return path
    return f"{folder.rpartition('/')[0]}/bucket-{found[2]}/{found[1]}.cc-{found[6]}"
