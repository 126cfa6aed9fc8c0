"""Recordings of Debezium in all its modes, over MariaDB and PostgreSQL: tables have the rows of the databases.

Each recording holds the same rows five times, as five connectors beside each other wrote them, with and without
schemas, between heartbeats, transactions and changes of the schema. What a mode loses is named here, and only that.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import BytesForm, MessageOptions, parse_source_type
from bucketline.state.store.catalog.new_schema import plan_schema
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.streaming.decode.step_for_table import decode_step

FOLDER = Path(__file__).parent / "recorded"
Row = dict[str, Any]
Read = Callable[[str], Any]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("+00", "")).replace(tzinfo=UTC)


def clock(text: str) -> time | None:
    return None if text.startswith(("-", "1")) and len(text) > len("23:59:59.999") else time.fromisoformat(text)


def array_of(read: Read) -> Read:
    """Postgres' text of an array without braces in it."""

    def of(text: str) -> list[Any]:
        items = text[1:-1].split(",") if text != "{}" else []
        return [None if item == "NULL" else read(item.strip('"')) for item in items]

    return of


def bits(text: str) -> int:
    return int(text or "0", 2)


def entries(text: str) -> list[tuple[str, str | None]]:
    pairs = [pair.split("=>") for pair in text.split(", ")] if text else []
    return [(key.strip('"'), None if value == "NULL" else value.strip('"')) for key, value in pairs]


TEXT: Read = str
TRUTH: Read = lambda text: text in ("1", "true", "t")  # noqa: E731
LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"

MARIADB: Mapping[str, tuple[str, Read]] = {
    **dict.fromkeys(("t1", "ti"), ("TINYINT", int)),
    **dict.fromkeys(("tu", "s"), ("SMALLINT", int)),
    **dict.fromkeys(("su", "m", "mu", "i", "y", "b9"), ("INT", int)),
    **dict.fromkeys(("iu", "b"), ("BIGINT", int)),
    **dict.fromkeys(("bu", "b64", "d0"), ("DECIMAL(20, 0)", Decimal)),
    **{"f": ("FLOAT", float), "d": ("DOUBLE", float), "d2": ("DECIMAL(10, 2)", Decimal)},
    **{"d5": ("DECIMAL(5, 0)", Decimal), "dk": ("DECIMAL(38, 10)", Decimal), "b1": ("BOOLEAN", TRUTH)},
    **dict.fromkeys(("c", "v", "t", "lt", "e", "st", "j", "un"), ("STRING", TEXT)),
    **dict.fromkeys(("bn", "vb", "bl"), ("BYTES", bytes.fromhex)),
    **{"da": ("DATE", date.fromisoformat), "tm3": ("TIME(3)", clock)},
    **{"dt": ("TIMESTAMP(0)", moment), "dt3": ("TIMESTAMP(3)", moment), "dt6": ("TIMESTAMP(6)", moment)},
    **{"ts": (LTZ, instant), "ts6": (LTZ, instant)},
}
POSTGRES: Mapping[str, tuple[str, Read]] = {
    **{"b": ("BOOLEAN", TRUTH), "s": ("SMALLINT", int), "l": ("BIGINT", int), "o": ("BIGINT", int)},
    **dict.fromkeys(("i", "po"), ("INT", int)),
    **{
        "r": ("FLOAT", float),
        "d": ("DOUBLE", float),
        "n": ("DECIMAL(12, 3)", Decimal),
        "n0": ("DECIMAL(20, 0)", Decimal),
    },
    "mo": ("DECIMAL(19, 2)", lambda text: Decimal(text[1:])),
    **dict.fromkeys(
        ("v", "t", "js", "jb", "x", "u", "e", "ine", "ci", "ma", "r4", "rn", "rd", "tsv"), ("STRING", TEXT)
    ),
    "by": ("BYTES", lambda text: bytes.fromhex(text[2:])),
    **{
        "da": ("DATE", date.fromisoformat),
        "ti0": ("TIME(0)", time.fromisoformat),
        "ti3": ("TIME(3)", time.fromisoformat),
    },
    **{"ts": ("TIMESTAMP(6)", moment), "ts0": ("TIMESTAMP(0)", moment), "ts3": ("TIMESTAMP(3)", moment)},
    **{"tsz": (LTZ, instant), "h": ("MAP<STRING, STRING>", entries), "b1": ("BOOLEAN", TRUTH), "b9": ("INT", bits)},
    **{"b64": ("DECIMAL(20, 0)", lambda text: Decimal(bits(text))), "vb": ("BIGINT", bits)},
    **{
        "ai": ("ARRAY<INT>", array_of(int)),
        "at": ("ARRAY<STRING>", array_of(str)),
        "au": ("ARRAY<STRING>", array_of(str)),
    },
    **{"an": ("ARRAY<DECIMAL(8, 2)>", array_of(Decimal)), "ats": ("ARRAY<TIMESTAMP(6)>", array_of(moment))},
    **{"atz": (f"ARRAY<{LTZ}>", array_of(instant)), "ad": ("ARRAY<DATE>", array_of(date.fromisoformat))},
    **{
        "ab": ("ARRAY<BOOLEAN>", array_of(TRUTH)),
        "al": ("ARRAY<BIGINT>", array_of(int)),
        "adp": ("ARRAY<DOUBLE>", array_of(float)),
    },
}


