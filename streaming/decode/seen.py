"""What decoding notes about records in addition to their rows: how many have no row, the source tables in them, and
truncates.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bucketline.streaming.decode.other_messages import Skipped


class RecordPlace(NamedTuple):
    """The topic, partition and offset of a record in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the decoder has noted about records, apart from the rows.

    - `skipped` is the number of records that give no row and are not bad, by kind, for example tombstones.
    - `tables` are the names of the source's tables that the records mention.
    - `unexpected` is the number of rows that do not meet an expectation, by the name of the expectation.
    - `truncated` are the positions of records that truncate the table, the last position of each partition.
    - `moves` are messages of tasks about rows whose key changed, as bytes (see the package `moves`).
    """

    skipped: Mapping[Skipped, int] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()
    unexpected: Mapping[str, int] = field(default_factory=dict)
    truncated: tuple[RecordPlace, ...] = ()
    moves: tuple[bytes, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.skipped or self.tables or self.unexpected or self.truncated or self.moves)

    def with_others(self, count: int) -> "Seen":
        """Returns a copy of these counts with `count` fewer tombstones, and `count` records of other tables. Records
        of other tables are replaced by nulls before they are decoded, so the decoder counts them as tombstones.
        """
        if not count:
            return self
        tombstones = self.skipped.get(Skipped.TOMBSTONE, 0) - count
        counts = {**self.skipped, Skipped.TOMBSTONE: tombstones, Skipped.OTHER_TABLE: count}
        return replace(self, skipped={kind: count for kind, count in counts.items() if count})

    def encode(self) -> bytes:
        """Returns this object as bytes, which a task sends to the driver."""
        counts = {kind.value: count for kind, count in self.skipped.items()}
        said = {"skipped": counts, "tables": sorted(self.tables), "unexpected": dict(self.unexpected)}
        moves = [base64.b64encode(octets).decode() for octets in self.moves]
        return json.dumps({**said, "truncated": self.truncated, "moves": moves}).encode()


NOTHING_SEEN = Seen()


def decode_seen(payload: bytes) -> Seen:
    """Returns the `Seen` (what a task has seen beside rows: skipped records, source tables, truncates) that a task has
    sent as bytes.
    """
    said = json.loads(payload)
    return Seen(
        {Skipped(kind): count for kind, count in said["skipped"].items()},
        frozenset(said["tables"]),
        said["unexpected"],
        tuple(RecordPlace(*place) for place in said["truncated"]),
        tuple(base64.b64decode(text) for text in said["moves"]),
    )


def joined_seen(parts: Iterable[Seen]) -> Seen:
    """Returns one value with everything that was noted in `parts`. Counts are added up. Of the truncates of one topic
    partition, only the last stays.
    """
    counts, tables, unexpected = Counter[Skipped](), frozenset[str](), Counter[str]()
    truncated, moves = list[RecordPlace](), list[bytes]()
    for part in parts:
        counts.update(part.skipped)
        tables |= part.tables
        unexpected.update(part.unexpected)
        truncated += part.truncated
        moves += part.moves
    return Seen(dict(counts), tables, dict(unexpected), last_places(truncated), tuple(moves))


def last_places(places: Iterable[RecordPlace]) -> tuple[RecordPlace, ...]:
    """Returns the last position in each partition, in the order of partitions."""
    last = {(place.topic, place.partition): place for place in sorted(places)}
    return tuple(last.values())
