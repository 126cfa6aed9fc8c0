"""bucketline's own option that a table may store: who compacts the table.

Paimon's tools ignore it. The options of a job override it.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from bucketline.conf.option import Option, parse_enum


class Compaction(Enum):
    """Who compacts the table that the sink writes."""

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
