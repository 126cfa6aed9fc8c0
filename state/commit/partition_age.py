"""Decides by age which partitions have expired, and which have been without new rows for so long that they are marked
as done.

Times are local times, converted to milliseconds as if they were UTC, like the creation times of files. Source: Paimon
2.0 NormalPartitionExpire, PartitionValuesTimeExpireStrategy, PartitionUpdateTimeExpireStrategy, PartitionTimeExtractor,
PartitionMarkDoneTrigger.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.java_time import read_time
from bucketline.conf.table.choices import PartitionTime
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.partition_text import legacy_text
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import TypeRoot


@dataclass(frozen=True, slots=True)
class Expired:
    """The partitions that have expired, in the order in which they are dropped, and the partitions whose values contain
    no time.
    """

    partitions: tuple[bytes, ...] = ()
    timeless: tuple[bytes, ...] = ()


def expired_partitions(
    schema: TableSchema, newest_files: Mapping[bytes, int | None], local_ms: int, *, after_ms: int | None = None
) -> Expired:
    """Returns the partitions that have expired. `newest_files` maps each partition that has files to the creation time
    of its newest file.

    If `after_ms` is given, it replaces the table's `partition.expiration-time`. The result has at most
    `partition.expiration-max-num` partitions.
    """
    expiry = schema.settings.expiry
    allowed_ms = expiry.partitions_ms if after_ms is None else after_ms
    if allowed_ms is None:
        return Expired()
    limit = local_ms - allowed_ms
    if expiry.strategy is PartitionTime.UPDATE:
        expired = [p for p, created in newest_files.items() if created is not None and created < limit]
        return Expired(_first(schema, expired))
    times = {p: partition_time(schema, p) for p in newest_files}
    expired = [p for p, time in times.items() if time is not None and time < limit]
    return Expired(_first(schema, expired), tuple(sorted(p for p, time in times.items() if time is None)))


def partition_time(schema: TableSchema, partition: bytes) -> int | None:
    """Returns the time that the values of a partition contain; None if they contain no time."""
    expiry, texts = schema.settings.expiry, _texts(schema, partition)
    if expiry.time_pattern is None:
        text = next(iter(texts.values()))
    else:
        text = _filled(expiry.time_pattern, texts)
    return None if text is None else read_time(text, expiry.time_formatter)


def is_done(schema: TableSchema, partition: bytes, changed_ms: int, local_ms: int) -> bool:
    """Returns True if a partition that last got rows at `changed_ms` has been without new rows long enough to be marked
    as done. The time is counted from the end of the period that the partition stands for (for example its day), if that
    is later.

    A partition whose values contain no time is never done.
    """
    expiry, time = schema.settings.expiry, partition_time(schema, partition)
    if time is None or expiry.idle_to_done_ms is None or expiry.partition_ms is None:
        return False
    return local_ms - max(changed_ms, time + expiry.partition_ms) > expiry.idle_to_done_ms


def _first(schema: TableSchema, partitions: list[bytes]) -> tuple[bytes, ...]:
    default = schema.settings.paths.default_partition

    def order(partition: bytes) -> str:
        return ",".join(default if text is None else text for text in _texts(schema, partition).values())

    return tuple(sorted(partitions, key=order)[: schema.settings.expiry.most_partitions])


def _texts(schema: TableSchema, partition: bytes) -> dict[str, str | None]:
    """Returns the values of a partition as Java prints them. None stands for null, and for a value for which Java
    prints an address in memory.
    """
    types = [f.type for f in schema.select(schema.partition_keys)]
    texts: dict[str, str | None] = {}
    for name, value, data_type in zip(schema.partition_keys, decode_row(partition, types), types, strict=True):
        # The spaces at the end of a CHAR are no part of the time.
        shown = value.rstrip(" ") if data_type.root is TypeRoot.CHAR and isinstance(value, str) else value
        try:
            texts[name] = None if shown is None else legacy_text(shown, data_type)
        except UnsupportedTableError:
            texts[name] = None
    return texts


def _filled(pattern: str, texts: Mapping[str, str | None]) -> str | None:
    """Returns the pattern with the value of a column in place of each `$column`: `$dt $hour` may become `2024-01-31
    12`. Of several names that fit, the longest counts. Returns None if one of these columns has no value.
    """
    names = sorted(texts, key=len, reverse=True)
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        name = None
        if pattern[position] == "$":
            name = next((n for n in names if pattern.startswith(n, position + 1)), None)
        if name is None:
            parts.append(pattern[position])
            position += 1
            continue
        text = texts[name]
        if text is None:
            return None
        parts.append(text)
        position += 1 + len(name)
    return "".join(parts)
