"""Our own options that a table may hold: who compacts it. Paimon's tools pass over them; a job's options come first."""

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
    "inline: the write tasks compact what the picker says; async: the application of a stream does, beside its "
    "batches; dedicated: the writer only plans, and compactors do it; none: somebody else compacts, or nobody",
)

OWN_OPTIONS: Mapping[str, Option[Any]] = {COMPACTION.key: COMPACTION}
