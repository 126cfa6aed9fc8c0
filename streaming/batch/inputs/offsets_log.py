"""Reads a file of Spark's offsets log, which says up to which offset a batch reads each source.

Version 1 has one line for each source, in the order of the query's sources. Version 2 has `id:offset` lines in the
order of a hash map; the id is a source's position or, with named sources, its name. The functions of this module
identify a source by its id in both versions.

Source: Spark 4.0 OffsetSeqLog; Spark 4.2 OffsetMap, `spark.sql.streaming.offsetLog.formatVersion`; seen on 4.0.5, 4.2.1
and 4.3.0. A checkpoint of version 1 keeps this version, whatever the setting says later.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bucketline.state.errors import CorruptFileError, UnsupportedTableError

SourceOffsets = dict[str, Any]
"""The offset of each source, by the source's id: parsed JSON; a string if it is not JSON; None if the source has no
offset yet.
"""

_NONE = "-"


def parse_offsets(text: str, path: str) -> SourceOffsets:
    """Returns the offsets in the text of `offsets/N`, with the ids in canonical order: positions by number, names by
    text. `path` is the path of the file, for messages.

    Raises UnsupportedTableError for an unknown version and for a text that is no offsets log; CorruptFileError for a
    file that was not written completely.
    """
    version, _, rest = text.partition("\n")
    if not rest:
        raise not_whole(path)
    if version not in ("v1", "v2"):
        raise UnsupportedTableError(
            f"the offsets log {path} has version {version[:20]!r}, but only v1 and v2 are known: a newer Spark has "
            "written the checkpoint; use a newer bucketline, or an older Spark with a new checkpoint",
            path=path,
        )
    lines = [line for line in rest.split("\n")[1:] if line]  # the first line describes the batch
    if version == "v1":
        return {str(i): _offset(line) for i, line in enumerate(lines)}
    offsets = {}
    for line in lines:
        source, colon, offset = line.partition(":")
        if not colon:
            raise UnsupportedTableError(f"{path}: {line[:80]!r} is no line of Spark's offsets log", path=path)
        offsets[source] = _offset(offset)
    return dict(sorted(offsets.items(), key=lambda item: _rank(item[0])))


def batch_time_ms(text: str) -> int | None:
    """Returns the time at which a batch began, in milliseconds since 1970. The time is the same for all attempts at the
    batch. Returns None if the text of `offsets/N` lacks it.
    """
    _, _, rest = text.partition("\n")
    try:
        said = json.loads(rest.partition("\n")[0])
    except ValueError:
        return None
    time_ms = said.get("batchTimestampMs") if isinstance(said, dict) else None
    return time_ms if isinstance(time_ms, int) and time_ms > 0 else None


def not_whole(path: str) -> CorruptFileError:
    """Returns the error for a checkpoint file that is empty or cut short."""
    return CorruptFileError(
        f"{path} is empty or cut short: the disk was full, or the machine went down while Spark wrote it. Restore the "
        "checkpoint, or run the job once with --reset-identity: a new checkpoint begins at the Kafka offsets that the "
        "table holds",
        path=path,
    )


def aligned(offsets: Mapping[str, Any] | None, sources: Sequence[str]) -> list[Any] | None:
    """Returns the offsets of these sources, in the order of `sources`. A source without an offset gets None. Returns
    None if there are no offsets at all.
    """
    return None if offsets is None else [offsets.get(source) for source in sources]


def records_behind(latest: Sequence[Any], end: Sequence[Any]) -> int | None:
    """Returns the number of Kafka records between a batch's end and the newest offsets; None if no source is a Kafka
    source.

    `latest` and `end` have the offsets of each source. The sources may be in different orders, because they are matched
    by the topics that they have in common.
    """
    waiting, left = None, [reached for reached in end if is_kafka(reached)]
    for newest in filter(is_kafka, latest):
        best = max(left, key=lambda reached: len(newest.keys() & reached.keys()), default=None)
        if best is None:
            continue
        left.remove(best)
        for topic, partitions in newest.items():
            here = best.get(topic, {})
            waiting = (waiting or 0) + sum(max(0, int(o) - int(here.get(p, o))) for p, o in partitions.items())
    return waiting


def is_kafka(offset: Any) -> bool:
    """Returns True if a source's offset comes from Kafka: a mapping from topic to partition to offset."""
    return isinstance(offset, dict) and all(
        isinstance(partitions, dict) and all(p.isdigit() and isinstance(at, int) for p, at in partitions.items())
        for partitions in offset.values()
    )


def _rank(source: str) -> tuple[int, int, str]:
    return (0, int(source), "") if source.isdigit() else (1, 0, source)


def _offset(text: str) -> Any:
    if text == _NONE:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # other sources may use any form for an offset
