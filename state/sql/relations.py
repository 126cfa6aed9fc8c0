"""Finds the tables in a query or in a statement that changes rows, with the version and the options of each table.

A version (`VERSION AS OF 3`) or a hint (`/*+ OPTIONS(...) */`) comes right after a table's name. Both are replaced by
spaces before sqlglot parses the text, so that positions in the text do not change. A call such as
`paimon_incremental_query('t', 1, 3)` becomes the table's name and an option (`table_functions.py`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlglot import exp

from bucketline.conf.option import whole_number
from bucketline.conf.table.read_options import SCAN_TIMESTAMP_MILLIS, SCAN_VERSION
from bucketline.state.sql.dialect import Token, parse_one, refused, tokens_of
from bucketline.state.sql.statement import Relation
from bucketline.state.sql.table_functions import incremental_calls
from bucketline.state.sql.table_queries import without_table_queries
from bucketline.state.sql.words import Words, gaps, hints_in, table_name

_OF_SELECT = re.compile(r"/\*\+\s*OPTIONS\b", re.IGNORECASE)
_TRAVEL = {
    ("FOR", "VERSION", "AS", "OF"): SCAN_VERSION.key,
    ("FOR", "SYSTEM_VERSION", "AS", "OF"): SCAN_VERSION.key,
    ("VERSION", "AS", "OF"): SCAN_VERSION.key,
    ("SYSTEM_VERSION", "AS", "OF"): SCAN_VERSION.key,
    ("FOR", "TIMESTAMP", "AS", "OF"): SCAN_TIMESTAMP_MILLIS.key,
    ("FOR", "SYSTEM_TIME", "AS", "OF"): SCAN_TIMESTAMP_MILLIS.key,
    ("TIMESTAMP", "AS", "OF"): SCAN_TIMESTAMP_MILLIS.key,
    ("SYSTEM_TIME", "AS", "OF"): SCAN_TIMESTAMP_MILLIS.key,
}
_TIMESTAMP = "scan.timestamp"
_UNITS = {
    "DAY": timedelta(days=1),
    "HOUR": timedelta(hours=1),
    "MINUTE": timedelta(minutes=1),
    "SECOND": timedelta(seconds=1),
}
_ZONED = re.compile(r"(Z|[+-]\d\d:?\d\d)$")


@dataclass(frozen=True, slots=True)
class _Mark:
    """A hint (`/*+ OPTIONS(...) */`) or a version (`VERSION AS OF 3`) in the text of a statement. The hint or version
    stands from `start` to `end`, and follows the token that ends at `after`. `options` are the table options for which
    the hint or version stands.
    """

    after: int
    start: int
    end: int
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed statement.

    - `text` is the statement without versions (`VERSION AS OF 3`) and hints.
    - `tree` is sqlglot's tree.
    - `relations` are the tables in the statement, in the order of the text.
    """

    text: str
    tree: exp.Expression
    relations: tuple[Relation, ...]

    def relation(self, table: exp.Expression) -> Relation:
        """Returns the relation for a table node of the tree."""
        start, _ = _span(table)
        return next(r for r in self.relations if r.start == start)


def read_relations(text: str) -> Parsed:
    """Parses a statement, and returns its tree and tables. Raises OptionError if the statement cannot be parsed."""
    text = without_table_queries(text)
    calls = list(incremental_calls(text))
    for call in calls:
        text = text[: call.start] + call.name.ljust(call.end - call.start) + text[call.end :]
    tokens = tokens_of(text)
    called = [
        _Mark(call.start + len(call.name), call.start + len(call.name), call.end, dict([call.option])) for call in calls
    ]
    marks = [*called, *_hints(text, tokens), *_travels(text, tokens)]
    plain = text
    for mark in marks:
        plain = plain[: mark.start] + " " * (mark.end - mark.start) + plain[mark.end :]
    tree = parse_one(plain)
    relations = tuple(_relations(tree, marks))
    spans = {(r.start, r.end) for r in relations}
    for mark in marks:
        if not any(start < mark.end <= end for start, end in spans):
            if mark in called:
                raise refused("a function that reads changes, such as paimon_incremental_query, must come after FROM")
            raise refused(f"{text[mark.start : mark.end].strip()!r} must come right after the name of a table")
    return Parsed(plain, tree, relations)


def parse_hint(text: str) -> dict[str, str]:
    """Returns the options of a hint `OPTIONS('key'='value', ...)`. Raises OptionError for any other hint."""
    words = Words(text)
    words.verb = f"hint /*+ {text.strip()} */"
    words.expect("OPTIONS")
    options = words.options()
    words.end()
    if _TIMESTAMP in options:
        options[SCAN_TIMESTAMP_MILLIS.key] = str(local_ms(options.pop(_TIMESTAMP)))
    return options


def hints_between(text: str, start: int, end: int) -> dict[str, str]:
    """Returns the options of all hints (`/*+ OPTIONS(...) */`) between the positions `start` and `end` of the text.
    Apart from hints, there must be only spaces and comments between these positions.
    """
    options: dict[str, str] = {}
    for match in hints_in(text, start, end):
        options |= parse_hint(match["hint"])
    return options


