"""Debezium over PostgreSQL and MariaDB, its records as JSON and as Avro: tables hold the rows of the database."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.rows import dict_row

from bucketline.conf.job import BadRecords, RecordFormat
from bucketline.conf.sources.message_options import (
    NO_MESSAGE_OPTIONS,
    UNAVAILABLE,
    BytesForm,
    MessageOptions,
    Unavailable,
    parse_source_type,
)
from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import columns_text
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.declared.declared_rows import declared_rows
from bucketline.streaming.decode.declared.declared_table import declared_table
from bucketline.streaming.decode.step_for_table import decode_step
from tests.support.servers.apicurio import apicurio
from tests.support.servers.debezium import (
    AVRO,
    JSON,
    JSON_WITH_SCHEMA,
    Event,
    avro_converter,
    debezium,
    mariadb_connector,
    postgres_connector,
)
from tests.support.servers.mariadb import MariaDb
from tests.support.servers.postgres import PASSWORD, Postgres
from tests.support.spark.tasks import Cluster

pytestmark = [pytest.mark.stores, pytest.mark.timeout(2400)]

FORMS = {
    JSON: RecordFormat.DEBEZIUM_JSON,
    JSON_WITH_SCHEMA: RecordFormat.DEBEZIUM_JSON,
    AVRO: RecordFormat.DEBEZIUM_AVRO,
}
MARKER = "zz_marker"
READY = f"create table {MARKER}(id int primary key); insert into {MARKER} values (0)"
DONE = f"insert into {MARKER} values (1)"
Recorded = dict[str, list[Event]]

POSTGRES_TABLE = """
create type mood as enum ('sad', 'ok', 'happy');
create table kinds(id bigint primary key, b boolean, s smallint, i int, r real, d double precision, n numeric(12,3),
  c char(3), t text, by bytea, da date, ti time, ts timestamp, ts3 timestamp(3), tsz timestamptz, jb jsonb, u uuid,
  e mood, ai int[], at text[]);
alter table kinds replica identity full;
"""
POSTGRES_ROW = """
insert into kinds values ({id}, true, 1, 2, 1.5, 2.2, -123.456, 'ab', 'naïve', '\\x00ff6162', '2024-02-29',
  '04:05:06.789', '2024-02-29 10:11:12.345678', '1969-12-31 23:59:59.999', '2024-02-29 10:11:12.345678+02',
  '{{"a": 1.0}}', '123e4567-e89b-12d3-a456-426614174000', 'ok', '{{1,NULL,3}}', '{{a,"b c",NULL}}');
"""
POSTGRES_CHANGES = """
update kinds set i = 3, t = 'later', n = 0.001 where id = 1;
update kinds set id = 20 where id = 2;
delete from kinds where id = 3;
insert into kinds(id) values (4);
alter table kinds add column extra int;
insert into kinds(id, extra) values (5, 8);
update kinds set da = '0001-01-01', ts = '9999-12-31 23:59:59.999999' where id = 4;
"""
LARGE_TABLE = """
create table large(id bigint primary key, n int, note text);
alter table large alter column note set storage external;
insert into large select id, 1, repeat('note ' || id || ' ', 2000) from generate_series(1, 5) id;
"""
LARGE_CHANGES = """
update large set n = 2 where id = 1;
update large set id = 20 where id = 2;
update large set id = 30, note = repeat('new ', 3000) where id = 3;
update large set id = 31, n = 3 where id = 30;
update large set id = id + 100 where id > 3;
delete from large where id = 105;
"""
"""Under the default replica identity Debezium sends a placeholder for each `note` that an update leaves as it is."""
POSTGRES_COLUMNS = """id BIGINT NOT NULL, b BOOLEAN, s SMALLINT, i INT, r FLOAT, d DOUBLE, n DECIMAL(12, 3), c STRING,
  t STRING, `by` BYTES, da DATE, ti TIME(3), ts TIMESTAMP(6), ts3 TIMESTAMP(3), tsz TIMESTAMP(6) WITH LOCAL TIME ZONE,
  jb STRING, u STRING, e STRING, ai ARRAY<INT>, `at` ARRAY<STRING>, extra INT"""
POSTGRES_TYPES = {"n": "DECIMAL(12, 3)", "ti": "micros-of-day", "ts": "epoch-micros", "ts3": "epoch-millis"}

MARIADB_TABLE = """
create table kinds(id bigint primary key, b boolean, ti1 tinyint, s smallint, m mediumint, i int unsigned, r float,
  d double, n decimal(12,3), c char(3), t text, by_ varbinary(9), bl blob, da date, tm time(3), dt datetime(6),
  dt0 datetime, ts timestamp(3) null default null, y year, e enum('sad', 'ok', 'happy'), st set('a', 'b', 'c'),
  b1 bit(1), j json) character set utf8mb4;