@dataclass(frozen=True)
class Mode:
    """How a connector writes values: what a job says of them where schemas do not (`types`), what it always says, and
    `loses`: columns whose values do not reach Kafka, or what becomes of them there."""

    types: Mapping[str, str] = field(default_factory=dict)
    always: Mapping[str, str] = field(default_factory=dict)
    loses: Mapping[str, Callable[[Any], Any] | None] = field(default_factory=dict)
    bytes_form: BytesForm | None = None


def to_millis(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def each_to_millis(values: list[Any]) -> list[Any]:
    return [None if value is None else to_millis(value) for value in values]


def wrapped(value: datetime) -> datetime:
    """The moment that 64 bits of nanoseconds hold of another one."""
    micros = (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    nanos = (micros * 1000 + 2**63) % 2**64 - 2**63
    return datetime(1970, 1, 1) + timedelta(microseconds=nanos // 1000)


def not_before_1970(value: date) -> date:
    """A year of two digits, which Debezium takes for one of 1970 to 2069."""
    return value if value.year >= 100 else value.replace(year=value.year + (2000 if value.year < 70 else 1900))


DIGITS = {"d2": "DECIMAL(10, 2)", "d0": "DECIMAL(20, 0)", "d5": "DECIMAL(5, 0)", "dk": "DECIMAL(38, 10)"}
BITS = {"b9": "BITS", "b64": "BITS"}
ODD = {"da": not_before_1970}
SIGNED = {"bu": "BIGINT UNSIGNED"}
PRECISE = {"bu": "DECIMAL(20, 0)"}


def stamps(*names: str, unit: str) -> dict[str, str]:
    return dict.fromkeys(names, f"epoch-{unit}")


MARIADB_MODES = {
    "default": Mode(
        {**DIGITS, **BITS, **stamps("dt", "dt3", unit="millis"), "dt6": "epoch-micros", "tm3": "micros-of-day"},
        SIGNED,
        ODD,
    ),
    "texts": Mode({**BITS, **PRECISE, "d0": "STRING"}, {}, ODD, BytesForm.HEX),
    "connect": Mode(
        {**BITS, **stamps("dt", "dt3", "dt6", unit="millis"), "tm3": "millis-of-day", "d0": "BIGINT"},
        SIGNED,
        {**ODD, "d0": None, "dk": None, "dt6": to_millis},
    ),
    "micros": Mode(
        {**DIGITS, **BITS, **PRECISE, **stamps("dt", "dt3", "dt6", unit="micros"), "tm3": "micros-of-day"},
        {},
        ODD,
        BytesForm.BASE64_URL,
    ),
    "nanos": Mode(
        {**DIGITS, **BITS, **SIGNED, **stamps("dt", "dt3", "dt6", unit="nanos"), "tm3": "nanos-of-day"},
        {},
        {**ODD, "dt": lambda value: wrapped(value).replace(microsecond=0), "dt3": wrapped, "dt6": wrapped},
    ),
}
NUMBERS = {"n": "DECIMAL(12, 3)", "n0": "DECIMAL(20, 0)", "mo": "DECIMAL(19, 2)", "an": "DECIMAL(8, 2)"}
VARYING = {**BITS, "vb": "BITS"}
POSTGRES_MODES = {
    "default": Mode(
        {
            **NUMBERS,
            **VARYING,
            **stamps("ts0", "ts3", unit="millis"),
            **{"ts": "epoch-micros", "ti0": "millis-of-day", "ti3": "millis-of-day"},
        }
    ),
    "texts": Mode({**VARYING, "n0": "STRING"}, bytes_form=BytesForm.HEX),
    "connect": Mode(
        {
            **VARYING,
            **stamps("ts", "ts0", "ts3", "ats", unit="millis"),
            **{"n0": "BIGINT", "ti0": "millis-of-day", "ti3": "millis-of-day"},
        },
        {},
        {"n0": None, "ts": to_millis, "ats": each_to_millis},
    ),
    "micros": Mode(
        {
            **NUMBERS,
            **VARYING,
            **stamps("ts", "ts0", "ts3", unit="micros"),
            **{"ti0": "micros-of-day", "ti3": "micros-of-day"},
        },
        bytes_form=BytesForm.BASE64_URL,
    ),
    "nanos": Mode(
        {
            **NUMBERS,
            **VARYING,
            **stamps("ts", "ts0", "ts3", "ats", unit="nanos"),
            **{"ti0": "nanos-of-day", "ti3": "nanos-of-day"},
        },
        {},
        {"ts": wrapped},
    ),
}
DATABASES = {"mariadb": (MARIADB, MARIADB_MODES, "shop.kinds"), "postgres": (POSTGRES, POSTGRES_MODES, "public.kinds")}
NO_TIMES_OF_DAY = {4, 14}
"""Rows whose TIME is negative, or 24 hours and more."""


@cache
def recorded(database: str) -> list[list[str]]:
    """Mode, form, topic, key and value of each record."""
    text = gzip.decompress((FOLDER / f"debezium-{database}-modes.tsv.gz").read_bytes()).decode()
    return [line.split("\t") for line in text.splitlines()]


def rows_of(database: str, mode: Mode) -> list[Row]:
    """The rows of the database, with what the mode makes of them."""
    columns, found = DATABASES[database][0], list[Row]()
    for texts in json.loads((FOLDER / f"debezium-{database}-rows.json").read_text()):
        row: Row = {"id": int(texts["id"])}
        for name, (_, read) in columns.items():
            value = None if texts[name] is None else read(texts[name])
            change = mode.loses.get(name)
            row[name] = value if change is None or value is None else change(value)
        found.append(row)
    return sorted(found, key=lambda row: row["id"])


def table_of(path: Path, database: str, name: str, form: str, columns: Mapping[str, str]) -> pa.Table:
    """A table that got all records of a mode."""
    mode = DATABASES[database][1][name]
    table = create_table(
        str(path), ", ".join(f"`{n}` {kind}" for n, kind in {"id": "BIGINT NOT NULL", **columns}.items()), ["id"]
    )
    said = {**mode.always, **(mode.types if form == "bare" else {})}
    messages = MessageOptions(
        types=tuple((n, parse_source_type(kind)) for n, kind in said.items() if n in columns),
        bytes_form=mode.bytes_form,
        source_table=DATABASES[database][2],
    )
    step = decode_step(
        RecordFormat.DEBEZIUM_JSON, handle_of(table).table_schema, BadRecords(str(path / "bad"), 99), messages
    )
    assert step is not None
    lines = [line for line in recorded(database) if line[:2] == [name, form]]
    given = [pa.array([None if line[at] == "null" else line[at].encode() for line in lines]) for at in (3, 4)]
    found = step(pa.table({"key": given[0], "value": given[1]}))
    reasons = [] if found.rejects is None else pa.ipc.open_stream(found.rejects.blob).read_all()["reason"].to_pylist()
    # A TIME that no day has is bad where the column is a TIME, and its records are those of two rows.
    assert all("is not a time of day" in reason for reason in reasons) and len(reasons) <= len(NO_TIMES_OF_DAY)
    table.write(found.rows, row_kinds="_row_kind")
    return open_table(str(path)).to_arrow().sort_by("id")


CASES = [(database, mode, form) for database in DATABASES for mode in MARIADB_MODES for form in ("bare", "schema")]


@pytest.mark.parametrize(("database", "mode", "form"), CASES)
def test_a_table_has_the_rows_of_the_database_in_every_mode(
    tmp_path: Path, database: str, mode: str, form: str
) -> None:
    columns, modes, _ = DATABASES[database]
    kept = {name: kind for name, (kind, _) in columns.items() if modes[mode].loses.get(name, name) is not None}
    found = table_of(tmp_path / "shop.db" / "kinds", database, mode, form, kept).to_pylist()
    wanted = [{name: row[name] for name in ("id", *kept)} for row in rows_of(database, modes[mode])]
    if database == "mariadb":
        found, wanted = ([row for row in rows if row["id"] not in NO_TIMES_OF_DAY] for rows in (found, wanted))
        for row in found:
            # Out of the log, a comma in a label has a backslash before it; out of a snapshot it has not.
            row["e"] = row["e"] and row["e"].replace("\\,", ",")
    assert len(found) >= 5
    for one, other in zip(found, wanted, strict=True):
        assert one == other


@pytest.mark.parametrize(("mode", "unit"), [("default", 1), ("micros", 1), ("nanos", 1000)])
@pytest.mark.parametrize("form", ["bare", "schema"])
def test_a_time_that_no_day_has_is_counted_in_a_bigint(tmp_path: Path, mode: str, unit: int, form: str) -> None:
    columns = dict.fromkeys(("tm", "tm3", "tm6"), "BIGINT")
    found = {row["id"]: row for row in table_of(tmp_path / "kinds", "mariadb", mode, form, columns).to_pylist()}
    micros = {"tm": -45_296_000_000, "tm3": 360_672_500_000, "tm6": -3_020_399_000_000}
    for key in NO_TIMES_OF_DAY:
        assert {name: found[key][name] for name in micros} == {name: count * unit for name, count in micros.items()}


def test_a_schema_says_each_column_that_the_recordings_have() -> None:
    for columns, modes, _ in DATABASES.values():
        schema = plan_schema(
            ", ".join(f"`{n}` {kind}" for n, (kind, _) in columns.items()), (), (), {}, None, time_ms=0
        )
        names = {f.name for f in schema.fields}
        assert all(name in names for mode in modes.values() for name in (*mode.types, *mode.always, *mode.loses))
