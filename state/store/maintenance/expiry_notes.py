"""Notes that expiry leaves about stopped writers: they record that none of the removed snapshots was the writer's.

A stream's marker tag keeps its newest snapshot. When later snapshots have expired, it is not visible any more whether
one of them was a batch that the stream committed just before it died. So expiry leaves a note:
`<table>/bucketline/expired-<writer>`, a small JSON file. Paimon's tools look for files in other folders only. A note is
written before the snapshots are removed. It is valid only for the marker that it was written for.
"""

import json
from collections.abc import Iterable, Mapping

from bucketline.state.commit.replay import MARKER_TAG, writer_of
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.storage.file_io import FileIO

_FOLDER = "bucketline"


def seen_up_to(io: FileIO, path: str, user: str, marker: Snapshot) -> int:
    """Returns the newest snapshot id up to which no snapshot after the marker belongs to the writer; at least the
    marker's own id.
    """
    noted = _read(io, path, user)
    return marker.id if noted is None or noted[0] != marker.id else max(marker.id, noted[1])


def note_expired(io: FileIO, path: str, tags: Iterable[Tag], users: Mapping[int, str]) -> None:
    """Writes a note for each marker that is older than the removed snapshots. It says up to which id no snapshot
    belonged to the marker's writer.

    `users` are the commit users of these snapshots by id. The note ends before a gap in the ids, and before a snapshot
    of the writer.
    """
    for tag in tags:
        user = tag.name.removeprefix(MARKER_TAG)
        if user == tag.name or not users or tag.snapshot.id >= max(users):
            continue
        start = end = seen_up_to(io, path, user, tag.snapshot)
        while end + 1 in users and writer_of(users[end + 1]) != writer_of(user):
            end += 1
        if end > start:
            text = json.dumps({"version": 1, "marker": tag.snapshot.id, "seenUpTo": end})
            io.overwrite(_path(path, user), text.encode())


def drop_note(io: FileIO, path: str, tag_name: str) -> None:
    """Removes the note of a tag if the tag is a marker and has a note."""
    if tag_name.startswith(MARKER_TAG):
        io.delete(_path(path, tag_name.removeprefix(MARKER_TAG)))


def _read(io: FileIO, path: str, user: str) -> tuple[int, int] | None:
    """Returns (marker, newest id seen); None if there is no readable note, so that nothing is known."""
    data = io.read_optional(_path(path, user))
    try:
        note = json.loads(data or b"null")
        return (int(note["marker"]), int(note["seenUpTo"])) if note["version"] == 1 else None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _path(path: str, user: str) -> str:
    return f"{path}/{_FOLDER}/expired-{user}"
