"""SQL's LIKE over Arrow columns of strings.

If a pattern has a single % at its start or end, Arrow's own LIKE compares the rest literally, including escape
characters. So this module converts a pattern with an escape or a backslash to a regular expression.
"""

import re
from typing import Any

import pyarrow.compute as pc

from bucketline.conf.errors import OptionError

_WILD = {"%": ".*", "_": "."}


def match_like(texts: Any, pattern: str, escape: str) -> Any:
    """Returns true for each string that matches the whole pattern, false if it does not, and null for null. `texts` is
    a column, a single value or an Arrow expression, and so is the result.

    Raises OptionError if the escape character comes before a character other than %, _ and the escape character itself.
    """
    if "\\" not in pattern and escape not in pattern:
        return pc.match_like(texts, pattern)
    return pc.match_substring_regex(texts, f"(?s)^{''.join(_parts(pattern, escape))}$")


def _parts(pattern: str, escape: str) -> list[str]:
    parts, at = [], 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise OptionError(
                    f"LIKE {pattern!r}: {escape!r} escapes only %, _ and itself; write {2 * escape!r} for {escape!r}",
                    key="filter",
                )
            parts.append(re.escape(pattern[at]))
        else:
            parts.append(_WILD.get(sign) or re.escape(sign))
        at += 1
    return parts
