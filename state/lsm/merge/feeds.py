"""Records from which feed each row came, and finds keys whose rows came from several feeds.

A feed is a source that keeps the order of its rows, that is, a partition of a Kafka topic. The rows of two feeds have
no order. Each feed has a number. A task reads one feed after the other. So a few ranges of arrival ranks (the numbers
of rows in order of arrival) are enough to tell from which feed a row came, and rows need no column for it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bucketline.state.types.arrow import SEQUENCE

Feeds = NDArray[Any]
"""The number of the feed (Kafka partition) from which each row came, as integers of any width."""
Ranks = NDArray[np.int64]
Starts = NDArray[np.bool_]

_MOST_OF_A_KEY = 200


@dataclass(frozen=True, slots=True, order=True)
class MixedKey:
    """A key whose rows came from several feeds (Kafka partitions): the key as text, and the numbers of two of the
    feeds.
    """

    key: str
    feeds: tuple[int, int]

    def to_bytes(self) -> bytes:
        return json.dumps([self.key, self.feeds]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "MixedKey":
        key, (one, other) = json.loads(data)
        return cls(key, (one, other))


@dataclass(frozen=True, slots=True, eq=False)
class FeedSpans:
    """Tells from which feed (Kafka partition) a row came, by the rank of the row in order of arrival. The rows with
    ranks from `starts[i]` up to `starts[i + 1]` (not included) came from `feeds[i]`.

    `starts` (int64) ascends and is not empty. `feeds` is int32.
    """

    starts: Ranks
    feeds: NDArray[np.int32]

    @classmethod
    def of(cls, feeds: Feeds, first_rank: int) -> "FeedSpans":
        """Returns the FeedSpans of rows that arrived one after the other: the first row has the rank `first_rank`,
        the next row the next integer, and so on. `feeds` has the feed (Kafka partition) of each row and is not empty.
        """
        borders = np.flatnonzero(np.append(True, feeds[1:] != feeds[:-1]))
        return cls(borders + first_rank, feeds[borders].astype(np.int32))

    def moved(self, by: int) -> "FeedSpans":
        """Returns the spans with `by` added to all ranks."""
        return FeedSpans(self.starts + by, self.feeds)

    def of_ranks(self, ranks: Ranks) -> NDArray[np.int32]:
        """Takes the ranks of rows in order of arrival. Returns for each row the number of the feed (Kafka partition)
        from which the row came. Every rank must be in one of the spans.
        """
        found: NDArray[np.int32] = self.feeds[np.searchsorted(self.starts, ranks, side="right") - 1]
        return found

    @property
    def is_one_feed(self) -> bool:
        return bool((self.feeds == self.feeds[0]).all())

    def to_bytes(self) -> bytes:
        return self.starts.astype("<i8").tobytes() + self.feeds.astype("<i4").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "FeedSpans":
        count = len(data) // 12
        starts = np.frombuffer(data, "<i8", count).astype(np.int64)
        return cls(starts, np.frombuffer(data, "<i4", count, offset=8 * count).astype(np.int32))


def joined_spans(spans: Iterable[FeedSpans]) -> FeedSpans | None:
    """Combines several FeedSpans, each of which tells from which feeds (Kafka partitions) some rows came. Returns one
    FeedSpans for all of these rows; None if `spans` is empty. Equal spans may occur twice; other spans must not
    overlap.
    """
    every = list(spans)
    if not every:
        return None
    starts, first = np.unique(np.concatenate([s.starts for s in every]), return_index=True)
    return FeedSpans(starts, np.concatenate([s.feeds for s in every])[first])


def first_mixed(feeds: Feeds, starts: Starts) -> int | None:
    """Returns the index of the first row that came from another feed (Kafka partition) than the row before it with the
    same key; None if there is none.

    The rows are in key order. `feeds` has the feed of each row, and `starts` is true at the first row of each key.
    """
    mixed = np.flatnonzero((feeds[1:] != feeds[:-1]) & ~starts[1:])
    return int(mixed[0]) + 1 if len(mixed) else None


def first_feeds(numbers: NDArray[np.int64], feeds: Feeds) -> Feeds:
    """Returns for each key the feed (Kafka partition) of the key's first row.

    The rows may have any order. `numbers` has the number of each row's key; keys are numbered from 0 without gaps. Item
    i of the result is for key i.
    """
    first = np.empty(int(numbers.max()) + 1 if len(numbers) else 0, feeds.dtype)
    first[numbers[::-1]] = feeds[::-1]
    return first


def first_mixed_row(numbers: NDArray[np.int64], feeds: Feeds) -> tuple[int, tuple[int, int]] | None:
    """Returns the index of the first row whose key has an earlier row from another feed (Kafka partition), and the two
    feeds; None if no key has rows from two feeds.

    `numbers` has the number of each row's key (keys are numbered from 0 without gaps), and `feeds` has the feed of each
    row.
    """
    if not len(numbers) or (feeds == feeds[0]).all():
        return None
    first = first_feeds(numbers, feeds)[numbers]
    mixed = np.flatnonzero(feeds != first)
    return (int(mixed[0]), (int(first[mixed[0]]), int(feeds[mixed[0]]))) if len(mixed) else None


def mixed_key_of(
    rows: pa.Table | pa.RecordBatch, numbers: NDArray[np.int64], feeds: Feeds, keys: Sequence[str]
) -> MixedKey | None:
    """Returns a key whose rows came from several feeds (Kafka partitions); None if the rows of each key came from one
    feed. `numbers` has for each row the number of its key, and `feeds` has for each row its feed.
    """
    found = first_mixed_row(numbers, feeds)
    return None if found is None else mixed_key(rows, found[0], keys, found[1])


def mixed_key(rows: pa.Table | pa.RecordBatch, row: int, keys: Sequence[str], feeds: tuple[int, int]) -> MixedKey:
    """Returns a MixedKey with the key of the row at the index `row`. `feeds` are two feeds from which rows of this key
    came; the result has the smaller number first.
    """
    values = rows.select(list(keys)).slice(row, 1).to_pylist()[0]
    text = ", ".join(f"{name} = {json.dumps(v, default=str, ensure_ascii=False)}" for name, v in values.items())
    if len(text) > _MOST_OF_A_KEY:
        text = f"{text[:_MOST_OF_A_KEY]}..."
    return MixedKey(text, (min(feeds), max(feeds)))


@dataclass(slots=True)
class FeedCheck:
    """Looks at rows while they are merged, until it finds a key whose rows came from several feeds (Kafka partitions).

    `spans` tell from which feed each value of `_SEQUENCE_NUMBER` came. `keys` are the columns of the primary key.
    `found` is the key that was found, or None.
    """

    spans: FeedSpans
    keys: Sequence[str]
    found: MixedKey | None = None

    def __call__(self, rows: pa.Table, order: Ranks | None, starts: Starts) -> None:
        """Looks for a key whose rows came from several feeds (Kafka partitions), and stores the first such key in
        `found`.

        `rows` are the rows of one step of a merge. Row n in key order is row `order[n]` of the table; if `order` is
        None, the table is in key order. `starts` is true at the first row of each key.
        """
        if self.found is not None or starts.all():
            return
        ranks = rows[SEQUENCE].to_numpy()
        feeds = self.spans.of_ranks(ranks if order is None else ranks[order])
        at = first_mixed(feeds, starts)
        if at is not None:
            row = at if order is None else int(order[at])
            self.found = mixed_key(rows, row, self.keys, (int(feeds[at - 1]), int(feeds[at])))
