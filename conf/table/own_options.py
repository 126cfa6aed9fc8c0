"""The only option of bucketline itself that a table may store: `compaction`, which says who compacts the table.

Paimon's tools ignore the option. The options of a job override it.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from bucketline.conf.option import Option, parse_enum


class Compaction(Enum):
    """Who compacts the table to which the sink writes."""

    INLINE = "inline"
    ASYNC = "async"
    DEDICATED = "dedicated"
    NONE = "none"


COMPACTION = Option(
    "compaction",
    parse_enum(Compaction),
    Compaction.INLINE,
    "who compacts. inline: the tasks that write; async: the streaming application, while its batches run; dedicated: "
    "compactors, for which the writer only makes plans; none: bucketline does not compact",
)

OWN_OPTIONS: Mapping[str, Option[Any]] = {COMPACTION.key: COMPACTION}