def _hints(text: str, tokens: Sequence[Token]) -> Iterator[_Mark]:
    for token in tokens:
        if _OF_SELECT.match(text, token.start):
            raise refused(
                "a hint /*+ OPTIONS(...) */ must come right after the name of a table, as in FROM t /*+ ... */"
            )
    for start, end in gaps(text, tokens):
        for match in hints_in(text, start, end):
            yield _Mark(start, match.start(), match.end(), parse_hint(match["hint"]))


def _travels(text: str, tokens: Sequence[Token]) -> Iterator[_Mark]:
    words = Words(text)
    words.verb = "time travel"
    while words.at < len(tokens):
        key = None if words.at == 0 else next((k for form, k in _TRAVEL.items() if words.take(*form)), None)
        if key is None:
            words.at += 1
            continue
        first = words.at - 1
        while words.tokens[first - 1].text.upper() in (
            "AS",
            "VERSION",
            "SYSTEM_VERSION",
            "TIMESTAMP",
            "SYSTEM_TIME",
            "FOR",
        ):
            first -= 1
        value = _version(words) if key == SCAN_VERSION.key else _instant(words)
        last = words.tokens[words.at - 1]
        yield _Mark(words.tokens[first - 1].end + 1, words.tokens[first].start, last.end + 1, {key: value})


def _version(words: Words) -> str:
    if words.comes_string():
        return words.string("a tag")
    return words.number("a snapshot's id or the name of a tag")


def _instant(words: Words) -> str:
    """Parses a time, and returns it in milliseconds since 1970, as a string. The time is a number of seconds since
    1970, as in Spark, or a string in the local time zone.
    """
    words.take("TIMESTAMP")
    if not words.comes_string():
        return str(words.whole_number("a time such as '2026-01-31 12:00:00', or a number of seconds since 1970") * 1000)
    text = words.string("a time")
    return str(local_ms(text, _interval(words)))


def _interval(words: Words) -> timedelta:
    """Parses intervals such as `+ INTERVAL '1' DAY`, if they come next. Returns the time to add, which is zero if there
    are none.
    """
    sign = 1 if words.take("+", "INTERVAL") else -1 if words.take("-", "INTERVAL") else 0
    if not sign:
        return timedelta()
    text = words.string("a number") if words.comes_string() else words.number("a number")
    unit = next((u for u in _UNITS if words.take(u) or words.take(f"{u}S")), None)
    if unit is None or not text.strip().isdigit():
        raise words.wrong(f"expected a whole number of {', '.join(_UNITS)} after INTERVAL")
    try:
        return sign * whole_number(text) * _UNITS[unit]
    except OverflowError as e:
        raise refused(f"time travel: INTERVAL {text} {unit} is too long") from e


def local_ms(text: str, more: timedelta = timedelta()) -> int:
    """Parses a time, adds `more`, and returns the sum in milliseconds since 1970. A time without an offset is in the
    local time zone.
    """
    try:
        instant = datetime.fromisoformat(_ZONED.sub(lambda m: "+00:00" if m[0] == "Z" else m[0], text.strip()))
        return round((instant + more).timestamp() * 1000)
    except (ValueError, OverflowError) as e:
        raise refused(f"time travel: {text!r} is no time; write it as '2026-01-31 12:00:00'") from e


def _relations(tree: exp.Expression, marks: Sequence[_Mark]) -> Iterator[Relation]:
    queries = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    tables = []
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Dot):
            raise refused(
                f"{table.sql()!r} has more parts than catalog, database and table; put a name with a dot in backticks"
            )
        if not isinstance(table.this, exp.Identifier) or table.find_ancestor(exp.Hint, exp.JoinHint):
            continue  # This is a function that returns rows, or a name in a hint.
        if not table.db and table.name.lower() in queries and not _is_in_its_own(table):
            continue
        tables.append(table)
    for table in sorted(tables, key=_span):
        start, end = _span(table)
        options: dict[str, str] = {}
        last = end
        for mark in sorted(marks, key=lambda m: m.start):
            if mark.after in (end, last):
                options |= mark.options
                last = mark.end
        names = [part.name for part in table.parts]
        is_sampled = isinstance(table.parent, exp.TableSample) or bool(table.args.get("sample"))
        yield Relation(table_name(names), start, last, options, has_alias=bool(table.alias) or is_sampled)


def _is_in_its_own(table: exp.Expression) -> bool:
    """Returns True if a table is used in the definition of a query with the same name: `WITH t AS (SELECT * FROM
    t)`.
    """
    query = table.find_ancestor(exp.CTE)
    return query is not None and query.alias_or_name.lower() == table.name.lower()


def _span(table: exp.Expression) -> tuple[int, int]:
    """Returns the position at which a table's name begins in the text, and the position after its end."""
    return start_of(table), int(table.parts[-1].meta["end"]) + 1


def start_of(table: exp.Expression) -> int:
    """Returns the position in the text at which a table's name begins."""
    return int(table.parts[0].meta["start"])