"""
MARIADB_ROW = """
insert into kinds values ({id}, true, -7, 1, 2, 4000000000, 1.5, 2.2, -123.456, 'ab', 'naïve', x'00ff61', x'fffe',
  '2024-02-29', '04:05:06.789', '2024-02-29 10:11:12.345678', '1969-12-31 23:59:59', '2024-02-29 10:11:12.345', 2024,
  'ok', 'a,c', b'1', '{{"a": 1.0}}');
"""
MARIADB_CHANGES = """
update kinds set m = 3, t = 'later', n = 0.001 where id = 1;
update kinds set id = 20 where id = 2;
delete from kinds where id = 3;
insert into kinds(id) values (4);
alter table kinds add column extra int;
insert into kinds(id, extra) values (5, 8);
update kinds set da = '1000-01-01', dt = '9999-12-31 23:59:59.999999' where id = 4;
"""
MARIADB_COLUMNS = """id BIGINT NOT NULL, b SMALLINT, ti1 SMALLINT, s SMALLINT, m INT, i BIGINT, r FLOAT, d DOUBLE,
  n DECIMAL(12, 3), c STRING, t STRING, by_ BYTES, bl BYTES, da DATE, tm TIME(3), dt TIMESTAMP(6), dt0 TIMESTAMP(3),
  ts TIMESTAMP(3) WITH LOCAL TIME ZONE, y INT, e STRING, st STRING, b1 BOOLEAN, j STRING, extra INT"""
MARIADB_TYPES = {"n": "DECIMAL(12, 3)", "tm": "micros-of-day", "dt": "epoch-micros", "dt0": "epoch-millis"}

DECLARED = {
    "postgres": " ".join(POSTGRES_COLUMNS.replace("`", "").split()),
    "mariadb": " ".join(MARIADB_COLUMNS.replace("ts TIMESTAMP(3)", "ts TIMESTAMP(6)").split()),
}
"""What Debezium's schemas say of these tables. They do not tell the digits of a TIMESTAMP of MariaDB."""


WIDE_TABLE = """
create table wide(id bigint primary key, t1 tinyint(1), tu tinyint unsigned, iu int unsigned, bu bigint unsigned,
  de decimal(10,2), dw decimal(65,30), b9 bit(9), b64 bit(64), y year, da date, tm time(3), dt datetime,
  dt6 datetime(6), ts timestamp(6) null default null, bn binary(4), st set('a','b','c'), lt longtext)
  character set utf8mb4;
"""
WIDE_ROW = """
insert into wide values ({id}, 1, 255, 4294967295, 18446744073709551615, -12345678.90,
  12345678901234567890123456789012345.123456789012345678901234567890, b'100000001', ~0, 1999, '2024-02-29',
  '10:11:12.123', '2024-02-29 10:11:12', '2024-02-29 10:11:12.123456', '2024-02-29 10:11:12.123456', x'00ff', 'a,c',
  '1234');
"""
WIDE_CHANGES = """
update wide set de = 1234.00, bu = 7 where id = 1;
update wide set id = 20 where id = 2;
delete from wide where id = 3;
insert into wide(id, de) values (4, 0.05);
"""
WIDE_COLUMNS = """id BIGINT NOT NULL, t1 TINYINT, tu SMALLINT, iu BIGINT, bu DECIMAL(20, 0), de DECIMAL(10, 2),
  dw STRING, b9 INT, b64 DECIMAL(20, 0), y INT, da DATE, tm TIME(3), dt TIMESTAMP(0), dt6 TIMESTAMP(6),
  ts TIMESTAMP(6) WITH LOCAL TIME ZONE, bn BYTES, st STRING, lt STRING"""
