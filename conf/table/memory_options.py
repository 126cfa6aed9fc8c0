"""Paimon's options for the memory and the spilled files of its writers, and bucketline's options that replace them.

A table may have Paimon's options for other writers, so bucketline accepts these options. When such a table is opened
for writing, a message names the option of bucketline to set instead (`advise_write`). `--print-config` shows the
message, too.
Source: Paimon 2.0 CoreOptions, FlinkConnectorOptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bucketline.conf.option import Option, parse_bool, parse_count, parse_int, parse_size, parse_text

WRITE_BUFFER_SIZE = Option(
    "write-buffer-size", parse_size, None, "bytes that a map task buffers, unless 'route-memory' is set"
)

MEMORY_OPTIONS: Mapping[str, Option[Any]] = {WRITE_BUFFER_SIZE.key: WRITE_BUFFER_SIZE}
"""The options of this module that have an effect in bucketline."""

_MERGES = (
    "the memory of a merge, and so the number of runs it reads at once, is bounded by 'merge-memory' and "
    "'compact-memory'"
)
_SPILLS = "write tasks spill what exceeds 'merge-memory' to 'local-directory', without a limit"
_PAGES = "buffers are Arrow record batches, which 'route-memory' bounds"
_ROWS = "files are written in record batches whose size is fixed"
_LOOKUPS = "the memory of lookups is bounded by 'compact-memory'; nothing is cached"


@dataclass(frozen=True, slots=True)
class Bounded:
    """An option of Paimon that has no effect in bucketline. `instead` says what bucketline does instead. Values in
    `fitting` ask for what bucketline always does, so they need no advice.
    """

    option: Option[Any]
    instead: str
    fitting: tuple[object, ...] = field(default=())


def _all(*options: Bounded) -> dict[str, Bounded]:
    return {bounded.option.key: bounded for bounded in options}


BOUNDED: Mapping[str, Bounded] = _all(
    Bounded(Option("write-buffer-spillable", parse_bool, True, "spill the buffer to disk"), _SPILLS, (True,)),
    Bounded(Option("write-buffer-spill.max-disk-size", parse_size, None, "spill bytes before a flush"), _SPILLS),
    Bounded(
        Option(
            "write-buffer-for-append",
            parse_bool,
            False,
            "rows of append tables are buffered too before a file is written",
        ),
        _PAGES,
    ),
    Bounded(
        Option("write-max-writers-to-spill", parse_int, 10, "number of open writers above which rows are buffered"),
        _PAGES,
    ),
    Bounded(Option("local-merge-buffer-size", parse_size, None, "bytes merged before the shuffle"), _PAGES),
    Bounded(Option("page-size", parse_size, None, "bytes of a page of the buffer"), _PAGES),
    Bounded(Option("cache-page-size", parse_size, None, "bytes of a page of the cache"), _PAGES),
    Bounded(Option("sort-spill-threshold", parse_int, None, "sorted runs read at once by a merge"), _MERGES),
    Bounded(Option("sort-spill-buffer-size", parse_size, None, "bytes buffered by a merge"), _MERGES),
    Bounded(Option("local-sort.max-num-file-handles", parse_int, 128, "spill files merged at once"), _MERGES),
    Bounded(Option("spill-compression", parse_text, None, "codec of spill files"), "spills are compressed with lz4"),
    Bounded(
        Option("spill-compression.zstd-level", parse_int, None, "level of that codec"), "spills are compressed with lz4"
    ),
    Bounded(Option("write.batch-size", parse_int, None, "rows of a batch that is written"), _ROWS),
    Bounded(Option("write.batch-memory", parse_size, None, "bytes of a batch that is written"), _ROWS),
    Bounded(Option("lookup.cache-max-memory-size", parse_size, None, "bytes cached for lookups"), _LOOKUPS),
    Bounded(Option("lookup.cache-max-disk-size", parse_size, None, "bytes cached on disk for lookups"), _LOOKUPS),
    Bounded(Option("lookup.merge-buffer-size", parse_size, None, "bytes of rows of one key"), _LOOKUPS),
    Bounded(Option("lookup.merge-records-threshold", parse_count, None, "rows of one key in memory"), _LOOKUPS),
)
"""A mapping of the options without effect by key, in the order of this file."""


def why_without_effect(key: str, options: Mapping[str, str]) -> str | None:
    """Returns why an option has no effect in bucketline. Returns None if the option has an effect, or if its value asks
    for what bucketline always does.

    Raises OptionError for a value that cannot be parsed.
    """
    bounded = BOUNDED.get(key)
    if bounded is None or bounded.option.find(options) in bounded.fitting:
        return None
    return bounded.instead
