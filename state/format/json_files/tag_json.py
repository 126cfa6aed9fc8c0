"""Tag files: the JSON of a snapshot, and how long the tag is to live where that was said.

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
    """A snapshot under a name.

    `created_local_ms` is local wall-clock time read as if it were UTC (see Clock.local_ms); it and `retained_ms` are
    None for a tag that lives until it is deleted.
    """

    name: str
    snapshot: Snapshot
    created_local_ms: int | None = None
    retained_ms: int | None = None

    def is_over(self, local_ms: int) -> bool:
        """Whether the tag's time has run out at a local wall-clock time."""
        if self.created_local_ms is None or self.retained_ms is None:
            return False
        return local_ms > self.created_local_ms + self.retained_ms


def encode_tag(tag: Tag) -> bytes:
    """Returns the bytes of a tag file: those of the snapshot's file when the tag has no end."""
    data = encode_snapshot(tag.snapshot)
    if tag.created_local_ms is None or tag.retained_ms is None:
        return data
    members = json.loads(data)
    members[_CREATED] = _time_array(tag.created_local_ms)
    members[_RETAINED] = tag.retained_ms / 1000
    return json.dumps(members, indent=2, ensure_ascii=False).encode()


def decode_tag(name: str, data: bytes) -> Tag:
    """Returns the tag in a tag file. Raises CorruptFileError as `decode_snapshot`, and for invalid times."""
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
        raise CorruptFileError(f"tag {name}: {_CREATED} {created!r}, {_RETAINED} {retained!r}: {e}", tag=name) from e


def _time_array(local_ms: int) -> list[int]:
    """Returns a time as numbers: year to minute, then second and nanoseconds; zeros at the end are left out from the
    second on, as Java does.
    """
    t = _EPOCH + timedelta(milliseconds=local_ms)
    parts = [t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond * 1000]
    while len(parts) > 5 and parts[-1] == 0:
        parts.pop()
    return parts


def _time_ms(parts: list[int]) -> int:
    if not isinstance(parts, list) or not 5 <= len(parts) <= 7:
        raise ValueError("not an array of year, month, day, hour, minute, second, nanoseconds")
    year, month, day, hour, minute, second, nanos = (*parts, 0, 0)[:7]
    since = datetime(year, month, day, hour, minute, second) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + nanos // 1_000_000
