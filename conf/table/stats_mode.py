"""Paimon's stats modes, which say which statistics of a column's values are stored. Source: Paimon 2.0
StatsCollectorFactories.
"""

import re
from dataclasses import dataclass
from enum import Enum

from bucketline.conf.errors import OptionError
from bucketline.conf.option import whole_number

_TRUNCATE = re.compile(r"truncate\(\s*(\d+)\s*\)", re.ASCII)


class StatsKind(Enum):
    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class StatsMode:
    """Says which statistics of a column are stored with a data file (`metadata.stats-mode`): none, null counts, or also
    a minimum and a maximum. `length` is only set for TRUNCATE: the number of code points of a string, or bytes of a
    binary value, to which the bounds are shortened.
    """

    kind: StatsKind
    length: int | None = None

    @property
    def has_bounds(self) -> bool:
        return self.kind in (StatsKind.TRUNCATE, StatsKind.FULL)

    def __str__(self) -> str:
        return self.kind.value if self.length is None else f"{self.kind.value}({self.length})"


def parse_stats_mode(text: str) -> StatsMode:
    """Parses `none`, `counts`, `truncate(n)` or `full`, in upper or lower case. Raises OptionError for any other
    text.
    """
    name = text.strip().lower()
    if name in (StatsKind.NONE.value, StatsKind.COUNTS.value, StatsKind.FULL.value):
        return StatsMode(StatsKind(name))
    match = _TRUNCATE.fullmatch(name)
    if match is None or whole_number(match[1]) == 0:
        raise OptionError("must be none, counts, truncate(n) with n > 0, or full", value=text)
    return StatsMode(StatsKind.TRUNCATE, whole_number(match[1]))
