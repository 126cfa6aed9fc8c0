"""A catalog on a server that speaks Paimon's REST protocol: names, configuration, errors, what is refused."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import DatabaseNotFoundError, StorageError, TableNotFoundError, UnsupportedTableError
from bucketline.state.store.table.table import handle_of
from tests.support.servers.rest_server import RestServer

COLUMNS = "id BIGINT NOT NULL, v STRING"
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with RestServer(tmp_path) as found:
        yield found


def test_names_are_kept_by_the_server_and_listed_page_by_page(server: RestServer) -> None:
    shop = bl.catalog(server.options)
    assert server.requests == []
    for name in ("e", "b", "d", "a", "c"):
        shop.create_database(name)
    assert shop.list_databases() == ["a", "b", "c", "d", "e"]
    with pytest.raises(OptionError, match="Database a already exists"):
        shop.create_database("a")
    shop.create_database("a", exist_ok=True)
    for name in ("t3", "t 1/x".replace("/x", ""), "t2"):
        shop.create_table(f"a.{name}", COLUMNS, ["id"], options={"bucket": "1"})
    assert shop.list_tables("a") == ["t 1", "t2", "t3"]
    shop.table("a.t 1").write(ROWS)
    assert shop.table("a.t 1").to_arrow().num_rows == 2
    with pytest.raises(OptionError, match="already exists"):
        shop.create_table("a.t2", COLUMNS)
    assert shop.create_table("a.t2", COLUMNS, exist_ok=True).primary_key == ("id",)
    shop.rename_table("a.t2", "b.t2")
    assert (shop.list_tables("a"), shop.list_tables("b")) == (["t 1", "t3"], ["t2"])
    with pytest.raises(OptionError, match="already exists"):
        shop.rename_table("a.t3", "b.t2")
    shop.drop_table("b.t2")
    shop.drop_database("b")
    shop.drop_database("a", cascade=True)
    assert shop.list_databases() == ["c", "d", "e"]
    assert {r.path.split("/")[2] for r in server.requests if r.path != "/v1/config"} == {"lake+house"}
    assert sum(r.path == "/v1/config" for r in server.requests) == 1


def test_what_is_missing_is_named(server: RestServer) -> None:
    shop = bl.catalog(server.options)
    for act in (lambda: shop.table("no.t"), lambda: shop.list_tables("no"), lambda: shop.create_table("no.t", COLUMNS)):
        with pytest.raises(DatabaseNotFoundError, match="Database no does not exist"):
            act()
    shop.create_database("shop")
    with pytest.raises(TableNotFoundError, match=r"no table shop\.t"):
        shop.table("shop.t")
    assert not shop.has_table("shop.t")
    shop.create_table("t", COLUMNS)
    assert shop.list_tables() == ["t"]


def test_defaults_of_the_server_give_way_and_its_overrides_do_not(tmp_path: Path) -> None:
    defaults = {"table-default.bucket": "3", "header.X-Team": "theirs", "io-cache.enabled": "true", "s3.region": "r1"}
    with RestServer(tmp_path, defaults=defaults, overrides={"header.X-Site": "north", "s3.endpoint": "http://s"}) as s:
        shop = bl.catalog({**s.options, "header.X-Team": "ours"})
        table = shop.create_table("t", COLUMNS, ["id"])
        assert table.options["bucket"] == "3"
        assert (handle_of(table).storage["s3.region"], handle_of(table).storage["s3.endpoint"]) == ("r1", "http://s")
        last = s.requests[-1].headers
        assert (last["X-Team"], last["X-Site"]) == ("ours", "north")


def test_a_token_that_is_refused_and_a_server_that_is_away_are_named(server: RestServer) -> None:
    with pytest.raises(StorageError, match=r"401 who are you\?; check the option 'token'") as refused:
        bl.catalog({**server.options, "token": "wrong-token"}).list_databases()
    assert "wrong-token" not in str(refused.value) and refused.value.fields["retryable"] is False
    with pytest.raises(StorageError, match="refused") as away:
        bl.catalog({**server.options, "uri": "http://127.0.0.1:9"}).create_database("x")
    assert away.value.fields["retryable"] is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token.provider": "dlf"}, "DLF's signatures are not supported"),
        ({"dlf.region": "cn"}, "DLF's signatures are not supported"),
        ({"uri": "ftp://x"}, "http or https"),
        ({"catalog-key": "x"}, "'catalog-key' has no meaning for 'metastore' = rest"),
        ({"metastore": "filesystem"}, "has no meaning for 'metastore' = filesystem"),
        ({"tokn": "x"}, "did you mean 'token'"),
    ],
)
def test_options_that_do_not_fit_are_refused(change: dict[str, str], message: str) -> None:
    given = {"metastore": "rest", "uri": "http://h", "token": "t-o-k-e-n", "warehouse": "lake"}
    with pytest.raises(OptionError, match=message):
        bl.catalog({**given, **change})


def test_a_table_of_a_catalog_is_not_written_by_its_path(server: RestServer) -> None:
    table = bl.catalog(server.options).create_table("t", COLUMNS, ["id"], options={"bucket": "1"})
    table.write(ROWS)
    by_path = bl.open_table(table.path)
    assert by_path.to_arrow().num_rows == 2
    for act in (
        lambda: by_path.write(ROWS),
        lambda: by_path.add_column("x", "INT"),
        lambda: by_path.compact(),
        lambda: by_path.rollback_to(1),
        lambda: by_path.create_tag("x"),
        lambda: by_path.create_branch("x"),
        lambda: by_path.expire_snapshots(retain_max=1),
        lambda: by_path.delete_tag("x"),
        lambda: by_path.delete_branch("x"),
        lambda: by_path.remove_orphan_files(dry_run=False),
    ):
        with pytest.raises(UnsupportedTableError, match="belongs to a REST catalog"):
            act()
    assert table.snapshots().num_rows == 1


def test_files_decide_about_a_table_that_the_server_knows_by_name_only(server: RestServer) -> None:
    shop = bl.catalog(server.options)
    shop.create_database("shop")
    path = bl.create_table(str(server.folder / "elsewhere"), COLUMNS, ["id"], options={"bucket": "1"}).path
    shop.create_table("shop.t", COLUMNS)
    server.databases["shop"]["t"].root, server.databases["shop"]["t"].is_external = path, True
    shop.table("shop.t").write(ROWS)
    assert bl.open_table(path).to_arrow().num_rows == 2 and server.count("/commit") == 0


def test_no_token_is_shown_and_a_handle_can_be_pickled(server: RestServer) -> None:
    shop = bl.catalog(server.options)
    table = shop.create_table("t", COLUMNS, ["id"], options={"bucket": "1"})
    sink = bl.TableSink(table.uri, storage_options=handle_of(table).storage)
    shown = repr(shop) + repr(shop.metastore) + repr(table) + repr(handle_of(table).io) + repr(sink)
    assert server.options["token"] not in shown and server.uri in shown
    pickle.loads(pickle.dumps(table)).write(ROWS)
    assert pickle.loads(pickle.dumps(shop)).table("t").to_arrow().num_rows == 2
    stored = b"".join(p.read_bytes() for p in Path(table.path).rglob("*") if p.is_file())
    assert server.options["token"].encode() not in stored


def test_another_table_of_the_same_name_is_not_written(server: RestServer) -> None:
    shop = bl.catalog(server.options)
    old = shop.create_table("t", COLUMNS, ["id"], options={"bucket": "1"})
    server.databases["default"]["t"].uuid = "another-id"
    with pytest.raises(TableNotFoundError, match=r"no table default\.t with the id"):
        old.write(ROWS)