WIDE_TYPES = {"bu": "DECIMAL(20, 0)", "b9": "BITS", "b64": "BITS"}
"""In texts: BIGINT UNSIGNED is a decimal in bytes, but decimals are texts."""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


def names(columns: str) -> list[str]:
    """The names of the columns in a text of columns."""
    return [part.split()[0].strip("`") for part in re.sub(r"\(\d+, \d+\)", "", columns).split(",")]


class OfPostgres:
    """What Debezium said of one table, and the rows that the table had in the end."""

    def __init__(self, registry: str, folder: Path) -> None:
        with Postgres(wal_level="logical") as database:
            login = {"host": "127.0.0.1", "port": database.port, "user": "paimon", "password": PASSWORD}
            with psycopg.connect(dbname="postgres", autocommit=True, row_factory=dict_row, **login) as sql:  # type: ignore[arg-type]
                sql.execute(POSTGRES_TABLE)
                sql.execute("".join(POSTGRES_ROW.format(id=at) for at in (1, 2, 3)))
                sql.execute(LARGE_TABLE)
                sql.execute(READY)
                with debezium({**postgres_connector(database), **avro_converter(registry)}, folder) as events:
                    snapshot = events.until(f"s.public.{MARKER}")
                    for statement in (POSTGRES_CHANGES + LARGE_CHANGES.lstrip()).strip().split("\n"):
                        sql.execute(statement.encode())
                    sql.execute(DONE)
                    changes = events.until(f"s.public.{MARKER}")
                texts = (
                    "id, b, s, i, r, d, n, c, t, by, da, ti, ts, ts3, tsz, jb::text, u::text, e::text, ai, at, extra"
                )
                self.rows = sql.execute(f"select {texts} from kinds order by id".encode()).fetchall()
                self.large = sql.execute("select * from large order by id").fetchall()
        self.events = {form: snapshot[form] + changes[form] for form in FORMS}


class OfMariaDb:
    """As `OfPostgres`."""

    def __init__(self, registry: str, folder: Path) -> None:
        with MariaDb() as database:
            database.run(MARIADB_TABLE)
            database.run("".join(MARIADB_ROW.format(id=at) for at in (1, 2, 3)))
            database.run(READY)
            with debezium({**mariadb_connector(database), **avro_converter(registry)}, folder) as events:
                snapshot = events.until(f"s.shop.{MARKER}")
                database.run(MARIADB_CHANGES)
                database.run(DONE)
                changes = events.until(f"s.shop.{MARKER}")
            shown = {"by_": "hex(by_) by_", "bl": "hex(bl) bl", "b1": "b1+0 b1"}
            chosen = ", ".join(shown.get(n, n) for n in names(MARIADB_COLUMNS))
            self.rows = database.rows(f"set time_zone='+00:00'; select {chosen} from kinds order by id")
        self.events = {form: snapshot[form] + changes[form] for form in FORMS}


