"""Notes that expiry leaves for writers that have stopped. A note records that none of the removed snapshots was made by
the writer.

A stream's marker tag keeps the stream's newest snapshot. When later snapshots have expired, the table no longer shows
whether the stream committed one of them just before the stream died. So expiry leaves a note:
`<table>/bucketline/expired-<writer>`, a small JSON file. Paimon's tools do not look in this folder. A note is written
before the snapshots are removed. A note is valid only for the marker tag for which it was written.
"""

import json
from collections.abc import Iterable, Mapping

from bucketline.state.commit.replay import MARKER_TAG, writer_of
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.storage.file_io import FileIO

_FOLDER = "bucketline"


def seen_up_to(io: FileIO, path: str, user: str, marker: Snapshot) -> int:
    """Expiry has left a note for the writer `user`. Returns the id in this note: up to this id, none of the snapshots
    after `marker` was made by the writer. `marker` is the snapshot of the writer's marker tag, which keeps the writer's
    newest snapshot. Without a note, returns the id of `marker`.
    """
    noted = _read(io, path, user)
    return marker.id if noted is None or noted[0] != marker.id else max(marker.id, noted[1])


def note_expired(io: FileIO, path: str, tags: Iterable[Tag], users: Mapping[int, str]) -> None:
    """Called before expiry removes snapshots. `users` has the commit user of each snapshot that will be removed, by the
    id of the snapshot.

    Writes a note for each marker tag whose snapshot is older than the removed snapshots. The note holds the id of a
    later snapshot. The note records that the writer of the tag made none of the snapshots after the tag's snapshot, up
    to this id. The id is the highest one for which this is known: the next snapshot is missing in `users`, or the
    writer of the tag made it.
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
    """Removes the note of a stream: the file in which expiry has recorded that no snapshot of this stream has expired.
    `tag_name` is the name of the stream's marker tag. Does nothing for any other tag, or if there is no note.
    """
    if tag_name.startswith(MARKER_TAG):
        io.delete(_path(path, tag_name.removeprefix(MARKER_TAG)))


def _read(io: FileIO, path: str, user: str) -> tuple[int, int] | None:
    """Reads the note that expiry has left for a writer. Returns two snapshot ids: the id of the snapshot that the
    writer's marker tag keeps, and the id up to which the writer has made no later snapshot. Returns None if there is no
    note that can be read.
    """
    data = io.read_optional(_path(path, user))
    try:
        note = json.loads(data or b"null")
        return (int(note["marker"]), int(note["seenUpTo"])) if note["version"] == 1 else None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _path(path: str, user: str) -> str:
    return f"{path}/{_FOLDER}/expired-{user}"
