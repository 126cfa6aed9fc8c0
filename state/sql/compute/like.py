"""LIKE of SQL over Arrow's texts.

Arrow's own LIKE compares what stands before or behind a single % as it is, escapes included, so patterns with an escape
or a backslash become regular expressions here.
"""

import re
from typing import Any

import pyarrow.compute as pc

from bucketline.conf.errors import OptionError

_WILD = {"%": ".*", "_": "."}


def match_like(texts: Any, pattern: str, escape: str) -> Any:
    """Whether each text matches the whole pattern, null for null; `texts` is a column, a value or an expression.

    Raises OptionError if the escape stands before anything but %, _ and the escape itself.
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
                raise OptionError(f"LIKE {pattern!r}: {escape!r} escapes only %, _ and itself", key="filter")
            parts.append(re.escape(pattern[at]))
        else:
            parts.append(_WILD.get(sign) or re.escape(sign))
        at += 1
    return parts