class OfMariaDbInTexts:
    """As `OfMariaDb`, where Debezium writes texts, and heartbeats, transactions and schema changes between them."""

    def __init__(self, folder: Path) -> None:
        more = {
            "decimal.handling.mode": "string",
            "time.precision.mode": "isostring",
            "bigint.unsigned.handling.mode": "precise",
            "binary.handling.mode": "hex",
            "heartbeat.interval.ms": "50",
            "provide.transaction.metadata": "true",
            "include.schema.changes": "true",
        }
        with MariaDb() as database:
            database.run(WIDE_TABLE)
            database.run("".join(WIDE_ROW.format(id=at) for at in (1, 2, 3)))
            database.run(READY)
            with debezium({**mariadb_connector(database), **more}, folder) as events:
                snapshot = events.until(f"s.shop.{MARKER}", JSON_WITH_SCHEMA)
                database.run(WIDE_CHANGES)
                database.run(DONE)
                changes = events.until(f"s.shop.{MARKER}", JSON_WITH_SCHEMA)
            shown = {"b9": "b9+0 b9", "b64": "b64+0 b64", "bn": "hex(bn) bn"}
            chosen = ", ".join(shown.get(n, n) for n in names(WIDE_COLUMNS))
            self.rows = database.rows(f"set time_zone='+00:00'; select {chosen} from wide order by id")
        self.events = {form: snapshot[form] + changes[form] for form in (JSON, JSON_WITH_SCHEMA)}


@pytest.fixture(scope="module")
def mariadb_in_texts(tmp_path_factory: pytest.TempPathFactory) -> OfMariaDbInTexts:
    return OfMariaDbInTexts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def postgres(registry: str, tmp_path_factory: pytest.TempPathFactory) -> OfPostgres:
    return OfPostgres(registry, tmp_path_factory.mktemp("postgres"))


@pytest.fixture(scope="module")
def mariadb(registry: str, tmp_path_factory: pytest.TempPathFactory) -> OfMariaDb:
    return OfMariaDb(registry, tmp_path_factory.mktemp("mariadb"))


def written(
    path: Path, columns: str, events: list[Event], form: str, types: dict[str, str], registry: str, **more: Any
) -> pa.Table:
    """A table that got these events, read again. `more` says how messages are read."""
    table = create_table(str(path), columns, ["id"], options={"bucket": "2"})
    own = {} if form != JSON else types
    step = decode_step(
        FORMS[form],
        handle_of(table).table_schema,
        BadRecords(None, 0),
        MessageOptions(types=tuple((name, parse_source_type(text)) for name, text in own.items()), **more),
        RegistryOptions(registry) if form == AVRO else None,
    )
    assert step is not None
    found = step(
        pa.table(
            {
                "key": pa.array([event.key for event in events], pa.binary()),
                "value": pa.array([event.value for event in events], pa.binary()),
            }
        )
    )
    reasons = [] if found.rejects is None else pa.ipc.open_stream(found.rejects.blob).read_all()["reason"].to_pylist()
    assert reasons == []
    table.write(found.rows, row_kinds="_row_kind")
    return open_table(str(path)).to_arrow().sort_by("id")


@pytest.mark.parametrize("form", FORMS)
def test_a_table_has_the_rows_of_postgresql(form: str, postgres: OfPostgres, registry: str, tmp_path: Path) -> None:
    events = [event for event in postgres.events[form] if event.topic == "s.public.kinds"]
    found = written(tmp_path / "shop.db" / "kinds", POSTGRES_COLUMNS, events, form, POSTGRES_TYPES, registry)
    assert found.to_pylist() == postgres.rows
    assert [row["id"] for row in postgres.rows] == [1, 4, 5, 20]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batches", [1, 2])
