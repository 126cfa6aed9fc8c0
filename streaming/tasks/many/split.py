"""Splits the records of many tables into the records of each table, by the source table in the message, or by the topic
of the message.

A chunk of records has few tables and topics, so the routes are looked up once for each pair of table and topic. Records
that name no table stay together. Decoding these records then shows which of them are heartbeats, and which are broken
messages.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import RecordFormat
from bucketline.conf.routes.route import SourceName
from bucketline.conf.routes.routed_job import Left, Resolved
from bucketline.state.types.buffers import one_array
from bucketline.streaming.decode.avro.avro_reader import AvroReader
from bucketline.streaming.decode.decode_step import framed_records
from bucketline.streaming.decode.source_tables import name_parts, source_names

Feed = tuple[str, int]
"""A topic and a partition."""


class Resolver(Protocol):
    """The routes of a job: `resolve` returns the table to which the records of a source table or topic go, or the
    reason why no table gets them. `asks_names` is True if this depends on the name of the source table, and False if
    the topic alone decides.
    """

    @property
    def asks_names(self) -> bool: ...
    def resolve(self, name: SourceName | None, topic: str | None) -> Resolved | Left: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where records come from: the source table that the messages contain, and their topic. The table is None if the
    messages contain none, and the topic is None if the records have none.
    """

    name: SourceName | None
    topic: str | None

    def __str__(self) -> str:
        if self.name is None:
            return "no table" if self.topic is None else f"topic {self.topic}"
        topic = "" if self.topic is None else f" (topic {self.topic})"
        return f"{self.name.texts[-1]}{topic}"


@dataclass(frozen=True, slots=True)
class Part:
    """Records of one chunk that come from the same source table and topic (`origin`), in the order of the chunk. `to`
    says where the records go: to a target table (Resolved), or to no table, with the reason (Left).
    """

    origin: Origin
    to: Resolved | Left
    records: pa.Table


@dataclass(slots=True)
class Splitter:
    """Divides chunks of records among the tables to which the routes send them. For each pair of topic and source
    table, the result of the routes is remembered, so the routes are asked only once.
    """

    routes: Resolver
    decode: RecordFormat
    reader: AvroReader | None = None
    _resolved: dict[Origin, Resolved | Left] = field(default_factory=dict, init=False)

    def parts(self, records: pa.Table) -> Iterator[Part]:
        """Divides a chunk of records by origin (source table and topic), and yields a `Part` for each origin: its
        records, and the table to which they go. The origin of the chunk's first record comes first.
        """
        if not records.num_rows:
            return
        names, of_names = self._names(records)
        topics, of_topics = _topics(records)
        pairs = of_topics.astype(np.int64) * (len(names) + 1) + of_names + 1
        found, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        for group in np.argsort(first):
            topic, name = divmod(int(found[group]), len(names) + 1)
            origin = Origin(names[name - 1] if name else None, topics[topic])
            rows = records if len(found) == 1 else records.take(pa.array(np.flatnonzero(inverse == group)))
            yield Part(origin, self._to(origin), rows)

    def _to(self, origin: Origin) -> Resolved | Left:
        to = self._resolved.get(origin)
        if to is None:
            to = self._resolved[origin] = self.routes.resolve(origin.name, origin.topic)
        return to

    def _names(self, records: pa.Table) -> tuple[list[SourceName], npt.NDArray[np.int32]]:
        if not (self.decode.names_tables and self.routes.asks_names):
            return [], np.full(records.num_rows, -1, np.int32)
        values, _ = framed_records(records, self.decode)
        found, codes = source_names(values, self.decode, self.reader)
        parts = name_parts(self.decode)
        return [_source_name(dict(zip(parts, texts, strict=True)), parts[-1]) for texts in found], codes


def _source_name(texts: Mapping[str, str], table: str) -> SourceName:
    database = next((texts[key] for key in ("db", "__db", "database") if texts.get(key)), None)
    schema = next((texts[key] for key in ("schema", "__schema") if texts.get(key)), None)
    return SourceName(texts[table], schema, database)


def _topics(records: pa.Table) -> tuple[list[str | None], npt.NDArray[np.int32]]:
    """Returns a list of the topics of the records, and for each record the position of its topic in this list."""
    if "topic" not in records.column_names:
        return [None], np.zeros(records.num_rows, np.int32)
    encoded = one_array(records["topic"]).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices)


def spans(records: pa.Table) -> dict[Feed, tuple[int, int]]:
    """Returns for each topic partition the first offset of the records, and the offset after the last record. Returns
    an empty dict if the records have no offsets.
    """
    if not {"topic", "partition", "offset"} <= set(records.column_names) or not records.num_rows:
        return {}
    topics, of_topics = _topics(records)
    partitions, offsets = (one_array(records[name]) for name in ("partition", "offset"))
    if partitions.null_count or offsets.null_count:
        return {}
    numbers, at = np.asarray(partitions), np.asarray(offsets)
    feeds, inverse = np.unique(of_topics.astype(np.int64) << 32 | numbers, return_inverse=True)
    found: dict[Feed, tuple[int, int]] = {}
    for place, feed in enumerate(feeds.tolist()):
        topic, of_feed = topics[feed >> 32], at if len(feeds) == 1 else at[inverse == place]
        if topic is not None:
            found[topic, feed & 0xFFFFFFFF] = int(of_feed.min()), int(of_feed.max()) + 1
    return found


def first_ms(records: pa.Table) -> int | None:
    """Returns the earliest time at which one of the records was written, in milliseconds since 1970; None if Kafka does
    not say the times.
    """
    if "timestamp" not in records.column_names:
        return None
    earliest = pc.min(records["timestamp"])
    return int(earliest.cast(pa.int64()).as_py()) // 1000 if earliest.is_valid else None


def joined_spans(
    one: Mapping[Feed, tuple[int, int]], other: Mapping[Feed, tuple[int, int]]
) -> dict[Feed, tuple[int, int]]:
    """Returns for each partition the smallest range of offsets that covers the ranges of the partition in `one` and in
    `other`.
    """
    joined = dict(one)
    for feed, (first, end) in other.items():
        before = joined.get(feed, (first, end))
        joined[feed] = min(before[0], first), max(before[1], end)
    return joined


def not_before(records: pa.Table, since: Mapping[Feed, int]) -> pa.Table:
    """Returns only the records that come at or after the offset that `since` has for their partition. Records of a
    partition without an offset are all returned.
    """
    if not since or not {"topic", "partition", "offset"} <= set(records.column_names):
        return records
    topics, of_topics = _topics(records)
    partitions, offsets = (np.asarray(one_array(records[name])) for name in ("partition", "offset"))
    keep = np.ones(records.num_rows, bool)
    for (topic, partition), offset in since.items():
        if topic in topics:
            keep &= (of_topics != topics.index(topic)) | (partitions != partition) | (offsets >= offset)
    return records if keep.all() else records.filter(pa.array(keep))
