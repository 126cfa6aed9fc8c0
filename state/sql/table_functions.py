"""Converts Paimon's table functions, which read the changes between two snapshots, to a table with an option.

`paimon_incremental_query('t', 1, 3)` means `t /*+ OPTIONS('incremental-between' = '1,3') */`. Before sqlglot parses the
text, the call is replaced by the table's name and by spaces, so that positions in the text do not change.

Source: Paimon 2.0 PaimonTableValuedFunctions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bucketline.state.sql.dialect import refused
from bucketline.state.sql.words import Words
from bucketline.state.types.columns_text import in_backticks

BETWEEN = "incremental-between"
BETWEEN_TIMES = "incremental-between-timestamp"
TO_AUTO_TAG = "incremental-to-auto-tag"

_KEYS = {
    "PAIMON_INCREMENTAL_QUERY": BETWEEN,
    "PAIMON_INCREMENTAL_BETWEEN_TIMESTAMP": BETWEEN_TIMES,
    "PAIMON_INCREMENTAL_TO_AUTO_TAG": TO_AUTO_TAG,
}
_BEFORE = ("FROM", "JOIN", ",")


@dataclass(frozen=True, slots=True)
class IncrementalCall:
    """A call of a table function for incremental queries, such as `paimon_incremental_query('t', 1, 3)`. The call
    reaches from `start` to `end` of the text. `name` is the table's name in backticks, and `option` is the option of
    the table that means the same as the call.
    """

    start: int
    end: int
    name: str
    option: tuple[str, str]


def incremental_calls(text: str) -> Iterator[IncrementalCall]:
    """Yields the calls of Paimon's functions for incremental queries in a statement. Raises OptionError for wrong
    arguments.
    """
    words = Words(text)
    while not words.is_done:
        key = _KEYS.get(words.peek())
        is_call = key is not None and words.peek(1) == "(" and words.at and words.tokens[words.at - 1].text.upper()
        if key is None or is_call not in _BEFORE:
            words.at += 1
            continue
        function = words.tokens[words.at].text.lower()
        words.verb = function
        start = words.tokens[words.at].start
        words.at += 2
        table = words.string("the name of a table")
        values = []
        while words.take(","):
            values.append(_value(words))
        words.expect(")")
        asked = 1 if key == TO_AUTO_TAG else 2
        if len(values) != asked:
            takes = "a table and a tag" if asked == 1 else "a table, the beginning, which is left out, and the end"
            raise refused(f"{function} takes {takes}", statement=function)
        named = Words(table)
        named.verb = function
        path = named.path("the name of a table")
        named.end()
        name = ".".join(map(in_backticks, path))
        yield IncrementalCall(start, words.tokens[words.at - 1].end + 1, name, (key, ",".join(values)))


def _value(words: Words) -> str:
    return words.string("a value") if words.comes_string() else words.number("a snapshot's id, a tag or a time")
