"""Tag files: the JSON of a snapshot, and how long the tag stays if it has a limited lifetime.

Source: Paimon 2.0 Tag (a Snapshot with `tagCreateTime` and `tagTimeRetained`), TagManager.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot, encode_snapshot

_EPOCH = datetime(1970, 1, 1)
_CREATED = "tagCreateTime"
_RETAINED = "tagTimeRetained"


@dataclass(frozen=True, slots=True)
class Tag:
    """A snapshot with a name.

    `created_local_ms` is the local time of the writer, converted to milliseconds as if it were UTC, and `retained_ms`
    is the lifetime in milliseconds. Both are None for a tag that stays until somebody deletes it.
    """

    name: str
    snapshot: Snapshot
    created_local_ms: int | None = None
    retained_ms: int | None = None

    def is_over(self, local_ms: int) -> bool:
        """Returns True if the tag's lifetime has ended at the given local time. `local_ms` is in milliseconds since
        1970, as if local time were UTC, like `created_local_ms`.
        """
        if self.created_local_ms is None or self.retained_ms is None:
            return False
        return local_ms > self.created_local_ms + self.retained_ms


def encode_tag(tag: Tag) -> bytes:
    """Returns the bytes of a tag file. For a tag without a lifetime, these are the bytes of the snapshot's file."""
    data = encode_snapshot(tag.snapshot)
    if tag.created_local_ms is None or tag.retained_ms is None:
        return data
    members = json.loads(data)
    members[_CREATED] = _time_array(tag.created_local_ms)
    members[_RETAINED] = tag.retained_ms / 1000
    return json.dumps(members, indent=2, ensure_ascii=False).encode()


def decode_tag(name: str, data: bytes) -> Tag:
    """Returns the tag in a tag file. Raises the errors of `decode_snapshot`, and CorruptFileError for times that are
    not valid.
    """
    snapshot = decode_snapshot(data)
    members = json.loads(data)
    created, retained = members.get(_CREATED), members.get(_RETAINED)
    try:
        return Tag(
            name,
            snapshot,
            created_local_ms=None if created is None else _time_ms(created),
            retained_ms=None if retained is None else int(float(retained) * 1000),
        )
    except (ValueError, TypeError, OverflowError) as e:
        raise CorruptFileError(
            f"tag {name} has no valid {_CREATED} {created!r} or {_RETAINED} {retained!r}: {e}", tag=name
        ) from e


def _time_array(local_ms: int) -> list[int]:
    """Returns a time as a list of numbers: year, month, day, hour, minute, second, nanoseconds. As in Java, nanoseconds
    are left out if they are 0, and the second too if both are 0.
    """
    t = _EPOCH + timedelta(milliseconds=local_ms)
    parts = [t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond * 1000]
    while len(parts) > 5 and parts[-1] == 0:
        parts.pop()
    return parts


def _time_ms(parts: list[int]) -> int:
    if not isinstance(parts, list) or not 5 <= len(parts) <= 7:
        raise ValueError("expected an array of year, month, day, hour, minute, second, nanoseconds")
    year, month, day, hour, minute, second, nanos = (*parts, 0, 0)[:7]
    since = datetime(year, month, day, hour, minute, second) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + nanos // 1_000_000
