"""Where a stream of changes stands: the offsets that Spark stores in the checkpoint.

`{"snapshot": n, "index": i}` says that all changes before snapshot n were read, and i files of its own. With
`"full": true` it says that i units of the whole of snapshot n were read. The first offset also says where the stream
started: Spark does not store the one that it begins with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bucketline.conf.errors import OptionError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """What was read: everything before it."""

    snapshot: int
    index: int = 0
    is_full: bool = False

    @property
    def order(self) -> tuple[int, bool, int]:
        return self.snapshot, self.is_full, self.index

    def to_json(self) -> Json:
        found: Json = {"snapshot": self.snapshot, "index": self.index}
        return {**found, "full": True} if self.is_full else found


@dataclass(frozen=True, slots=True)
class Offset:
    """A position, and for the first one after the start that of the start."""

    at: Position
    started: Position | None = None

    def to_json(self) -> Json:
        found = self.at.to_json()
        return found if self.started is None else {**found, "started": self.started.to_json()}


BEGINNING = Offset(Position(0))
"""Before the start, wherever that is: no snapshot has the id 0."""


def offset_of(found: Mapping[str, Any]) -> Offset:
    """The offset in a checkpoint. Raises OptionError for one of another source."""
    try:
        started = found.get("started")
        return Offset(_position(found), None if started is None else _position(started))
    except (KeyError, TypeError, ValueError) as e:
        raise OptionError(
            f"the checkpoint holds the offset {dict(found)!r}, which is none of this source; take another checkpoint",
            key="checkpointLocation",
        ) from e


def _position(found: Mapping[str, Any]) -> Position:
    return Position(int(found["snapshot"]), int(found["index"]), bool(found.get("full", False)))