def test_large_values_of_postgresql_stay_where_keys_change(
    form: str, batches: int, postgres: OfPostgres, registry: str, tmp_path: Path
) -> None:
    events = [event for event in postgres.events[form] if event.topic == "s.public.large"]
    lacking = [event for event in events if event.value is not None and UNAVAILABLE.encode() in event.value]
    assert len(lacking) == 7, "one update and six changes of keys"
    path = str(tmp_path / "shop.db" / "large")
    table = create_table(path, "id BIGINT NOT NULL, n INT, note STRING", ["id"], options={"bucket": "2"})
    own = RegistryOptions(registry) if form == AVRO else None
    keep = MessageOptions(unavailable=Unavailable.KEEP)
    step = decode_step(FORMS[form], handle_of(table).table_schema, BadRecords(None, 0), keep, own)
    sink, cluster = TableSink(path, {}, decode=step), Cluster(Random(1), 2)
    # The snapshot first, or everything at once.
    ends = [0, len(events)] if batches == 1 else [0, 5, len(events)]
    for number, (first, end) in enumerate(pairwise(ends)):
        chosen = events[first:end]
        records = {
            "partition": pa.array([0] * len(chosen), pa.int32()),
            "topic": ["s.public.large"] * len(chosen),
            "offset": pa.array(range(first, end), pa.int64()),
            "key": as_arrow([event.key for event in chosen]),
            "value": as_arrow([event.value for event in chosen]),
        }
        identity = BatchIdentity("query", number, f"[{first}]", f"[{end}]", f"digest {number}")
        sink.write(cluster.frame(pa.table(records), 1), identity)
    assert open_table(path).to_arrow().sort_by("id").to_pylist() == postgres.large
    assert [row["id"] for row in postgres.large] == [1, 104, 120, 131]


@pytest.mark.parametrize("form", FORMS)
def test_a_table_has_the_rows_of_mariadb(form: str, mariadb: OfMariaDb, registry: str, tmp_path: Path) -> None:
    events = [event for event in mariadb.events[form] if event.topic == "s.shop.kinds"]
    found = written(tmp_path / "shop.db" / "kinds", MARIADB_COLUMNS, events, form, MARIADB_TYPES, registry)
    assert found.to_pylist() == [{f.name: _value(row[f.name], f.type) for f in found.schema} for row in mariadb.rows]
    assert [row["id"] for row in mariadb.rows] == ["1", "4", "5", "20"]


@pytest.mark.parametrize("source", ["postgres", "mariadb"])
def test_debezium_declares_the_same_table_in_json_and_in_avro(
    source: str, registry: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found: OfPostgres | OfMariaDb = request.getfixturevalue(source)
    tables = []
    for form in (JSON_WITH_SCHEMA, AVRO):
        events = [event for event in found.events[form] if event.topic.endswith(".kinds")]
        schemas = RegistrySchemas(RegistryOptions(registry), "a job") if form == AVRO else None
        records = (as_arrow([e.value for e in events]), as_arrow([e.key for e in events]))
        declared = declared_table(declared_rows(*records, FORMS[form], NO_MESSAGE_OPTIONS, schemas), FORMS[form])
        assert declared is not None
        columns = columns_text(logical_fields(declared.columns))
        tables.append((columns, declared.primary_key))
        own = written(tmp_path / f"{form}.db" / "kinds", columns, events, form, {}, registry)
        assert own["id"].to_pylist() == [1, 4, 5, 20]
    assert tables[0] == tables[1] == (DECLARED[source], ("id",))


def as_arrow(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize("form", [JSON, JSON_WITH_SCHEMA])
def test_a_table_has_the_rows_of_mariadb_whose_values_are_texts(
    form: str, mariadb_in_texts: OfMariaDbInTexts, tmp_path: Path
) -> None:
    events = mariadb_in_texts.events[form]
    assert {event.topic for event in events} >= {"s", "s.transaction", "s.shop.wide"}
    more = {"bytes_form": BytesForm.HEX, "source_table": "shop.wide"}
    found = written(tmp_path / "shop.db" / "wide", WIDE_COLUMNS, events, form, WIDE_TYPES, "", **more)
    rows = mariadb_in_texts.rows
    assert found.to_pylist() == [{f.name: _value(row[f.name], f.type) for f in found.schema} for row in rows]
    assert [row["id"] for row in rows] == ["1", "4", "20"]


def _value(text: str | None, kind: pa.DataType) -> Any:
    """The value that MariaDB shows so."""
    if text is None:
        return None
    if pa.types.is_binary(kind):
        return bytes.fromhex(text)
    if pa.types.is_time(kind):
        return datetime.strptime(text, "%H:%M:%S.%f").time()
    plain = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
    return pa.array([text]).cast(plain).cast(kind)[0].as_py()
