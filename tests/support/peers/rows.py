"""Rows in the text form that golden files and both peers share, and how to compare them.

Binary is hex; decimals, dates, times and timestamps are strings, timestamps with local zone in UTC; a map is a list of
[key, value]; NaN is the string "NaN". A field is Paimon's schema JSON: `{"name": ..., "type": ...}`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Field = Mapping[str, Any]

_SHOWN_ROWS = 5


def table_fields(table: Path) -> list[dict[str, Any]]:
    """The fields of a table's latest schema."""
    newest = max((table / "schema").glob("schema-*"), key=lambda path: int(path.name.removeprefix("schema-")))
    fields: list[dict[str, Any]] = json.loads(newest.read_text(encoding="utf-8"))["fields"]
    return fields


def assert_same_rows(found: Iterable[Row], expected: Iterable[Row], fields: Sequence[Field]) -> None:
    """Fails unless both hold the same rows, each as often: any order, decimals as numbers, maps without order."""
    types = {field["name"]: field["type"] for field in fields}
    left, right = Counter(_plain_row(row, types) for row in found), Counter(_plain_row(row, types) for row in expected)
    unexpected, missing = left - right, right - left
    assert not unexpected and not missing, (
        f"{unexpected.total()} unexpected rows, e.g. {sorted(unexpected)[:_SHOWN_ROWS]}\n"
        f"{missing.total()} missing rows, e.g. {sorted(missing)[:_SHOWN_ROWS]}"
    )


def _plain_row(row: Row, types: Mapping[str, Any]) -> str:
    # Columns that are no fields (__paimon_bucket, _row_kind) compare as they are.
    return json.dumps({name: _plain(value, types.get(name, "")) for name, value in row.items()}, sort_keys=True)


def _plain(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, Mapping):
        return _plain_nested(value, kind)
    if kind.startswith("DECIMAL"):
        number = Decimal(value)
        # An exact ratio: no context rounds it, whatever the scale the text was written with.
        return "/".join(map(str, number.as_integer_ratio()))
    return value


def _plain_nested(value: Any, kind: Mapping[str, Any]) -> Any:
    name = kind["type"].removesuffix(" NOT NULL")
    if name == "ARRAY":
        return [_plain(element, kind["element"]) for element in value]
    if name == "MAP":
        entries = [[_plain(key, kind["key"]), _plain(item, kind["value"])] for key, item in value]
        return sorted(entries, key=json.dumps)
    if name == "MULTISET":
        return sorted(([_plain(element, kind["element"]), count] for element, count in value), key=json.dumps)
    types = {field["name"]: field["type"] for field in kind["fields"]}
    return {name: _plain(item, types[name]) for name, item in value.items()}
