"""The position of a stream of changes: the offsets that Spark stores in the checkpoint.

`{"snapshot": n, "index": i}` says that all changes before snapshot n were read, and i files of snapshot n. If the
stream begins with all rows of snapshot n, `"full": true` is added; then i is the number of parts of the snapshot that
were read. The first offset also says where the stream started, because Spark does not store the offset that it begins
with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bucketline.conf.errors import OptionError

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in the changes of a table: the stream has read everything before it."""

    snapshot: int
    index: int = 0
    is_full: bool = False

    @property
    def order(self) -> tuple[int, bool, int]:
        return self.snapshot, self.is_full, self.index

    def to_json(self) -> JsonObject:
        fields: JsonObject = {"snapshot": self.snapshot, "index": self.index}
        return {**fields, "full": True} if self.is_full else fields


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a stream of changes, as Spark stores it in the checkpoint. In the first offset of a stream,
    `started` is the position at which the stream started; in later offsets it is None.
    """

    at: StreamPosition
    started: StreamPosition | None = None

    def to_json(self) -> JsonObject:
        fields = self.at.to_json()
        return fields if self.started is None else {**fields, "started": self.started.to_json()}


BEGINNING = Offset(StreamPosition(0))
"""The offset before the start of the stream, wherever the stream starts: no snapshot has the id 0."""


def offset_of(stored: Mapping[str, Any]) -> Offset:
    """Returns the offset that a checkpoint stores. Raises OptionError if it is the offset of another source."""
    try:
        started = stored.get("started")
        return Offset(_position(stored), None if started is None else _position(started))
    except (KeyError, TypeError, ValueError) as e:
        raise OptionError(
            (
                f"the checkpoint holds the offset {dict(stored)!r}, which does not belong to this source; use a new "
                "checkpoint"
            ),
            key="checkpointLocation",
        ) from e


def _position(stored: Mapping[str, Any]) -> StreamPosition:
    return StreamPosition(int(stored["snapshot"]), int(stored["index"]), bool(stored.get("full", False)))
