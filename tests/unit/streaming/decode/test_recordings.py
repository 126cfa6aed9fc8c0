"""Recordings of a real Debezium become the rows that its database had, whatever form they were recorded in."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import RecordFormat
from bucketline.conf.sources.message_options import MessageOptions, parse_source_type
from bucketline.state.types.logical import DataField, parse_type
from bucketline.streaming.decode.decode_step import DecodeStep

FOLDER = Path(__file__).parent / "recorded"
FORMS = {
    "debezium-postgres": RecordFormat.DEBEZIUM_JSON,
    "debezium-postgres-schema": RecordFormat.DEBEZIUM_JSON,
    "debezium-postgres-flattened": RecordFormat.DEBEZIUM_FLAT_JSON,
}
NO_SCHEMA = {"n": "DECIMAL(12, 3)", "m": "DECIMAL(19, 2)", "ti": "micros-of-day", "ti3": "millis-of-day", "bi": "BITS"}
TYPES: dict[str, Any] = {
    "id": "BIGINT NOT NULL",
    **{"b": "BOOLEAN", "s": "SMALLINT", "i": "INT", "d": "DOUBLE", "n": "DECIMAL(12, 3)", "nu": "DECIMAL(38, 10)"},
    **{"m": "DECIMAL(19, 2)", "c": "STRING", "t": "STRING", "by": "BYTES", "da": "DATE", "ti": "TIME(3)"},
    **{"tz": "TIME(3)", "ts": "TIMESTAMP(6)", "ts3": "TIMESTAMP(3)", "tsz": "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
    **{"iv": "BIGINT", "jb": "STRING", "u": "STRING", "bi": "BIGINT", "h": "STRING", "e": "STRING"},
    "ai": {"type": "ARRAY", "element": "INT"},
    "at": {"type": "ARRAY", "element": "STRING"},
}
FIRST = {
    **{"id": 1, "b": True, "s": 1, "i": 3, "d": 2.2, "n": Decimal("123.456"), "nu": Decimal("99.12345")},
    **{"m": Decimal("12.34"), "c": "ab ", "t": "txt", "by": b"\x00\xffab", "da": date(2024, 2, 29)},
    **{"ti": time(4, 5, 6, 789000), "tz": time(2, 5, 6), "ts": datetime(2024, 2, 29, 10, 11, 12, 345678)},
    "ts3": datetime(2024, 2, 29, 10, 11, 12, 345000),
    "tsz": datetime(2024, 2, 29, 8, 11, 12, 345678, tzinfo=UTC),
    **{"iv": 37091106780000, "jb": '{"a": 1.0}', "u": "123e4567-e89b-12d3-a456-426614174000", "bi": 513},
    **{"h": '{"k":"v","n":null}', "e": "ok", "ai": [1, None, 3], "at": ["a", "b c", None]},
}


def read(name: str, table: str, types: dict[str, Any], key: tuple[str, ...]) -> tuple[dict[Any, Any], list[str]]:
    """The table after all records of the recording, and the reasons of bad records."""
    fields = tuple(DataField(i, column, parse_type(kind)) for i, (column, kind) in enumerate(types.items()))
    own = NO_SCHEMA if name != "debezium-postgres-schema" and "n" in types else {}
    messages = MessageOptions(types=tuple((c, parse_source_type(t)) for c, t in own.items() if c in types))
    step = DecodeStep(FORMS[name], fields, key, reject_limit=99, messages=messages)
    lines = [line.split("\t") for line in (FOLDER / f"{name}.tsv").read_text().splitlines()]
    chosen = [line for line in lines if line[0] == f"s.public.{table}"]
    columns = [pa.array([None if line[i] == "null" else line[i].encode() for line in chosen]) for i in (1, 2)]
    found = step(pa.table({"key": columns[0], "value": columns[1]}))
    rows: dict[Any, Any] = {}
    for row in found.rows.to_pylist():
        kind = row.pop("_row_kind")
        at = tuple(row[part] for part in key)
        rows.pop(at, None)
        if kind != 3:
            rows[at] = row
    rejects = [] if found.rejects is None else pa.ipc.open_stream(found.rejects.blob).read_all()["reason"].to_pylist()
    return rows, rejects


@pytest.mark.parametrize("name", FORMS)
def test_a_key_of_two_columns_that_changes(name: str) -> None:
    rows, rejects = read(name, "composite", {"a": "INT NOT NULL", "b": "STRING NOT NULL", "v": "STRING"}, ("a", "b"))
    assert rejects == []
    assert sorted(map(tuple, (row.values() for row in rows.values()))) == [(1, "z", "x"), (2, "b", "y")]


@pytest.mark.parametrize("name", FORMS)
def test_values_of_all_types_are_those_of_the_database(name: str) -> None:
    rows, rejects = read(name, "types", TYPES, ("id",))
    assert rows[(1,)] == FIRST
    assert (2,) not in rows
    # Infinity and a date before Christ are in no calendar of ours.
    assert len(rejects) == 2 and rejects[0].startswith("field") and all("da" in r or "ts" in r for r in rejects)
