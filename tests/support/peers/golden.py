"""The golden tables that Paimon wrote, and rows in the JSON text form their expectations are in.

Timestamps with local zone are shown in UTC, binary is hex, maps are lists of pairs; decimals are compared as numbers.
"""

import json
import math
from collections import Counter
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "data"


def golden_table(name: str) -> Path:
    """The folder of a golden table; skips the test where the tables are not at hand."""
    path = GOLDEN / "shared.db" / name
    if not path.is_dir():
        pytest.skip(f"no golden tables at {GOLDEN}")
    return path


def golden_tables() -> list[str]:
    return sorted(p.name for p in (GOLDEN / "shared.db").glob("*"))


def expected_rows(name: str, kind: str = "") -> list[dict[str, Any]]:
    """What Paimon showed; `kind` is empty for the rows, or `files`, `snapshots`, `buckets`."""
    suffix = f".{kind}" if kind else ""
    lines = (GOLDEN / "expected" / f"shared.{name}{suffix}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def json_rows(table: pa.Table) -> list[dict[str, object]]:
    """The rows in the form of the expectations."""
    return [{name: json_value(value) for name, value in row.items()} for row in table.to_pylist()]


def json_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, list):
        return [json_value(v) for v in value]
    if isinstance(value, dict):
        return {k: json_value(v) for k, v in value.items()}
    return value


def as_bag(rows: list[dict[str, object]], decimals: frozenset[str] = frozenset()) -> Counter[str]:
    """Rows as a multiset in which equal rows are equal texts; columns in `decimals` count as numbers."""
    return Counter(
        json.dumps({k: _number(v) if k in decimals else v for k, v in r.items()}, sort_keys=True) for r in rows
    )


def _number(value: object) -> object:
    return None if value is None else str(Decimal(str(value)).normalize())
