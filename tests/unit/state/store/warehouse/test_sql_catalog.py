"""A catalog whose names a database keeps, in the tables of Paimon's JDBC catalog."""

import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.determinism import World
from bucketline.state.errors import StorageError, TableNotFoundError
from bucketline.state.store.server.sql_database import SqlDatabase, SqlTransaction
from bucketline.state.store.server.sql_names import SqlLock
from bucketline.state.store.table.table import handle_of
from tests.support.servers.postgres import Postgres
from tests.support.servers.s3_server import S3Server

COLUMNS = "id BIGINT NOT NULL, dt STRING"
ROWS = pa.table({"id": [1, 2], "dt": ["a", "b"]})


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.stores)])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    found = {"metastore": "jdbc", "warehouse": str(tmp_path / "w"), "catalog-key": f"key-{tmp_path.name}"}
    if request.param == "sqlite":
        return found | {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    server: Postgres = request.getfixturevalue("postgres")
    return found | {"uri": server.uri} | server.login


def rows(options: dict[str, str], sql: str) -> list[tuple[object, ...]]:
    with session(options) as found:
        return found.rows(sql)


@contextmanager
def session(options: dict[str, str]) -> Iterator[SqlTransaction]:
    with SqlDatabase(options["uri"], options.get("jdbc.user"), options.get("jdbc.password")).session() as found:
        yield found


def test_names_are_rows_and_tables_are_folders(options: dict[str, str]) -> None:
    shop = bl.catalog(options)
    assert shop.list_databases() == []
    shop.create_database("shop")
    shop.create_database("shop", exist_ok=True)
    with pytest.raises(OptionError, match="Database shop already exists"):
        shop.create_database("shop")
    made = shop.create_table("shop.orders", COLUMNS, ["id", "dt"], ["dt"], {"bucket": "1"})
    made.write(ROWS)
    assert made.uri == f"{options['warehouse']}/shop.db/orders"
    assert bl.open_table(made.uri).to_arrow().num_rows == 2
    assert shop.create_table("shop.orders", COLUMNS, exist_ok=True).to_arrow().num_rows == 2
    with pytest.raises(OptionError, match="already exists"):
        shop.create_table("shop.orders", COLUMNS)
    shop.create_database("old")
    shop.rename_table("shop.orders", "old.sales")
    assert (shop.list_tables("shop"), shop.list_tables("old")) == ([], ["sales"])
    assert shop.table("old.sales").to_arrow().num_rows == 2
    shop.drop_database("old", cascade=True)
    assert shop.list_databases() == ["shop"] and not Path(made.uri).exists()
    assert rows(options, "SELECT * FROM paimon_table_properties WHERE database_name = 'old'") == []


def test_the_rows_are_those_that_paimon_writes(options: dict[str, str]) -> None:
    shop, key = bl.catalog(options), options["catalog-key"]
    shop.create_database("shop")
    table = shop.create_table("shop.orders", COLUMNS, ["id", "dt"], ["dt"], {"bucket": "1"})
    of_key = f"WHERE catalog_key = '{key}'"
    assert rows(options, f"SELECT * FROM paimon_tables {of_key}") == [(key, "shop", "orders")]
    assert rows(options, f"SELECT * FROM paimon_database_properties {of_key} ORDER BY property_key") == [
        (key, "shop", "exists", "true"),
        (key, "shop", "location", f"{options['warehouse']}/shop.db"),
    ]
    properties = f"SELECT property_key, property_value FROM paimon_table_properties {of_key} ORDER BY property_key"
    keys = [("bucket-key", "id"), ("partition", "dt"), ("primary-key", "id,dt")]
    assert rows(options, properties) == [("bucket", "1"), *keys]
    table.set_options({"snapshot.num-retained.max": "20"})
    assert rows(options, properties) == [("bucket", "1"), *keys, ("snapshot.num-retained.max", "20")]


def test_catalogs_of_other_keys_in_one_database_do_not_see_each_other(options: dict[str, str]) -> None:
    one, other = bl.catalog(options), bl.catalog({**options, "catalog-key": "another"})
    one.create_table("orders", COLUMNS)
    assert other.list_databases() == [] and not other.has_table("orders")
    with pytest.raises(OptionError, match="that the catalog does not know"):
        other.create_table("orders", COLUMNS)


def test_a_table_is_there_once_the_database_says_so(options: dict[str, str]) -> None:
    shop = bl.catalog(options)
    bl.create_table(f"{options['warehouse']}/default.db/orders", COLUMNS)
    assert not shop.has_table("orders")
    shop.create_database("default")
    with pytest.raises(TableNotFoundError):
        shop.table("orders")


def test_a_rename_that_the_storage_refuses_changes_no_row(tmp_path: Path, s3_server: S3Server) -> None:
    uri = s3_server.new_uri().removesuffix("/shop.db/t")
    shop = bl.catalog(
        {"metastore": "jdbc", "warehouse": uri, "uri": f"jdbc:sqlite:{tmp_path}/c.db", **s3_server.storage}
    )
    shop.create_table("orders", COLUMNS)
    with pytest.raises(bl.UnsupportedTableError, match="copies a folder"):
        shop.rename_table("orders", "default.sales")
    assert shop.list_tables() == ["orders"]


def test_on_an_object_store_a_commit_waits_for_paimons_lock(tmp_path: Path, s3_server: S3Server) -> None:
    uri = s3_server.new_uri().removesuffix("/shop.db/t")
    options = {"metastore": "jdbc", "warehouse": uri, "uri": f"jdbc:sqlite:{tmp_path}/c.db", **s3_server.storage}
    shop = bl.catalog({**options, "lock-acquire-timeout": "1 s", "lock-check-max-sleep": "50 ms"})
    table = pickle.loads(pickle.dumps(shop.create_table("orders", COLUMNS, ["id"], options={"bucket": "1"})))
    table.write(ROWS)
    assert rows(options, "SELECT * FROM paimon_distributed_locks") == []
    with session(options) as found:
        found.change("INSERT INTO paimon_distributed_locks VALUES ('jdbc.default.orders', '2999-01-01 00:00:00', 1)")
    with pytest.raises(StorageError, match=r"the lock 'jdbc\.default\.orders' was not free within 1000 ms"):
        table.set_options({"snapshot.num-retained.max": "20"})
    with session(options) as found:
        found.change("UPDATE paimon_distributed_locks SET acquired_at = '2020-01-01 00:00:00'")
    table.write(ROWS)
    assert rows(options, "SELECT * FROM paimon_distributed_locks") == []


class Moment:
    """A pause that takes no time, and a watch that it moves on."""

    def __init__(self) -> None:
        self.passed_ms: list[int] = []

    def wait_ms(self, duration_ms: int) -> None:
        self.passed_ms.append(duration_ms)

    def elapsed_ms(self) -> int:
        return sum(self.passed_ms)


def test_one_holder_has_the_lock_and_others_wait_ever_longer(options: dict[str, str]) -> None:
    database = SqlDatabase(options["uri"], options.get("jdbc.user"), options.get("jdbc.password"))
    lock, moment = SqlLock(database, options["catalog-key"], 5_000, 1_000), Moment()
    other = lock.held(World(pause=moment, stopwatch=moment))
    with lock.held(), pytest.raises(StorageError, match="was not free") as refused:
        other.__enter__()
    assert refused.value.fields["published"] is False
    assert moment.passed_ms[:5] == [100, 200, 400, 800, 1000] and sum(moment.passed_ms) > 5_000
    with lock.held(World(pause=moment, stopwatch=moment)):
        pass


def test_a_table_without_a_lock_or_properties_in_the_catalog_needs_no_database_to_commit(tmp_path: Path) -> None:
    file = tmp_path / "c.db"
    shop = bl.catalog(
        {"metastore": "jdbc", "warehouse": str(tmp_path), "uri": f"jdbc:sqlite:{file}", "sync-all-properties": "false"}
    )
    table = shop.create_table("orders", COLUMNS, ["id"], options={"bucket": "1"})
    assert rows({"uri": f"jdbc:sqlite:{file}"}, "SELECT * FROM paimon_table_properties") == []
    file.unlink()
    table.write(ROWS)
    assert table.add_column("x", "INT").to_arrow().num_rows == 2


def test_a_schema_change_stands_though_the_database_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "c.db"
    shop = bl.catalog({"metastore": "jdbc", "warehouse": str(tmp_path), "uri": f"jdbc:sqlite:{file}"})
    table = shop.create_table("orders", COLUMNS, ["id"])
    file.write_bytes(b"no database at all" * 100)
    assert table.add_column("x", "INT").schema.names == ["id", "dt", "x"]
    assert "are older than the table's schema" in caplog.text


def test_a_process_without_a_catalog_in_postgresql_does_not_import_its_driver() -> None:
    text = "import sys, bucketline, bucketline.state.store.server.sql_database; print('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "False\n"


def test_no_password_is_shown(options: dict[str, str], tmp_path: Path) -> None:
    given = {**options, "jdbc.password": "hush-hush", "uri": "jdbc:postgresql://u:hush-too@h/d?password=hush-three"}
    shop = bl.catalog(given)
    shown = repr(shop) + str(shop) + repr(shop.metastore)
    assert "hush" not in shown and "jdbc:postgresql://" in shown
    table = bl.catalog(options).create_table("orders", COLUMNS)
    password = options.get("jdbc.password", "no-password")
    assert password not in repr(table) + repr(handle_of(table).io) + repr(
        bl.TableSink(table.uri, storage_options=handle_of(table).storage)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uri": "jdbc:mysql://h/d"}, "SQLite .* or PostgreSQL"),
        ({"uri": "jdbc:sqlite::memory:"}, "needs a file with an absolute path"),
        ({"uri": "jdbc:sqlite:catalog.db"}, "needs a file with an absolute path"),
        ({"uri": ""}, "uri"),
        ({"metastore": "filesystem"}, "'uri' has no meaning for 'metastore' = filesystem"),
        ({"jdbc.pasword": "x"}, r"did you mean 'jdbc\.password'"),
        ({"lock.enabled": "perhaps"}, r"lock\.enabled"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, change: dict[str, str], message: str) -> None:
    given = {"metastore": "jdbc", "warehouse": str(tmp_path), "uri": f"jdbc:sqlite:{tmp_path}/c.db", **change}
    with pytest.raises(OptionError, match=message):
        bl.catalog(given)
    with pytest.raises(OptionError, match="'uri' is required"):
        bl.catalog({"metastore": "jdbc", "warehouse": str(tmp_path)})


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "c.db"
    file.write_bytes(b"no database at all" * 100)
    shop = bl.catalog({"metastore": "jdbc", "warehouse": str(tmp_path), "uri": f"jdbc:sqlite:{file}"})
    with pytest.raises(StorageError, match=r"c\.db: file is not a database"):
        shop.list_databases()


def test_names_are_in_lower_case(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="not in lower case"):
        bl.catalog(options).create_table("Orders", COLUMNS)


def test_a_tasks_storage_reaches_the_table_without_the_catalog(tmp_path: Path) -> None:
    shop = bl.catalog({"metastore": "jdbc", "warehouse": str(tmp_path), "uri": f"jdbc:sqlite:{tmp_path}/c.db"})
    table = shop.create_table("orders", COLUMNS)
    handle = handle_of(table)
    assert handle_of(bl.open_table(table.uri, storage_options=handle.storage)).storage == handle.storage
    elsewhere = bl.create_table(str(tmp_path / "x.db/t"), COLUMNS, storage_options=handle.storage)
    assert type(handle_of(elsewhere).io) is not type(handle.io)
    assert sqlite3.connect(tmp_path / "c.db").execute("SELECT COUNT(*) FROM paimon_tables").fetchone() == (1,)
