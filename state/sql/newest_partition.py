"""Finds calls of Paimon's function `sys.max_pt('t')`, the newest partition of a table, in the text of a query.

Source: Paimon 2.0 MaxPtFunction, ReplacePaimonFunctions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from bucketline.state.sql.statement import TableReference
from bucketline.state.sql.words import Words, table_name

FUNCTION = "max_pt"
_SIGNS = frozenset(("=", "==", "<>", "!=", "<", "<=", ">", ">="))


@dataclass(frozen=True, slots=True)
class NewestPartitionCall:
    """A call of `max_pt` in a text. The call reaches from the position `start` to `end`. The object also has the table
    that is the argument, and says whether the result of the call is compared with another value.
    """

    start: int
    end: int
    table: TableReference
    is_compared: bool


def newest_partition_calls(text: str) -> Iterator[NewestPartitionCall]:
    """Yields the calls `sys.max_pt('t')` and `catalog.sys.max_pt('t')` in a text. Raises OptionError if the argument is
    not the name of a table.
    """
    if FUNCTION not in text.lower():
        return
    words = Words(text)
    while not words.is_done:
        if words.peek() != FUNCTION.upper() or words.peek(1) != "(" or not _is_of_system(words, words.at):
            words.at += 1
            continue
        words.verb = FUNCTION
        first = words.at - 2
        parts = []
        if first >= 2 and words.tokens[first - 1].text == ".":
            first -= 2
            parts = [words.tokens[first].text]
        words.at += 2
        named = Words(words.string("the name of a table"))
        words.expect(")")
        named.verb = FUNCTION
        path = named.path("the name of a table")
        named.end()
        if parts and len(path) == 2:
            path = (*parts, *path)
        beside = {words.tokens[at].text for at in (first - 1, words.at) if 0 <= at < len(words.tokens)}
        start, end = words.tokens[first].start, words.tokens[words.at - 1].end + 1
        yield NewestPartitionCall(start, end, table_name(path), bool(beside & _SIGNS))


def _is_of_system(words: Words, at: int) -> bool:
    return at >= 2 and words.tokens[at - 1].text == "." and words.tokens[at - 2].text.lower() == "sys"
